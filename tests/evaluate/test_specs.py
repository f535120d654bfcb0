"""Lists of methods as people type them."""

from __future__ import annotations

import pytest

from ercr.errors import InputError
from ercr.evaluate.worker import without_context
from ercr.methods.lists import split_methods
from ercr.methods.registry import resolve


@pytest.mark.parametrize(
    ("texts", "methods"),
    [
        (["cam,tam,ercr"], ["cam", "tam", "ercr"]),
        (["ercr:context=tam,views=1,cam"], ["ercr:context=tam,views=1", "cam"]),
        (["cam, ercr:context=tam , views=1"], ["cam", "ercr:context=tam,views=1"]),
        (["ercr:views=1", "ercr:views=2,tam"], ["ercr:views=1", "ercr:views=2", "tam"]),
        (["ercr,views=1"], ["ercr:views=1"]),
        (["cam,,cam,"], ["cam"]),
    ],
)
def test_a_comma_begins_a_method_unless_a_switch_follows(texts, methods):
    assert split_methods(texts) == methods


@pytest.mark.parametrize("texts", [[], [""], ["views=1,ercr"], ["ercr", "views=1"]])
def test_a_list_without_a_method_is_refused(texts):
    with pytest.raises(InputError):
        split_methods(texts)


@pytest.mark.parametrize("spec", ["ercr", "ercr:context=tam", "ercr:views=1,context=mean"])
def test_a_partner_differs_in_nothing_but_its_context(spec):
    (method, settings), (other, plain) = resolve(spec), resolve(without_context(spec))
    assert method == other
    assert plain == type(settings)(**{**vars(settings), "context": "none"})


def test_methods_without_context_have_no_partner():
    assert without_context("cam") is without_context("ercr:context=none") is None
