"""The page in a real browser: upload, watch, read, keep; and what a hostile or careless visitor does."""

from __future__ import annotations

import re

import pytest
from PIL import Image

import ercr

pytestmark = pytest.mark.slow
PATIENCE = 90_000  # milliseconds; the first answer waits for the model to be loaded
# what was on screen at any time: words and maps are replaced by the report in the end
WATCH = """() => {
  window.seen = { said: [], maps: 0 };
  new MutationObserver(() => {
    const said = document.querySelector("#answer .said")?.innerText;
    if (said && said !== window.seen.said.at(-1)) window.seen.said.push(said);
    window.seen.maps = Math.max(window.seen.maps, document.querySelectorAll("#maps figure img").length);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def choose(page, path):
    page.set_input_files("#image input[type=file]", path)
    page.wait_for_selector("#image img")


def explain(page):
    page.click("#explain")
    page.wait_for_selector("#report iframe", timeout=PATIENCE)


def report(page):
    """The report's document, inside its frame."""
    frame = page.frame_locator("#report iframe")
    frame.locator(".said .word").first.wait_for(timeout=PATIENCE)
    return frame


def test_the_answer_is_spoken_word_by_word_with_its_maps(visit, scene_file):
    def act(page):
        page.evaluate(WATCH)
        choose(page, scene_file)
        explain(page)
        return page.evaluate("window.seen"), report(page).locator(".said").inner_text()

    seen, said = visit(act)
    whole = ercr.Explainer.from_pretrained("scenes-qwen2vl").explain(scene_file, "Describe this image.")
    assert " ".join(said.split()) == whole.text
    spoken = [" ".join(text.split()) for text in seen["said"]]
    assert len(spoken) >= 2
    assert spoken[-1] == whole.text
    assert all(whole.text.startswith(text) for text in spoken)
    assert seen["maps"] == sum(any(map(str.isalnum, word.text)) for word in whole.words)


def test_several_pictures_are_shown_side_by_side(visit, scene_file, tmp_path):
    Image.open(scene_file).rotate(90, expand=True).save(tmp_path / "other.png")

    def act(page):
        choose(page, scene_file)
        page.click("#several > button")
        page.set_input_files("#files input[type=file]", tmp_path / "other.png")
        page.wait_for_selector("#files .file-preview")
        explain(page)
        return report(page).locator(".which").all_inner_texts(), page.locator("#answer").inner_text()

    pieces, said = visit(act)
    assert [text.split("\n")[0] for text in pieces] == ["Picture 1", "Picture 2"]
    assert "explained in" in said


def test_results_can_be_kept(visit, scene_file, tmp_path):
    def act(page):
        choose(page, scene_file)
        explain(page)
        for label in ("Report (HTML)", "Data (.ercr)", "Picture (PNG)"):
            with page.expect_download() as download:
                page.get_by_role("link", name=label).click()
            download.value.save_as(tmp_path / download.value.suggested_filename)

    visit(act)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "explanation.ercr", "evidence.png"}
    loaded = ercr.load(tmp_path / "explanation.ercr")
    assert loaded.image.to_bytes() == scene_file.read_bytes()
    assert loaded.provenance["method"] == "ercr"


def test_two_methods_and_a_sentence_of_ones_own(visit, scene_file):
    def act(page):
        choose(page, scene_file)
        page.fill("#sentence textarea", "A cat and an elephant.")
        page.click("#more button")
        page.click("#other input")
        page.get_by_role("option", name=re.compile("^tam")).click()
        explain(page)
        shown = report(page)
        return shown.locator(".said").inner_text(), shown.locator("figcaption").all_inner_texts()

    said, captions = visit(act)
    assert " ".join(said.split()) == "A cat and an elephant."
    assert [caption.split(":")[0] for caption in captions] == ["ercr", "tam"]


def test_a_bad_file_is_explained_and_taken_away(visit, bad_files):
    def act(page):
        for says, path in bad_files.items():
            page.set_input_files("#image input[type=file]", path)
            page.locator("#trouble .note").filter(has_text=says).wait_for()
            page.locator("#image img").wait_for(state="detached")
        page.click("#explain")
        page.locator(".toast-body").filter(has_text="There is no picture yet").wait_for()
        page.locator("#trouble .note").wait_for()
        page.get_by_label("Drawn example 1").click()
        page.wait_for_selector("#image img")
        page.locator("#trouble .note").wait_for(state="detached")

    visit(act)


