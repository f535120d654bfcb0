"""The page in a browser: pointing, keeping, phrases, steps, colours, saving."""

from __future__ import annotations

import base64
import io
import re
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

import ercr
from ercr.image.geometry import STRAIGHT
from ercr.render.overlay import overlay
from tests.render.made import explanation, photo, with_seams


@pytest.fixture(scope="module")
def made():
    return explanation()


@pytest.fixture
def shown(made, open_page):
    return open_page(made.to_html(which="dog"))


def chosen(shown) -> list[str]:
    return shown.page.locator(".word.on").all_text_contents()


def share(word) -> str:
    return f"{100 * word.share:.0f} %"


def kept(shown) -> list[str]:
    return shown.page.locator('.word[aria-selected="true"]').all_text_contents()


def test_it_opens_at_the_asked_word_or_at_the_strongest(made, shown, open_page):
    assert kept(shown) == ["dog"]
    assert shown.page.get_by_text("Evidence for “dog”").is_visible()
    strongest = max(made.words, key=lambda word: word.strength).text
    assert kept(open_page(made.to_html())) == [strongest]
    assert kept(open_page(made.to_html(which="small dog"))) == ["small", "dog"]


def test_hovering_shows_a_words_map_and_leaving_returns_to_the_kept_one(shown):
    dog = shown.layer()
    shown.word("house").hover()
    shown.settle()
    house = shown.layer()
    assert house != dog
    assert chosen(shown) == ["house"]
    assert kept(shown) == ["dog"]
    shown.page.mouse.move(2, 2)
    shown.settle()
    assert shown.layer() == dog
    assert chosen(shown) == ["dog"]


def test_a_click_keeps_a_word_and_a_second_click_lets_it_go(shown):
    shown.word("kangaroo").click()
    shown.page.mouse.move(2, 2)
    shown.settle()
    assert chosen(shown) == kept(shown) == ["kangaroo"]
    shown.word("kangaroo").click()
    shown.page.mouse.move(2, 2)
    shown.settle()
    assert chosen(shown) == kept(shown) == []
    assert clear(shown)


def clear(shown) -> bool:
    """Whether nothing lies over the image."""
    layer = Image.open(io.BytesIO(base64.b64decode(shown.layer().split(b",", 1)[1])))
    return not np.asarray(layer)[..., 3].any()


def test_shift_click_and_the_phrase_box_select_a_phrase(shown):
    shown.word("red").click()
    shown.word("beside").click(modifiers=["Shift"])
    shown.settle()
    assert kept(shown) == ["red", "kangaroo", "beside"]
    assert shown.page.get_by_text("Evidence for “red kangaroo beside”").is_visible()
    shown.word("A").click(modifiers=["Shift"])
    shown.settle()
    assert kept(shown) == ["A", "red"]
    shown.page.get_by_label("Clicks make a phrase").check()
    shown.word("kangaroo").click()
    shown.settle()
    assert kept(shown) == ["red", "kangaroo"]


def test_shift_click_takes_the_focus_along_so_that_one_place_is_outlined(shown):
    shown.word("A").click()
    shown.word("red").click(modifiers=["Shift"])
    shown.settle()
    assert shown.page.evaluate("() => document.activeElement.textContent") == "red"
    assert kept(shown) == chosen(shown) == ["A", "red"]


def test_the_subtracted_share_is_not_called_evidence(shown):
    shown.page.get_by_role("radio", name="− context", exact=True).check()
    shown.settle()
    assert shown.page.get_by_text("Subtracted from “dog”").is_visible()
    assert re.search(r"subtracted \d+ %", shown.page.locator(".card summary").inner_text())


def test_a_phrase_does_not_cross_from_the_prompt_into_the_answer(shown):
    shown.word("this").click()
    shown.word("red").click(modifiers=["Shift"])
    shown.settle()
    assert kept(shown) == ["red"]


