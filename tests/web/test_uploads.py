"""Uploads: every kind of bad file ends in one sentence, and no bad file is decoded."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image

from ercr.errors import ImageError
from ercr.web.limits import Limits
from ercr.web.uploads import read_upload


def test_each_kind_of_bad_file_has_its_own_message(bad_files):
    for says, path in bad_files.items():
        with pytest.raises(ImageError, match=says):
            read_upload(path, Limits())


def test_a_huge_picture_is_refused_before_any_pixel_is_decoded(tmp_path):
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    path = tmp_path / "header.png"
    # there are no pixels behind the header: decoding would complain about that instead
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    )
    with pytest.raises(ImageError, match="megapixels are allowed"):
        read_upload(path, Limits())


def test_pixels_are_upright_and_the_file_is_kept(tmp_path, picture):
    path, exif = tmp_path / "turned.png", Image.Exif()
    exif[274] = 6  # to be shown turned by a quarter
    picture.save(path, exif=exif)
    loaded = read_upload(path, Limits())
    assert loaded.rgb.size == (picture.height, picture.width)
    assert loaded.to_bytes() == path.read_bytes()


def test_formats_that_no_browser_makes_are_refused(tmp_path, picture):
    buffer = io.BytesIO()
    picture.save(buffer, format="PPM")
    path = tmp_path / "picture.png"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ImageError, match="not a picture that can be read"):
        read_upload(path, Limits())


def test_a_file_above_the_limit_or_gone_is_refused(tmp_path):
    path = tmp_path / "big.png"
    path.write_bytes(bytes(2_000_000))
    with pytest.raises(ImageError, match="larger than 1 MB"):
        read_upload(path, Limits(upload_mb=1))
    with pytest.raises(ImageError, match="has been deleted"):
        read_upload(tmp_path / "gone.png", Limits())
