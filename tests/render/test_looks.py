"""How pages stand in the browser: for screen readers, at every width, in light and dark, with hostile text."""

from __future__ import annotations

import pytest

import ercr
from tests.render.made import ANSWER, explanation, photo

LONG = ("Supercalifragilisticexpialidocious" * 4, *ANSWER * 12)
HOSTILE = (
    "<script>window.broken=1</script>",
    " </script><img",
    " src=x",
    " onerror=window.broken=1>",
    " \u202eevil\u202c",
    " \u2028\u2029x",
    " &lt;b&gt;",
    " ${1}",
    "\x00\x07",
)


def document(kind: str) -> str:
    if kind == "one":
        return explanation(box=(20.0, 0.0, 110.0, 90.0)).to_html(which="dog")
    made = [explanation(method=name, seed=i) for i, name in enumerate(("ercr", "tam", "cam", "attention"))]
    return ercr.compare(made, "dog").to_html()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["one", "compare"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_serious(kind, scheme, width, open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core comes with this package").Axe()
    shown = open_page(document(kind), width=width, scheme=scheme)
    shown.page.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    for step in ("context", "result"):
        shown.page.locator(f'input[name="stage"][value="{step}"]').check()
        shown.settle()
        violations = axe.run(shown.page).response["violations"]
        found = [(v["id"], v["impact"], [n["target"] for n in v["nodes"]][:3]) for v in violations]
        assert found == []


@pytest.mark.parametrize("kind", ["one", "compare"])
@pytest.mark.parametrize("width", [320, 360, 768, 1024, 1600, 2560])
def test_nothing_sticks_out_sideways(kind, width, open_page):
    shown = open_page(document(kind), width=width, height=800)
    assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_long_answers_wrap_and_the_image_stays_in_view(open_page):
    for width, height in ((360, 740), (1280, 800)):
        shown = open_page(explanation(LONG).to_html(), width=width, height=height)
        assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width
        shown.word("house", 9).scroll_into_view_if_needed()
        shown.word("house", 9).hover()
        shown.settle()
        picture = shown.page.locator("figure img").bounding_box()
        assert picture["y"] >= -1
        assert picture["y"] + picture["height"] <= height
        card = shown.page.locator(".card summary").bounding_box()
        assert 0 <= card["y"] <= height


@pytest.mark.parametrize(("width", "height"), [(1024, 640), (1280, 800), (2560, 1300)])
def test_beside_a_short_answer_the_card_covers_nothing(width, height, open_page):
    shown = open_page(document("one"), width=width, height=height)
    legend = shown.page.locator(".tints").bounding_box()
    card = shown.page.locator(".card").bounding_box()
    assert legend["y"] + legend["height"] <= card["y"]
    assert card["y"] + card["height"] <= height


@pytest.mark.parametrize("size", [(1600, 200), (200, 1600)], ids=["tall", "flat"])
@pytest.mark.parametrize("width", [360, 1280])
def test_images_of_any_shape_fit_the_window(size, width, open_page):
    made = explanation(image=photo(size))
    for document in (made.to_html(), ercr.compare([made, explanation(image=photo(size), method="cam")]).to_html()):
        shown = open_page(document, width=width, height=800)
        assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width
        box = shown.page.locator(".picture").first.bounding_box()
        assert 20 < box["height"] < 800
        assert box["width"] / box["height"] == pytest.approx(size[1] / size[0], rel=0.05)


@pytest.mark.parametrize(("methods", "columns"), [(("ercr", "tam"), 2), (("ercr", "tam", "cam", "attention"), 2)])
@pytest.mark.parametrize(("width", "height"), [(1024, 768), (2560, 1300)])
def test_a_small_comparison_uses_the_room_and_fits_the_window(methods, columns, width, height, open_page):
    made = [explanation(method=name, seed=i) for i, name in enumerate(methods)]
    shown = open_page(ercr.compare(made).to_html(), width=width, height=height)
    boxes = [figure.bounding_box() for figure in shown.page.locator("figure").all()]
    room = shown.page.locator(".figures").bounding_box()
    assert len({box["x"] for box in boxes}) == columns
    assert boxes[0]["width"] * columns > 0.8 * room["width"]
    assert max(box["y"] + box["height"] for box in boxes) <= room["y"] + room["height"] + 1


@pytest.mark.parametrize("kind", ["one", "compare"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_shifts_while_it_loads_or_while_words_are_hovered(kind, width, open_page):
    shown = open_page(document(kind), width=width)
    for word in ("house", "kangaroo", "A", "small", "dog"):
        shown.word(word).scroll_into_view_if_needed()
        shown.word(word).hover()
        shown.settle()
    shown.page.wait_for_timeout(100)
    assert sum(shown.shifts()) < 0.001


def test_hostile_text_stays_text(open_page):
    evil = "".join(HOSTILE)
    made = explanation(HOSTILE, HOSTILE, model=evil, method="cam" + evil)
    shown = open_page(ercr.compare([made, explanation(HOSTILE, HOSTILE, method="cam", seed=2)]).to_html())
    for word in shown.page.locator(".word").all():
        word.hover()
        shown.settle()
    assert shown.page.evaluate("() => window.broken") is None
    assert shown.page.locator("main script, main img:not(figure img)").count() == 0
    said = shown.page.get_by_role("listbox", name="Answer").text_content()
    assert "<script>window.broken=1</script> </script><img src=x onerror=window.broken=1>" in said
    frame = open_page(f"<!doctype html><title>x</title>{made._repr_html_()}")
    frame.page.frame_locator("iframe").locator(".word").first.hover()
    assert frame.page.evaluate("() => window.broken") is None


def test_switching_to_dark_tints_words_anew(open_page):
    shown = open_page(document("one"))
    tint = "node => [node.style.backgroundColor, node.style.color]"
    before = shown.word("dog").evaluate(tint)
    shown.page.emulate_media(color_scheme="dark")
    shown.settle()
    assert shown.word("dog").evaluate(tint) != before


def test_without_scripts_the_answer_can_be_read(browser, tmp_path):
    made = explanation()
    made.to_html(tmp_path / "x.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "x.html").as_uri())
    assert made.text in page.locator("body").inner_text()
    context.close()