def test_the_keyboard_does_all_of_it(shown):
    answer = shown.page.get_by_role("listbox", name="Answer")
    shown.word("A").focus()
    shown.page.keyboard.press("ArrowRight")
    shown.settle()
    assert chosen(shown) == ["red"]
    shown.page.keyboard.press("Enter")
    shown.settle()
    assert kept(shown) == ["red"]
    shown.page.keyboard.press("Shift+ArrowRight")
    shown.page.keyboard.press("Shift+ArrowRight")
    shown.settle()
    assert kept(shown) == chosen(shown) == ["red", "kangaroo", "beside"]
    shown.page.keyboard.press("End")
    shown.settle()
    assert chosen(shown) == ["."]
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press("ArrowLeft")
    shown.settle()
    assert chosen(shown) == ["A"]
    shown.page.keyboard.press("Escape")
    shown.page.keyboard.press("Tab")
    shown.settle()
    assert chosen(shown) == kept(shown) == []
    assert answer.locator('[tabindex="0"]').count() == 1


def test_up_and_down_move_by_lines(open_page):
    shown = open_page(explanation([f" word{i}" for i in range(60)]).to_html(which="word0"))
    shown.word("word3").focus()
    shown.page.keyboard.press("ArrowDown")
    at = "() => { const box = document.activeElement.getBoundingClientRect(); return [box.x + box.width / 2, box.y]; }"
    below = shown.page.evaluate(at)
    shown.page.keyboard.press("ArrowUp")
    back = shown.page.evaluate(at)
    assert below[1] > back[1]
    assert abs(below[0] - back[0]) < 60
    assert shown.page.evaluate("() => document.activeElement.textContent") == "word3"


def test_arrows_follow_the_direction_of_the_script(open_page):
    shown = open_page(explanation(["كلب", " صغير", " أحمر"]).to_html())
    shown.word("كلب").focus()
    shown.page.keyboard.press("ArrowLeft")
    shown.settle()
    assert chosen(shown) == ["صغير"]
    first, second = (shown.word(text).bounding_box()["x"] for text in ("كلب", "صغير"))
    assert second < first


def test_steps_show_what_each_did_and_tints_do_not_depend_on_them(made, shown):
    layers, tints, marks = {}, {}, {}
    for step in ("ER", "− context", "ERCR"):
        shown.page.get_by_role("radio", name=step, exact=True).check()
        shown.settle()
        layers[step] = shown.layer()
        tints[step] = shown.word("house").evaluate("node => node.style.backgroundColor")
        marks[step] = shown.page.locator(".word.context").all_text_contents()
    assert len(set(layers.values())) == 3
    assert len(set(tints.values())) == 1
    assert marks["ER"] == marks["ERCR"] == []
    before = [w.text for w in made.prompt_words] + [w.text for w in made.words[: made.word("dog").index]]
    assert marks["− context"] == before


def test_methods_without_steps_offer_none(open_page):
    shown = open_page(explanation(method="cam").to_html())
    assert shown.page.get_by_text("Step of the method").count() == 0
    assert shown.page.get_by_text("Method cam subtracts nothing.").is_visible()


def test_named_earlier_steps_are_offered_in_order(open_page):
    staged = explanation()
    rng = np.random.default_rng(5)
    staged.stages["raw"] = rng.random(staged.maps.shape, np.float32) * 7
    shown = open_page(staged.to_html())
    options = shown.page.locator(".controls .choice label").all_text_contents()
    assert options == ["Raw", "ER", "− context", "ERCR"]


def test_opacity_and_colours_repaint(shown):
    seen = [shown.layer()]
    shown.page.get_by_label("Opacity").fill("0.3")
    shown.settle()
    seen.append(shown.layer())
    shown.page.get_by_label("Colours").select_option("cividis")
    shown.settle()
    seen.append(shown.layer())
    assert len(set(seen)) == 3
    shown.page.get_by_label("Opacity").fill("0")
    shown.settle()
    assert clear(shown)


