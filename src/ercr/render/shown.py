"""What was explained, as a page shows it: a picture, or several pictures and clips, and the turns of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ercr.image.clips import LoadedClip
from ercr.image.gallery import Gallery, Shown
from ercr.image.images import LoadedImage
from ercr.image.pieces import Piece
from ercr.render.overlay import is_warm
from ercr.render.picture import frames, picture

if TYPE_CHECKING:
    from ercr.words import Word, WordMaps


def shown(explanation: WordMaps) -> dict[str, Any]:
    """The picture; with several, or a clip, a list of `items`."""
    if isinstance(explanation.image, LoadedImage):
        return _still(explanation.image)
    pairs = list(zip(explanation.media, explanation.pieces, strict=True))
    clips = sum(isinstance(item, LoadedClip) for item, _ in pairs)
    stills = len(pairs) - clips
    items = [
        _still(item, stills) if isinstance(item, LoadedImage) else _clip(item, piece, clips) for item, piece in pairs
    ]
    return {"items": items, "warm": any(item["warm"] for item in items)}


def names(image: Shown) -> list[str]:
    """`Picture 1`, `Clip 2`: counted together, as they stand in the prompt; `Picture` or `Clip` where it is alone."""
    kinds = ["Clip" if isinstance(item, LoadedClip) else "Picture" for item in image.items]
    return kinds if len(kinds) == 1 else [f"{kind} {number}" for number, kind in enumerate(kinds, start=1)]


def _still(image: LoadedImage, count: int = 1) -> dict[str, Any]:
    found = picture(image.rgb, count)
    height, width = image.size
    return {
        "src": found.url,
        "size": [width, height],
        "shown": list(found.size),
        "format": found.format,
        "lossless": found.lossless,
        "warm": is_warm(image.rgb),
    }


def _clip(clip: LoadedClip, piece: Piece, count: int) -> dict[str, Any]:
    found, (height, width) = frames(clip.frames, count), clip.size
    return {
        "frames": [frame.url for frame in found],
        "times": [round(time, 4) for time in clip.times],
        "spans": [[round(start, 4), round(stop, 4)] for start, stop in piece.spans],
        "slices": piece.slice_of_frame,
        "size": [width, height],
        "shown": list(found[0].size),
        "format": found[0].format,
        "lossless": found[0].lossless,
        "warm": is_warm(clip.frames[0]),
    }


def turns(explanation: WordMaps, words: Sequence[Word]) -> list[dict[str, Any]] | None:
    """The turns before the answer: who speaks, and parts in their order. None where there is one prompt.

    A part is a range of the prompt's words, a text whose words have no maps, or the number of a picture or clip.
    """
    messages = explanation.provenance.get("conversation")
    if not messages:
        return None
    found, number, at = [], 0, 0
    for message in messages:
        parts: list[dict[str, Any]] = []
        for part in message["content"]:
            if part["type"] != "text":
                if number < len(explanation.media):
                    parts.append({"piece": number})
                number += 1
            elif message["role"] == "system":
                parts.append({"text": part["text"]})
            else:
                stop = _until(words, at, part["text"])
                parts.append({"words": [at, stop]} if stop > at else {"text": part["text"]})
                at = stop
        found.append({"role": message["role"], "parts": parts})
    if at < len(words):  # a template that adds words, or changes them
        found[-1]["parts"].append({"words": [at, len(words)]})
    return found


def _until(words: Sequence[Word], at: int, text: str) -> int:
    """Where the words of a text end that begins at a word; white space does not count."""
    left = len("".join(text.split()))
    while at < len(words) and left > 0:
        left -= len("".join(words[at].text.split()))
        at += 1
    return at


def are_several(explanation: WordMaps) -> bool:
    return isinstance(explanation.image, Gallery)
