"""Pages of several pictures, clips and conversations, in the browser."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import ercr
from ercr.render.pack import pack
from ercr.render.picture import frames
from tests.render.made import ANSWER, PROMPT, photo, pieces

KINDS = {"pair": ("picture", "picture"), "clip": ("clip",), "mixed": ("picture", "clip"), "five": ("picture",) * 5}
CHAT = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Describe this"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "image."}]},
    {
        "role": "user",
        "content": [{"type": "text", "text": "More,"}, {"type": "image"}, {"type": "text", "text": "please."}],
    },
]
ASKED = ("Describe", " this", " image", ".", " More", ",", " please", ".")


def made(kind, **options):
    if kind == "chat":
        return pieces("picture", "picture", prompt=ASKED, conversation=CHAT, **options)
    return pieces(*KINDS[kind], **options)


def slider(shown):
    return shown.page.get_by_role("slider", name="Moment of")


def saved(shown) -> Image.Image:
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Save").click()
    return Image.open(io.BytesIO(download.value.path().read_bytes())).convert("RGB")


def apart(found: Image.Image, expected: Image.Image) -> float:
    smaller = found.resize(expected.size, resample=Image.Resampling.BOX)
    return float(np.abs(np.asarray(smaller, float) - np.asarray(expected, float)).mean())


@pytest.mark.parametrize("kind", [*KINDS, "chat"])
@pytest.mark.parametrize("width", [390, 820, 1440])
def test_axe_finds_nothing_serious_and_nothing_sticks_out(kind, width, open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core comes with this package").Axe()
    shown = open_page(made(kind).to_html(), width=width, scheme="dark" if width == 820 else "light")
    assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width
    for box in (picture.bounding_box() for picture in shown.page.locator(".picture").all()):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["width"] / box["height"] == pytest.approx(128 / 96, rel=0.05)
    shown.page.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    violations = axe.run(shown.page).response["violations"]
    assert [(v["id"], v["impact"], [n["target"] for n in v["nodes"]][:3]) for v in violations] == []


@pytest.mark.parametrize("kind", ["pair", "five"])
def test_the_share_of_every_picture_is_the_librarys(kind, open_page):
    found = made(kind)
    shown = open_page(found.to_html())
    for number, word in enumerate(found.words):
        shown.page.get_by_role("listbox", name="Answer").get_by_role("option").nth(number).hover()
        shown.settle()
        told = shown.page.locator(".part").all_inner_texts()
        places = sorted(word.where(), key=lambda place: place.picture)
        assert [int(text.split()[0]) for text in told] == [round(100 * place.share) for place in places]


def test_pictures_side_by_side_are_lit_as_the_library_lights_them(open_page):
    found = made("pair")
    shown = open_page(found.to_html(which="dog"))
    both = saved(shown)
    one, two = (found.overlay("dog", picture=at) for at in range(2))
    assert one.size == two.size
    gap = 12 / (both.height / one.height)
    half = (both.width - 12) // 2
    assert abs(both.width / both.height - (2 * one.width + gap) / one.height) < 0.05
    assert apart(both.crop((0, 0, half, both.height)), one) < 4
    assert apart(both.crop((both.width - half, 0, both.width, both.height)), two) < 4


def test_keeping_a_word_moves_the_clip_to_its_strongest_moment(open_page):
    found = made("clip")
    shown = open_page(found.to_html(which="red"))
    for text in ("dog", "house", "small"):
        shown.word(text).click()
        shown.settle()
        start, stop = (
            max(found.word(text).where(), key=lambda place: place.share).start,
            found.word(text).where()[0].stop,
        )
        assert start <= float(slider(shown).input_value()) < stop
        name = shown.page.get_by_role("img", name="Share of the evidence for").get_attribute("aria-label")
        assert f"most from {start:.1f} to {stop:.1f} seconds" in name


def test_a_frame_is_lit_as_the_library_lights_it(open_page):
    found = made("clip")
    shown = open_page(found.to_html(which="dog"))
    for key, time in (("Home", 0.0), ("ArrowRight", 0.5), ("End", 2.5)):
        slider(shown).press(key)
        shown.settle()
        assert apart(saved(shown), found.overlay("dog", time=time)) < 4


def test_a_clip_is_moved_by_keys_and_by_clicks_on_the_curve(open_page):
    shown = open_page(made("clip").to_html(which="dog"))
    control = slider(shown)
    control.focus()
    for key, moment in (
        ("Home", "0.0"),
        ("ArrowRight", "0.5"),
        ("End", "2.5"),
        ("ArrowLeft", "2.0"),
        ("PageDown", "1.5"),
    ):
        shown.page.keyboard.press(key)
        assert control.get_attribute("aria-valuetext").startswith(f"{moment} of 3.0 seconds")
    box = shown.page.locator(".curve").bounding_box()
    shown.page.mouse.click(box["x"] + box["width"] * 0.5 / 3, box["y"] + 10)
    assert "frame 2 of 6" in control.get_attribute("aria-valuetext")
    assert "frame 2 of 6" in shown.page.locator("canvas.frame").get_attribute("aria-label")
    track = control.bounding_box()
    thumb = 16
    at = track["x"] + thumb / 2 + (track["width"] - thumb) * 2.0 / 3
    shown.page.mouse.click(at, track["y"] + track["height"] / 2)
    assert "frame 5 of 6" in control.get_attribute("aria-valuetext")
    marker = shown.page.locator(".curve .now").bounding_box()
    assert marker["x"] + marker["width"] / 2 == pytest.approx(at, abs=2)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_clip_plays_and_pauses_and_stops_by_itself_where_motion_is_reduced(motion, open_page):
    shown = open_page(made("clip", frames=4).to_html(which="dog"), reduced_motion=motion)
    assert shown.page.get_by_role("button", name="Pause").count() == 0  # nothing moves by itself
    slider(shown).press("Home")
    shown.page.get_by_role("button", name="Play clip").press("Enter")
    shown.page.wait_for_function("() => document.querySelector('.moment').textContent.includes('frame 3')")
    shown.page.get_by_role("button", name="Pause clip").click()
    held = shown.page.locator(".moment").inner_text()
    shown.page.wait_for_timeout(700)
    assert shown.page.locator(".moment").inner_text() == held
    slider(shown).press("End")
    shown.page.get_by_role("button", name="Play clip").click()
    if motion == "reduce":
        shown.page.get_by_role("button", name="Play clip").wait_for()
    else:
        shown.page.wait_for_function("() => document.querySelector('.moment').textContent.includes('frame 4')")
        shown.page.wait_for_function("() => document.querySelector('.moment').textContent.includes('frame 1')")
        assert shown.page.get_by_role("button", name="Pause clip").is_visible()


def test_methods_show_the_same_moment(open_page):
    found = [made("clip", method=name, seed=i) for i, name in enumerate(("cam", "attention"))]
    shown = open_page(ercr.compare(found, "dog").to_html())
    slider(shown).first.press("End")
    shown.settle()
    told = shown.page.locator(".moment").all_inner_texts()
    assert told == ["2.5 s of 3.0 s, frame 6 of 6"] * 2


def test_a_conversation_is_shown_with_its_roles_and_every_word_can_be_chosen(open_page):
    found = made("chat")
    shown = open_page(found.to_html())
    turns = shown.page.locator(".turn")
    assert turns.locator("h3").all_inner_texts() == ["System", "User", "Assistant", "User"]
    assert [" ".join(text.split()) for text in turns.all_inner_texts()] == [
        "System Be brief.",
        "User Picture 1 Describe this",
        "Assistant image.",
        "User More, Picture 2 please.",
    ]
    shown.page.get_by_role("listbox", name="Assistant, turn 3").get_by_role("option", name="image").click()
    shown.settle()
    assert shown.page.get_by_text("Evidence for “image”").is_visible()
    answer = shown.page.get_by_role("listbox", name="Answer")
    assert answer.bounding_box()["y"] < shown.page.locator(".card").bounding_box()["y"]
    answer.get_by_role("option", name="dog").focus()
    shown.page.keyboard.press("Enter")
    shown.settle()
    assert shown.page.get_by_text("Evidence for “dog”").is_visible()


def test_one_prompt_is_no_conversation_and_one_picture_is_as_before(open_page):
    shown = open_page(made("pair").to_html())
    assert shown.page.locator(".turn").count() == 0
    assert pack([made("pair")])["groups"][0]["turns"] is None
    assert shown.page.get_by_role("listbox", name="Prompt").inner_text() == "".join(PROMPT)


def test_the_place_is_said_with_picture_and_time(open_page):
    found = made("mixed")
    shown = open_page(found.to_html(which="red"))
    for text in ("house", "dog", "small"):
        shown.word(text).click()
        spot = found.word(text).spot
        wanted = f"of {'picture 1' if spot.picture == 0 else 'clip 2'}"
        shown.page.wait_for_function(f"() => document.querySelector('[role=status]').textContent.includes('{wanted}')")
        told = shown.page.get_by_role("status").text_content()
        assert ("seconds" in told) == (spot.picture == 1)


def test_frames_of_long_clips_stay_small():
    many = [photo((360, 640), seed) for seed in range(40)]
    found = frames(many)
    assert len(found) == 40
    assert sum(len(frame.url) for frame in found) < 2_600_000
    assert len({frame.size for frame in found}) == 1


def test_a_saved_conversation_shows_the_same_page(tmp_path):
    found = made("chat")
    found.save(tmp_path / "x.ercr")
    assert ercr.load(tmp_path / "x.ercr").to_html() == found.to_html()
    found.provenance["conversation"][1]["role"] = "<b>"
    found.save(tmp_path / "y.ercr")
    with pytest.raises(ercr.errors.FileFormatError, match="role"):
        ercr.load(tmp_path / "y.ercr")
    found.provenance["conversation"] = [{"role": "user", "content": [{"type": "image"}] * 5}]
    turns = pack([found])["groups"][0]["turns"]
    assert turns == [{"role": "user", "parts": [{"piece": 0}, {"piece": 1}, {"words": [0, len(found.prompt_words)]}]}]


def test_hostile_texts_in_a_conversation_stay_text(open_page):
    evil = "</script><img src=x onerror=window.broken=1>"
    chat = [
        {"role": "system", "content": [{"type": "text", "text": evil}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": evil}]},
    ]
    shown = open_page(pieces("picture", "picture", answer=ANSWER, prompt=(evil,), conversation=chat).to_html())
    assert shown.page.evaluate("() => window.broken") is None
    assert evil in shown.page.locator(".turn").first.inner_text()


def test_a_notebook_shows_a_clip_that_can_be_moved(open_page):
    shown = open_page(f"<!doctype html><title>x</title>{made('mixed')._repr_html_()}")
    inside = shown.page.frame_locator("iframe")
    inside.locator(".moment").wait_for()
    inside.get_by_role("slider", name="Moment of").press("End")
    assert inside.locator(".moment").inner_text() == "2.5 s of 3.0 s, frame 6 of 6"
    inside.locator(".said .word").first.hover()
    assert inside.locator(".part").first.inner_text().endswith("of the evidence")