def test_numbers_candidates_and_context_are_told(made, shown):
    word = made.word("dog")
    card = shown.page.locator(".card")
    assert f"strength {word.strength:.2f} ({share(word)}), probability {word.probability:.2f}" in card.inner_text()
    beta, entries = made.context("dog")
    assert f"β {beta:.2f} times the mean map of {len(entries)} earlier tokens" in card.inner_text()
    candidates = card.get_by_role("list", name="Candidates").get_by_role("listitem")
    assert candidates.count() == len(word.tokens[0].candidates)
    assert candidates.first.inner_text().split() == ["dog", f"{word.tokens[0].candidates[0].probability:.2f}"]
    shown.word("kangaroo").hover()
    shown.settle()
    assert "aroo" in card.inner_text()
    assert f"probability {made.word('kangaroo').probability:.2f}" in card.inner_text()


def test_a_reader_hears_the_word_its_numbers_and_the_place(made, shown):
    shown.word("house").focus()
    shown.page.keyboard.press("ArrowLeft")
    shown.page.keyboard.press("ArrowRight")
    status = shown.page.get_by_role("status")
    shown.page.wait_for_function("() => document.querySelector('[role=status]').textContent.startsWith('house')")
    rows, columns = made.geometry.grid
    row, column = np.unravel_index(made.word("house").map.argmax(), (rows, columns))
    upright = ("top", "middle", "bottom")[int(3 * (row + 0.5) / rows)]
    across = ("left", "centre", "right")[int(3 * (column + 0.5) / columns)]
    place = "centre" if (upright, across) == ("middle", "centre") else f"{upright} {across}"
    assert f"strength {made.word('house').strength:.2f}" in status.text_content()
    assert f"strongest at the {place}" in status.text_content()


CROP, PAD = (20.0, 0.0, 110.0, 90.0), (0.0, -20.0, 130.0, 110.0)  # what the model's canvas covers
ASIDE = (Fraction(1, 4), Fraction(-2, 5))  # the tower looks below and to the left of its cells' middles
CASES = {
    "all": (None, STRAIGHT, "dog"),
    "crop": (CROP, STRAIGHT, "dog"),
    "pad": (PAD, STRAIGHT, "dog"),
    "phrase": (None, STRAIGHT, "small dog"),
    "lean": (None, ASIDE, "dog"),
    "seams": ("seams", STRAIGHT, "dog"),
}


@pytest.mark.parametrize(("box", "lean", "which"), CASES.values(), ids=CASES)
def test_the_saved_picture_is_the_librarys_overlay(box, lean, which, open_page):
    """Saved at twice the picture's size or more, so the overlay is computed there; the picture itself is lossless."""
    if box == "seams":
        made = explanation(image=photo((400, 560)), spans=with_seams((6, 400), (9, 560)))
    else:
        made = explanation(image=photo((400, 560)), box=box and tuple(v * 560 / 130 for v in box), lean=lean)
    shown = open_page(made.to_html(which=which))
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Save").click()
    assert download.value.suggested_filename == f"{which.replace(' ', '-')}-ercr-evidence.png"
    saved = Image.open(download.value.path()).convert("RGB")
    times = saved.width // 560
    large = made.image.rgb.resize(saved.size, resample=Image.Resampling.BILINEAR)
    heat = made.geometry.to_pixels(made.word(which).lit, saved.size[::-1])
    seen = np.kron(made.geometry.seen_pixels(), np.ones((times, times))) > 0
    expected = np.asarray(overlay(large, heat, seen, 0.7, "inferno"), float)
    found = np.asarray(saved, float)
    apart = np.abs(found - expected)
    assert apart[seen].mean() < 3.5
    if not seen.all():
        # hatched, not lit up: grey like the overlay's, with lines of its own
        assert np.ptp(found[~seen], axis=-1).mean() < 45
        assert apart[~seen].mean() < 45


