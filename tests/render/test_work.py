"""A hovered word costs no more in a long report than in a short one: work is counted, no time is taken."""

from __future__ import annotations

import pytest

from tests.render.made import explanation, photo

# every canvas operation that moves pixels, and every change of the document
WATCH = """
    window.work = { painted: 0, pixels: 0, changes: 0 };
    const put = CanvasRenderingContext2D.prototype.putImageData;
    CanvasRenderingContext2D.prototype.putImageData = function (image, ...rest) {
        window.work.painted += 1;
        window.work.pixels += image.width * image.height;
        return put.call(this, image, ...rest);
    };
    new MutationObserver((records) => { window.work.changes += records.length; }).observe(
        document, { subtree: true, childList: true, attributes: true, characterData: true });
"""


def work(open_page, tokens):
    """What each of some hovered words causes, of a report of so many tokens."""
    made = explanation([f" word{i}" for i in range(tokens)], grid=(12, 12), image=photo((300, 300)))
    shown = open_page(made.to_html(which="word3"))
    shown.page.evaluate(WATCH)
    found = []
    for index in (5, 40, 6, 60):
        before = shown.page.evaluate("() => ({ ...window.work })")
        shown.word(f"word{index}").hover()
        shown.settle()
        after = shown.page.evaluate("() => ({ ...window.work })")
        found.append({name: after[name] - before[name] for name in after})
    return found


@pytest.mark.slow
def test_a_hovered_word_is_painted_once_and_touches_few_others_however_long_the_report(open_page):
    short, long = work(open_page, 64), work(open_page, 1024)
    for one in (*short, *long):
        # scrolling to a word may pass the pointer over another one
        assert 1 <= one["painted"] <= 2
        assert one["pixels"] == one["painted"] * short[0]["pixels"]
        assert one["changes"] < 64  # of a document with a thousand words
