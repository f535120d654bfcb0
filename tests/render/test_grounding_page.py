"""The page: seen and guessed words, a word compared with what could have been said, and images turned grey."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import ercr
from ercr.render.overlay import is_warm, overlay_word
from ercr.render.pack import pack
from tests.render.made import explanation, photo

RED, BLUE = ((170, 90, 60), (60, 110, 190))


@pytest.fixture(scope="module")
def made():
    return explanation(
        grounded=True, others=3, image=photo((20, 28)).resize((560, 400), resample=Image.Resampling.BICUBIC)
    )


@pytest.fixture
def shown(made, open_page):
    return open_page(made.to_html(which="dog"))


def plain(colour) -> Image.Image:
    return Image.new("RGB", (130, 90), colour)


def saved(shown) -> Image.Image:
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Save").click()
    return Image.open(io.BytesIO(download.value.path().read_bytes())).convert("RGB")


def apart(found: Image.Image, expected: Image.Image) -> float:
    """Mean difference of pixels, at the expected picture's size."""
    smaller = found.resize(expected.size, resample=Image.Resampling.BOX)
    return float(np.abs(np.asarray(smaller, float) - np.asarray(expected, float)).mean())


def test_words_are_tinted_by_how_they_were_seen_and_guessed_ones_are_marked_without_colour(made, shown):
    words = shown.page.locator(".said .word")
    found = words.evaluate_all(
        "nodes => nodes.map((n) => [n.textContent, n.className.includes('guess'), n.ariaDescription])"
    )
    assert [(text, mark) for text, mark, _ in found] == [
        (word.text, word.grounding.content and word.grounding.verdict == "guessed") for word in made.words
    ]
    assert {described for _, mark, described in found if mark} == {"probably guessed"}
    line = shown.word("red").evaluate("node => getComputedStyle(node).textDecorationLine")
    assert line == "underline"
    colours = words.evaluate_all("nodes => nodes.map((n) => n.style.backgroundColor)")
    tints = dict(zip((word.text for word in made.words), colours, strict=True))
    same = {word.text: tints[word.text] for word in made.words if word.grounding.seen == made.words[0].grounding.seen}
    assert len(set(same.values())) == 1
    assert tints["red"] != tints["small"]


def test_the_parts_of_the_verdict_are_told(made, shown):
    card, grounding = shown.page.locator(".card"), made.word("dog").grounding
    assert card.locator("summary").inner_text().find(f"{grounding.verdict} {grounding.seen:.2f}") > 0
    told = card.get_by_role("list", name="What speaks for it").get_by_role("listitem").all_inner_texts()
    numbers = [line.split("\n")[-1].replace("−", "-") for line in told]
    assert numbers[:3] == [f"{grounding.seen:.2f}", f"{grounding.image_effect['text']:+.1f}", str(grounding.lens_rank)]
    shown.word("and").hover()
    shown.settle()
    assert "names nothing" in card.inner_text()


def test_another_words_map_and_the_difference_are_the_librarys(made, shown):
    shown.page.get_by_role("radio", name="other1", exact=True).check()
    shown.settle()
    assert shown.page.get_by_text("“dog” rather than “other1”").is_visible()
    assert apart(saved(shown), made.overlay_contrast("dog", " other1")) < 3.5
    shown.page.get_by_role("radio", name="Its own map", exact=True).check()
    shown.settle()
    assert shown.page.get_by_text("Evidence for “other1” in place of “dog”").is_visible()
    assert apart(saved(shown), overlay_word(made, made.instead("dog", " other1"))) < 3.5
    shown.page.get_by_role("radio", name="dog", exact=True).check()
    shown.settle()
    assert apart(saved(shown), made.overlay("dog")) < 3.5


def test_choosing_another_word_goes_back_to_what_was_said(shown):
    shown.page.get_by_role("radio", name="other0", exact=True).check()
    shown.settle()
    shown.word("house").click()
    shown.settle()
    assert shown.page.get_by_text("Evidence for “house”").is_visible()
    assert shown.page.get_by_role("radio", name="house", exact=True).is_checked()


def test_candidates_need_no_mouse_and_are_announced(shown):
    shown.page.get_by_role("radio", name="dog", exact=True).focus()
    shown.page.keyboard.press("ArrowRight")
    shown.settle()
    assert shown.page.get_by_text("“dog” rather than “other0”").is_visible()
    wanted = "dog rather than other0"
    shown.page.wait_for_function(f"() => document.querySelector('[role=status]').textContent.includes('{wanted}')")


@pytest.mark.parametrize(("colour", "grey"), [(RED, True), (BLUE, False)], ids=["warm", "cold"])
def test_images_in_the_colours_of_heat_are_shown_in_grey_until_the_switch_is_used(colour, grey, open_page):
    made = explanation(image=plain(colour))
    assert is_warm(made.image.rgb) == grey == pack([made])["images"][0]["warm"]
    shown = open_page(made.to_html(which="dog"))
    switch, filtered = shown.page.get_by_label("Image in grey"), "node => node.style.filter"
    assert switch.is_checked() == grey
    assert (shown.page.locator("figure img").evaluate(filtered) == "grayscale(1)") == grey
    assert apart(saved(shown), made.overlay("dog")) < 3.5
    switch.click()
    shown.settle()
    assert (shown.page.locator("figure img").evaluate(filtered) == "grayscale(1)") != grey
    assert apart(saved(shown), made.overlay("dog", grey=not grey)) < 3.5


def test_a_weak_word_is_not_lit_up_like_a_strong_one(open_page):
    """Maps are stretched to 1 each; what they were before decides how they look."""
    made = explanation(method="cam", image=plain((120, 120, 120)))
    made.maps = made.maps / made.maps.max((1, 2), keepdims=True)
    dog = next(token.row for token in made.tokens if token.text == " dog")
    made.strength = np.where(np.arange(len(made.maps)) == dog, 20, 2).astype(np.float32)
    strong, weak = (np.asarray(made.overlay(word), float) for word in ("dog", "house"))
    assert made.word("house").evidence == made.word("dog").evidence == 1
    assert strong.max() > 1.5 * weak.max()


def test_methods_share_what_was_seen_and_keep_their_own_strengths(open_page):
    made = [explanation(method=name, seed=i, grounded=True, others=2) for i, name in enumerate(("ercr", "cam"))]
    shown = open_page(ercr.compare(made, "dog").to_html())
    tint = "node => node.style.backgroundColor"
    before = shown.word("house").evaluate(tint)
    shown.page.get_by_role("radio", name="cam", exact=True).check()
    shown.settle()
    assert shown.word("house").evaluate(tint) == before
    assert f"strength {made[1].word('dog').strength:.2f}" in shown.page.locator(".card summary").inner_text()
    shown.page.get_by_role("radio", name="other1", exact=True).check()
    shown.settle()
    assert shown.page.locator(".shown").all_text_contents() == ["ercr", "cam"]