def test_several_methods_stand_side_by_side_and_move_together(open_page):
    made = [explanation(method=name, seed=i) for i, name in enumerate(("ercr", "tam", "cam"))]
    shown = open_page(ercr.compare(made, "dog").to_html())
    assert shown.page.locator("figure").count() == 3
    assert shown.page.get_by_role("listbox", name="Answer").count() == 1
    before = [shown.layer(i) for i in range(3)]
    shown.word("house").hover()
    shown.settle()
    captions = shown.page.locator(".shown").all_text_contents()
    assert captions == [f"{e.provenance['method']}: {share(e.word('house'))}" for e in made]
    assert all(shown.layer(i) != before[i] for i in range(3))
    tint = shown.word("house").evaluate("node => node.style.backgroundColor")
    shown.page.get_by_role("radio", name="tam", exact=True).check()
    shown.settle()
    assert shown.word("house").evaluate("node => node.style.backgroundColor") != tint
    shown.page.get_by_role("radio", name="Evidence", exact=True).check()
    shown.settle()
    assert shown.page.locator(".shown").nth(2).text_content() == "cam: has no such step"


def test_different_answers_stand_below_each_other(open_page):
    made = [explanation(), explanation(["Two", " dogs", "."], seed=1)]
    shown = open_page(ercr.compare(made).to_html())
    assert shown.page.get_by_role("listbox", name="Answer").count() == 2
    assert len(kept(shown)) == 2
    shown.word("dogs").hover()
    shown.settle()
    assert "dogs" in chosen(shown)


def test_an_answer_of_nothing_is_a_page_too(open_page):
    shown = open_page(explanation([]).to_html())
    assert shown.page.get_by_text("The model said nothing.").is_visible()


def test_touch_keeps_a_word(made, open_page):
    shown = open_page(made.to_html(which="dog"), width=360, height=740, has_touch=True, is_mobile=True)
    assert shown.page.get_by_text("Tap").is_visible()
    shown.word("house").tap()
    shown.settle()
    assert chosen(shown) == kept(shown) == ["house"]


@pytest.mark.parametrize("size", [(360, 640), (1000, 420)])
def test_words_do_not_show_beside_what_stays_in_place(size, open_page):
    """Tints stand out of their column; what they scroll beneath must hide that, too."""
    made = explanation(["Red", *[" bricks"] * 90])
    shown = open_page(made.to_html(), width=size[0], height=size[1])
    paint = "words => words.forEach((word) => word.style.setProperty('background', 'rgb(255 0 0)', 'important'))"
    shown.page.locator(".said .word").evaluate_all(paint)
    panel = ".figures" if size[0] < 620 else ".card"
    shown.page.mouse.wheel(0, 260)
    shown.settle()
    box = shown.page.locator(panel).bounding_box()
    strip = {"x": box["x"] - 8, "y": box["y"] + 12, "width": 8, "height": min(box["height"], size[1] - box["y"]) - 24}
    pixels = np.asarray(Image.open(io.BytesIO(shown.page.screenshot(clip=strip))).convert("RGB"))
    assert (pixels == pixels[0, 0]).all()


def test_the_notebooks_frames_do_not_touch_each_other(made, open_page):
    other = explanation(["Two", " dogs", "."], seed=1)
    shown = open_page(f"<!doctype html><title>x</title>{made._repr_html_()}{other._repr_html_()}")
    frames = [shown.page.frame_locator("iframe").nth(i) for i in range(2)]
    frames[0].get_by_role("option", name="house", exact=True).click()
    frames[1].get_by_role("option", name="dogs", exact=True).click()
    assert frames[0].locator('.word[aria-selected="true"]').all_text_contents() == ["house"]
    assert frames[1].locator('.word[aria-selected="true"]').all_text_contents() == ["dogs"]
    with shown.page.expect_download() as download:
        frames[1].get_by_role("button", name="Save").click()
    assert download.value.suggested_filename == "dogs-ercr-evidence.png"
