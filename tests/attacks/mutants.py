"""Hostile pictures from a seed: sound ones of every format and mode, and what can be done to their bytes."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image, features

SIZE = (48, 36)
PRINTED = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\n(x) print showpage\n%%EOF\n"
ESCAPES = "photo\x1b[31m\x9b2J\u202egnp.png"


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def sound() -> dict[str, bytes]:
    """Whole files: each format with the modes it can hold, animated and turned ones among them."""
    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 255, (SIZE[1], SIZE[0], 3), np.uint8))
    alpha = rgb.copy()
    alpha.putalpha(rgb.convert("L"))
    deep = Image.fromarray(rng.integers(0, 65535, (SIZE[1], SIZE[0]), np.uint16))
    numbers = Image.fromarray(rng.normal(0, 9, (SIZE[1], SIZE[0])).astype(np.float32))
    turned = Image.Exif()
    turned[0x0112] = 6
    found = {
        **{f"png {m}": saved(rgb.convert(m), "PNG") for m in ("1", "L", "P", "RGB", "LA")},
        "png RGBA": saved(alpha, "PNG"),
        "png deep": saved(deep, "PNG"),
        "png clear": saved(rgb.quantize(8), "PNG", transparency=3),
        "png animated": saved(rgb, "PNG", save_all=True, append_images=[rgb.rotate(90)]),
        **{f"jpeg {m}": saved(rgb.convert(m), "JPEG") for m in ("L", "RGB", "CMYK")},
        "jpeg turned": saved(rgb, "JPEG", exif=turned, progressive=True),
        "webp": saved(rgb, "WEBP"),
        "webp clear": saved(alpha, "WEBP", lossless=True),
        "webp animated": saved(rgb, "WEBP", save_all=True, append_images=[rgb.rotate(90)]),
        "gif": saved(rgb, "GIF", save_all=True, append_images=[rgb.rotate(90)]),
        **{f"bmp {m}": saved(rgb.convert(m), "BMP") for m in ("1", "L", "RGB")},
        **{f"tiff {m}": saved(rgb.convert(m), "TIFF") for m in ("1", "L", "RGB", "CMYK", "YCbCr", "LAB")},
        "tiff deep": saved(deep, "TIFF", compression="tiff_lzw"),
        "tiff float": saved(numbers, "TIFF", compression="tiff_adobe_deflate"),
        "tiff whole": saved(numbers.convert("I"), "TIFF"),
        "tiff premultiplied": saved(alpha, "TIFF", tiffinfo={338: 1}),
    }
    if features.check("avif"):
        found["avif"] = saved(rgb, "AVIF", speed=10)
    return found


def foreign() -> dict[str, bytes]:
    """Files that Pillow can open and that are not opened here, whatever they are called."""
    picture = Image.new("RGB", SIZE, "red")
    kinds = ("DDS", "PPM", "ICO", "PCX", "TGA", "SGI", "EPS", "IM", "MSP", "XBM", "BLP", "SPIDER")
    found = {"eps": PRINTED, "pdf": b"%PDF-1.4\n1 0 obj\n", "xpm": b'/* XPM */\nstatic char *x[] = {"1 1 1 1"'}
    for kind in kinds:
        mode = {"XBM": "1", "MSP": "1", "SPIDER": "F", "BLP": "P"}.get(kind, "RGB")
        found[kind.lower()] = saved(picture.convert(mode), kind)
    return found


def claims(size: int) -> Iterator[bytes]:
    """Small files whose headers claim a very large picture, and files that really hold one."""
    for depth, colour in ((8, 2), (16, 0), (16, 6), (1, 0)):
        header = struct.pack(">IIBBBBB", size, size, depth, colour, 0, 0, 0)
        yield b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(999))) + chunk(b"IEND")
    yield b"GIF89a" + struct.pack("<HH", min(size, 65535), min(size, 65535)) + b"\xf7\0\0" + bytes(768) + b"\x2c"
    bitmap = bytearray(saved(Image.new("RGB", (4, 4)), "BMP"))
    bitmap[18:26] = struct.pack("<ii", size, size)
    yield bytes(bitmap)
    scan = saved(Image.new("L", (8, 8)), "JPEG")
    at = scan.index(b"\xff\xc0") + 5
    yield scan[:at] + struct.pack(">HH", min(size, 65535), min(size, 65535)) + scan[at + 4 :]


def large(rng: random.Random) -> bytes:
    """A sound picture near the bounds, on one side or the other; its file is small."""
    side = rng.choice((3900, 4100, 8000, 9400))
    mode, kind = rng.choice(
        (("L", "PNG"), ("I;16", "PNG"), ("F", "TIFF"), ("I;16", "TIFF"), ("P", "GIF"), ("1", "PNG"))
    )
    options = {"compression": "tiff_adobe_deflate"} if kind == "TIFF" else {}
    return saved(Image.new(mode, (side, side)), kind, **options)


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The bytes with one to three kinds of damage."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        found = bytearray(_damaged(found, other, rng)) or bytearray(b"x")
    return bytes(found)


def _damaged(data: bytearray, other: bytes, rng: random.Random) -> bytes:
    at, kind = rng.randrange(len(data)), rng.randrange(8)
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        del data[at : at + rng.randrange(1, 64)]
    elif kind == 2:
        data[at:at] = rng.randbytes(rng.randrange(1, 64))
    elif kind == 3:  # numbers at the edge of their type
        data[at : at + 4] = rng.choice(
            (b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\x80\0")
        )
    elif kind == 4:  # the front of one file, the rest of another
        return bytes(data[:at]) + other[rng.randrange(len(other)) :]
    elif kind == 5:  # a part twice
        data[at:at] = data[at : at + rng.randrange(1, 400)]
    else:
        reach = min(len(data), 80) if kind == 6 else len(data)
        for _ in range(rng.randrange(1, 12)):
            data[rng.randrange(reach)] = rng.randrange(256)
    return bytes(data)


def pictures(count: int, seed: int) -> Iterator[bytes]:
    """So many hostile files, the same for one seed."""
    rng, whole, others = random.Random(seed), list(sound().values()), list(foreign().values())
    claimed = [data for size in (20_000, 65_500, 2**31 - 1) for data in claims(size)]
    for number in range(count):
        if number % 500 == 499:
            yield large(rng)
        elif number % 25 == 7:
            yield rng.choice(others)
        elif number % 25 == 13:
            yield rng.choice(claimed)
        else:
            yield mutated(rng.choice(whole if rng.random() < 0.93 else others), rng.choice(whole), rng)
