"""An explanation as moving pictures: a clip with the evidence for a word, or words that appear with theirs.

A clip moves as it did, and its frames are lit for one word. Pictures stand still: each word of the answer appears with
its evidence, as when the answer was generated.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from ercr.errors import InputError
from ercr.image.clips import LoadedClip
from ercr.image.pieces import Piece
from ercr.render.lettering import ACCENT, FAINT, INK, PAPER, font, sentence
from ercr.render.overlay import Looks, abreast, is_any_warm, lit_piece
from ercr.words.function_words import contents

if TYPE_CHECKING:
    from ercr.words import Which, Word, WordMaps

_TALLEST, _WIDEST, _NARROWEST = 360, 720, 320  # pixels of the pictures
_MARGIN = 12
_LONGEST = 1.0  # seconds of a frame: clips of hours pass faster than they are
_CURVE, _SCALE = 34, 20  # heights of the curve and of its axis
_BEFORE, _FUNCTION, _CONTENT, _AFTER = 0.6, 0.4, 0.9, 2.0  # seconds that pictures and words are shown
Shot = tuple[Image.Image, float]  # a frame, and for how many seconds it is shown


def film(explanation: WordMaps, which: Which = None) -> Iterator[Shot]:
    """The frames; of a clip for one word, by default the strongest content word.

    Of pictures, all words are shown, and the last frame is the word's, by default that of the whole answer.
    """
    if not explanation.words:
        raise InputError("The model said nothing, so there is nothing to show.")
    if any(piece.clip for piece in explanation.pieces):
        return _moving(explanation, strongest(explanation) if which is None else explanation.find(which))
    return _said(explanation, explanation.find(which))


def strongest(explanation: WordMaps) -> Word:
    """The word of the answer with most evidence, among those that can name something."""
    named = contents([word.text for word in explanation.words])
    content = [word for word, name in zip(explanation.words, named, strict=True) if name]
    return max(content or explanation.words, key=lambda word: word.strength)


def _moving(explanation: WordMaps, word: Word) -> Iterator[Shot]:
    """All clips from their beginnings, beside what stands still."""
    clips = {at: item for at, item in enumerate(explanation.media) if isinstance(item, LoadedClip)}
    height = _height(explanation)
    marked, looks = _indices(explanation, word), Looks(grey=is_any_warm(explanation))
    for time, seconds in _moments(list(clips.values())):
        frames = [_frame(clips[at], time) if at in clips else 0 for at in range(len(explanation.media))]
        lit = abreast([lit_piece(explanation, word, at, frame, looks, height) for at, frame in enumerate(frames)])
        yield _sheet(explanation, lit, None, marked, word, time), seconds


def _moments(clips: list[LoadedClip]) -> list[tuple[float, float]]:
    """The moments at which any clip shows another frame, and how long each of them is shown."""
    times = sorted({time for clip in clips for time in clip.times})
    gaps = [after - before for before, after in pairwise([*times, max(max(c.end for c in clips), times[-1] + 0.04)])]
    faster = max(1.0, max(gaps[:-1], default=0.0) / _LONGEST)
    return [(time, min(gap / faster, _AFTER)) for time, gap in zip(times, gaps, strict=True)]


def _frame(clip: LoadedClip, time: float) -> int:
    """The frame that a clip shows at a moment."""
    return max(sum(shown <= time for shown in clip.times) - 1, 0)


def _said(explanation: WordMaps, last: Word) -> Iterator[Shot]:
    """The pictures as they are, then with each word's evidence, then with the last word's."""
    height = _height(explanation)
    pieces, looks = range(len(explanation.pieces)), Looks(grey=is_any_warm(explanation))

    def shot(word: Word | None, said: int, marked: Container[int]) -> Image.Image:
        if word is None:
            lit = [_plain(explanation, at, height) for at in pieces]
        else:
            lit = [lit_piece(explanation, word, at, 0, looks, height) for at in pieces]
        return _sheet(explanation, abreast(lit), said, marked)

    yield shot(None, 0, ()), _BEFORE
    named = contents([word.text for word in explanation.words])
    for word, name in zip(explanation.words, named, strict=True):
        yield shot(word, word.index + 1, {word.index}), _CONTENT if name else _FUNCTION
    yield shot(last, len(explanation.words), _indices(explanation, last)), _AFTER


def _plain(explanation: WordMaps, at: int, height: int) -> Image.Image:
    image = explanation.media[at].rgb  # type: ignore[union-attr]
    return image.resize((max(1, round(image.width * height / image.height)), height), resample=Image.Resampling.LANCZOS)


def _height(explanation: WordMaps) -> int:
    """Of the pictures, so that all of them fit beside each other."""
    return max(16, min(_TALLEST, int(_WIDEST / sum(item.size[1] / item.size[0] for item in explanation.media))))


def _indices(explanation: WordMaps, word: Word) -> set[int]:
    """Which words of the answer a word or phrase is made of; none for the whole answer."""
    rows = {token.row for token in word.tokens}
    found = {each.index for each in explanation.words if rows & {token.row for token in each.tokens}}
    return found if len(found) < len(explanation.words) else set()


def _sheet(
    explanation: WordMaps,
    pictures: Image.Image,
    said: int | None,
    marked: Container[int],
    word: Word | None = None,
    time: float = 0.0,
) -> Image.Image:
    """The pictures above the answer, and for clips a curve of the word's evidence over time; sides are even."""
    width = max(pictures.width, _NARROWEST)
    answer = sentence(explanation, width, 18, said, marked)
    clips = [at for at, piece in enumerate(explanation.pieces) if piece.clip] if word is not None else []
    below = len(clips) * (_CURVE + _SCALE + _MARGIN)
    high = pictures.height + answer.height + below + 3 * _MARGIN
    sheet = Image.new("RGB", (_even(width + 2 * _MARGIN), _even(high)), PAPER)
    sheet.paste(pictures, (_MARGIN + (width - pictures.width) // 2, _MARGIN))
    top = pictures.height + 2 * _MARGIN
    sheet.paste(answer, (_MARGIN, top))
    top += answer.height + _MARGIN // 2
    for at in clips:
        assert word is not None
        _curve(sheet, explanation.pieces[at], word.shares[at], (_MARGIN, top, width), time)
        top += _CURVE + _SCALE + _MARGIN
    return sheet


def _even(side: int) -> int:
    return side + side % 2  # codecs need it


def _curve(sheet: Image.Image, piece: Piece, parts: list[float], place: tuple[int, int, int], time: float) -> None:
    """How a word's evidence is spread over a clip's time, and the moment that is shown."""
    pen, face = ImageDraw.Draw(sheet), font(13)
    most, end = max(max(parts), 1e-9), piece.spans[-1][1]
    label = f"{100 * most:.0f} %"
    gutter = round(face.getlength("100 %")) + 6
    left, top, width = place[0] + gutter, place[1], place[2] - gutter - 14
    bottom = top + _CURVE
    pen.rectangle((left, top, left + width, bottom), fill=(246, 246, 249))
    for (start, stop), part in zip(piece.spans, parts, strict=True):
        box = (left + width * start / end, bottom - _CURVE * part / most, left + width * stop / end, bottom)
        pen.rectangle(box, fill=(199, 214, 239))
        pen.line((box[0], box[1], box[2], box[1]), fill=ACCENT, width=2)
    pen.line((left + width * time / end, top - 3, left + width * time / end, bottom + 3), fill=INK, width=3)
    pen.text((left - 6, top), label, fill=FAINT, font=face, anchor="rt")
    pen.text((left - 6, bottom), "0", fill=FAINT, font=face, anchor="rb")
    pen.text((left, bottom + 5), "0 s", fill=FAINT, font=face, anchor="lt")
    pen.text((left + width / 2, bottom + 5), "share of the evidence over time", fill=FAINT, font=face, anchor="mt")
    pen.text((left + width + 12, bottom + 5), f"{end:.4g} s", fill=FAINT, font=face, anchor="rt")
