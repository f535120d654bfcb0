"""Maps of words that were not said equal those of explaining them in the same place, and their difference is kept."""

from __future__ import annotations

import numpy as np
import pytest

import ercr
from ercr.errors import InputError, WordNotFound

PROMPT, ANSWER = "Describe this image.", "a dog and a cat on a sofa"


@pytest.mark.parametrize("family", ["qwen2_vl", "internvl"])
@pytest.mark.parametrize("method", ["ercr", "ercr:context=tam,normalize=joint", "contrast", "tam", "cam"])
def test_a_candidates_map_is_that_of_the_answer_with_it(load, picture, family, method):
    explainer = load(family)
    found = explainer.explain(picture, PROMPT, answer=ANSWER, method=method, candidates=["umbrella"])
    instead, ids = found.alternatives, [token.id for token in found.text_tokens if token.kind == "answer"]
    assert instead.ids.shape == (len(ids), 5)
    for row in (1, len(ids) - 1):
        for column in (0, 3, 4):
            token = int(instead.ids[row, column])
            other = explainer.explain(picture, PROMPT, answer=[*ids[:row], token], method=method)
            np.testing.assert_allclose(instead.maps[row, column], other.maps[-1], atol=2e-5)
            np.testing.assert_allclose(instead.strength[row, column], other.strength[-1], rtol=1e-4, atol=1e-6)


def test_the_contrast_is_the_difference_in_the_methods_unit(load, picture):
    found = load("llava").explain(picture, PROMPT, answer=ANSWER, method="cam", candidates=["sofa"])
    dog, sofa = found.word("dog"), found.instead("dog", "sofa")
    contrast = found.contrast("dog", "sofa")
    row = dog.tokens[0].row
    top = max(found.strength[row], sofa.strength)
    ours = found.maps[row] * found.strength[row] / max(found.maps[row].max(), 1e-9)
    theirs = sofa.map * sofa.strength / max(sofa.map.max(), 1e-9)
    np.testing.assert_allclose(contrast.map, (ours - theirs) / top, atol=1e-6)
    assert contrast.word == "dog"
    assert contrast.other == "sofa"
    own = found.contrast("dog", found.alternatives.texts[row - found.alternatives.first][0])
    assert own.strength == contrast.strength


def test_a_file_keeps_what_could_have_been_said(load, picture, tmp_path):
    found = load("llava").explain(picture, PROMPT, answer=ANSWER, candidates=True)
    found.save(tmp_path / "x.ercr")
    kept = ercr.load(tmp_path / "x.ercr")
    np.testing.assert_array_equal(kept.alternatives.maps, found.alternatives.maps)
    np.testing.assert_array_equal(kept.strength, found.strength)
    assert kept.alternatives.texts == found.alternatives.texts
    assert [word.share for word in kept.words] == [word.share for word in found.words]


def test_what_is_not_there_is_said_with_the_way_to_it(load, picture):
    explainer = load("llava")
    plain = explainer.explain(picture, PROMPT, answer=ANSWER)
    with pytest.raises(InputError, match="candidates=True"):
        plain.contrast("dog", "cat")
    some = explainer.explain(picture, PROMPT, answer=ANSWER, candidates=True)
    with pytest.raises(WordNotFound, match=r"candidates=\['xylophone'\]"):
        some.contrast("dog", "xylophone")
    with pytest.raises(InputError, match="cannot make maps of words that were not said"):
        explainer.explain(picture, PROMPT, answer=ANSWER, method="attention", candidates=["cat"])
    assert explainer.explain(picture, PROMPT, answer=ANSWER, method="attention", candidates=True).alternatives is None
