"""Protocols as text and as plain data, and errors that help."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from ercr.errors import InputError
from ercr.metrics.protocol import OPTIONS, PRESETS, Protocol


def test_the_presets_differ_in_every_quirk_and_nothing_else():
    tam, clean = Protocol.preset("tam"), Protocol.preset("clean")
    assert Protocol() == tam
    assert (tam.match, tam.merge, tam.end_token, tam.mismatch) == ("any", "list", "glue", "skip")
    assert (clean.match, clean.merge, clean.end_token, clean.mismatch) == ("exact", "words", "drop", "score")
    assert tam.subword == clean.subword == "max"
    assert (tam.rouge, tam.masks, tam.empty, tam.background) == ("rouge", "grey", "nan", "drop")
    assert (clean.rouge, clean.masks, clean.empty, clean.background) == ("rouge-score", "ids", "zero", "noun")
    assert [f.name for f in fields(Protocol)] == list(OPTIONS)


def test_text_and_plain_data_read_back():
    for name in PRESETS:
        for option, values in OPTIONS.items():
            for value in values:
                protocol = replace(Protocol.preset(name), **{option: value})
                assert Protocol.parse(str(protocol)) == protocol
                assert Protocol.from_dict(json.loads(json.dumps(protocol.to_dict()))) == protocol
    assert str(Protocol.parse(" tam , subword = mean ")) == "tam,subword=mean"
    assert str(Protocol.parse("subword=first,match=synonyms")) == "tam,match=synonyms,subword=first"
    assert Protocol.parse("clean").to_dict()["preset"] == "clean"


def test_a_run_of_a_time_with_fewer_options_is_told_as_what_it_did():
    data = Protocol.preset("tam").to_dict()
    for option in ("rouge", "masks", "empty", "background"):
        del data[option]
    assert Protocol.from_dict(data) == replace(Protocol.preset("clean"), **data_of(data))
    assert "rouge=rouge-score" in str(Protocol.from_dict(data))


def data_of(data):
    return {name: value for name, value in data.items() if name in OPTIONS}


def test_a_description_says_what_every_option_does():
    lines = Protocol.parse("tam,subword=mean").describe().splitlines()
    assert lines[0] == "protocol tam,subword=mean"
    assert len(lines) == 1 + len(OPTIONS)
    assert "  subword=mean: the mean over a word's tokens" in lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tan", "no protocol 'tan'; there are tam, clean. Did you mean 'tam'"),
        ("", "no protocol ''"),
        ("tam,subwrod=max", "no option 'subwrod'; it has .*Did you mean 'subword'"),
        ("tam,subword=men", "subword must be one of max, mean, first, not 'men'. Did you mean 'mean'"),
        ("tam,clean", "as name=value, such as subword=mean, not 'clean'"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(InputError, match=message):
        Protocol.parse(text)