def test_a_failure_takes_the_place_of_what_was_promised(visit, tmp_path):
    flat = tmp_path / "flat.png"
    Image.new("RGB", (3000, 2)).save(flat)

    def act(page):
        choose(page, flat)
        page.click("#explain")
        page.locator(".toast-body").filter(has_text="crop it").wait_for(timeout=PATIENCE)
        page.locator("#answer .trouble").filter(has_text="crop it").wait_for()

    visit(act)


def test_on_a_phone_what_is_wrong_with_a_file_comes_into_view(visit, bad_files):
    def act(page):
        page.set_input_files("#image input[type=file]", bad_files["not a picture"])
        page.locator("#trouble .note").wait_for()
        page.wait_for_function("document.querySelector('#trouble .note').getBoundingClientRect().bottom <= innerHeight")

    visit(act, viewport={"width": 360, "height": 740})


def test_markup_in_a_prompt_is_text_everywhere(visit, scene_file):
    hostile = "<img src=x onerror=alert(1)></script><script>alert(2)</script> \"'&lt;"

    def act(page):
        choose(page, scene_file)
        page.fill("#prompt textarea", hostile)
        explain(page)
        asked = report(page).locator(".asked").inner_text()
        page.fill("#prompt textarea", hostile * 40)  # the page cuts it; the message of a refusal could quote it
        return asked

    assert "".join(visit(act).split()) == "".join(hostile.split())


def test_two_visitors_at_once_get_their_own_answers(visit, scene_file, tmp_path):
    from ercr.datasets.scenes import scene

    other = tmp_path / "other.png"
    scene(3).image.save(other)

    def act(first, second):
        choose(first, scene_file)
        choose(second, other)
        first.click("#explain")
        second.click("#explain")
        for page in (first, second):
            page.wait_for_selector("#report iframe", timeout=PATIENCE)
        return [" ".join(report(page).locator(".said").inner_text().split()) for page in (first, second)]

    explainer = ercr.Explainer.from_pretrained("scenes-qwen2vl")
    expected = [explainer.explain(path, "Describe this image.").text for path in (scene_file, other)]
    assert visit(act, users=2) == expected


def test_an_example_and_the_camera_work_from_the_keyboard(visit):
    def act(page):
        page.locator("#examples button").nth(1).focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#image img")
        page.focus("#prompt textarea")
        page.keyboard.press("Enter")
        page.wait_for_selector("#report iframe", timeout=PATIENCE)
        drawn = report(page).locator(".said").inner_text()
        page.reload()
        page.get_by_label("Capture from camera").press("Enter")
        page.get_by_text("Click to Access Webcam").click()
        page.wait_for_function("document.querySelector('#image video')?.videoWidth > 0")
        page.get_by_label("capture photo").click()
        page.wait_for_selector("#image img:visible")
        explain(page)
        return drawn, report(page).locator(".picture img").first.evaluate("image => image.naturalWidth")

    drawn, width = visit(act)
    assert drawn
    assert width > 100


@pytest.mark.parametrize("width", [360, 1024, 2560])
def test_nothing_is_wider_than_the_window(visit, scene_file, width):
    def act(page):
        choose(page, scene_file)
        explain(page)
        return page.evaluate("document.documentElement.scrollWidth"), page.locator("#report iframe").bounding_box()

    total, frame = visit(act, viewport={"width": width, "height": 800}, color_scheme="dark")
    assert total <= width
    assert frame["width"] >= min(width - 40, 600)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_aloud_and_has_contrast(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core comes with this package").Axe()

    def act(page):
        page.get_by_label("Drawn example 1").click()
        page.wait_for_selector("#image img")
        page.click("#more button")
        explain(page)
        report(page)
        return axe.run(page).response["violations"]

    assert [(found["id"], found["nodes"][0]["html"]) for found in visit(act, color_scheme=scheme)] == []
