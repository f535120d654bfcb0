"""Mistakes that people make with the library end in one sentence that says what to do."""

from __future__ import annotations

import pytest
from PIL import Image

import ercr
from ercr.errors import InputError

PICTURE = Image.new("RGB", (56, 56))


def test_a_name_instead_of_a_model_is_told_where_to_go():
    with pytest.raises(InputError, match=r"from_pretrained\('photo-mini'\)"):
        ercr.Explainer("photo-mini")
    with pytest.raises(InputError, match="loaded Hugging Face model, not dict"):
        ercr.Explainer({})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"generation": {"temprature": 0.5}}, "no setting 'temprature'.* Did you mean 'temperature'"),
        ({"generation": {"stop_strings": ["."]}}, "stop_strings is not supported"),
        ({"generation": "beam"}, "must be a dict"),
        ({"method": 5}, "named by text"),
        ({"temperature": 0.5}, r"did you mean generation=\{'temperature': …\}"),
    ],
)
def test_decoding_options_are_checked_before_the_model_runs(load, options, told):
    with pytest.raises(InputError, match=told):
        load("qwen2_vl").explain(PICTURE, answer="a", **options)
