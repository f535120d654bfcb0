"""What is asked about: pictures, clips and conversations in all forms in which people give them, loaded for a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ercr.errors import InputError
from ercr.image.clips import Clip, LoadedClip, Sampling, is_video_name
from ercr.image.gallery import Gallery, Shown
from ercr.image.images import ImageLike, LoadedImage, load_image
from ercr.image.pieces import Pieces
from ercr.models.chat import Kind, Message, as_messages, given_in, up_to_turn
from ercr.models.inputs import Medium, Prepared
from ercr.zoo.defaults import PROMPT, VIDEO_PROMPT

# a picture, a clip, several of them, or a conversation that holds its own
MediaLike = ImageLike | Clip | Sequence[Any] | None


@dataclass(frozen=True)
class Asked:
    """A conversation, what is shown in its places, and the answer to explain if it is one of the conversation's."""

    messages: list[Message]
    sources: list[Any]  # of `load_image`, or clips
    answer: str | None = None


def asked(given: MediaLike, prompt: str | Sequence[Message], turn: int | None = None) -> Asked:
    """Pictures and clips in the places of a prompt or a conversation.

    `given` fills the places that hold none of their own, in their order. It may be the conversation itself. The default
    prompt speaks of a video where nothing else is shown.
    """
    if is_conversation(given):
        if prompt != PROMPT:
            raise InputError("Give the conversation or a prompt, not both.")
        given, prompt = None, given  # type: ignore[assignment]
    sources = _as_list(given)
    answer = None
    if turn is not None:
        if isinstance(prompt, str):
            raise InputError("turn= needs a conversation with answers of the assistant, not one prompt.")
        prompt, answer = up_to_turn(prompt, turn)
    if not isinstance(prompt, str):
        sources = _in_places(given_in(prompt), sources, turn is not None)
    if not sources:
        raise InputError("There is no picture: give one, or a list of pictures and clips.")
    kinds = [kind_of(source) for source in sources]
    if prompt == PROMPT and set(kinds) == {"video"}:
        prompt = VIDEO_PROMPT
    return Asked(as_messages(prompt, kinds), sources, answer)


def is_conversation(given: object) -> bool:
    """Whether this is a list of chat messages."""
    return (
        isinstance(given, list | tuple) and len(given) > 0 and all(isinstance(m, dict) and "role" in m for m in given)
    )


def kind_of(source: object) -> Kind:
    """Whether a source is a picture or a video: a clip, a loaded clip, or a name that ends like a video's."""
    return "video" if isinstance(source, Clip | LoadedClip) or is_video_name(source) else "image"


def load(sources: Sequence[Any], choose: Sampling) -> Shown:
    """All pictures and clips; `choose` is the model's rule for the frames of a video."""
    return Gallery.of([_load(source, choose) for source in sources])


def media(shown: Shown) -> Sequence[Medium]:
    """What a model is shown, without what only files and pages need."""
    return [item.rgb if isinstance(item, LoadedImage) else item for item in shown.items]


def turns_of(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation, where it is more than one prompt with all pictures and clips in front of it."""
    kinds = [part["type"] == "text" for part in messages[0]["content"]]
    return tuple(messages) if len(messages) > 1 or kinds != sorted(kinds) else ()


def refuse_long(shown: Prepared, positions: int | None) -> None:
    """Refuse several pictures, or a clip, with more tokens than the model has positions for."""
    if isinstance(shown.geometry, Pieces) and positions and len(shown.input_ids) > positions:
        raise InputError(
            f"All this takes {len(shown.input_ids):,} tokens, and the model has {positions:,} positions: show fewer or "
            f"smaller pictures, and of a video fewer frames, with num_frames= or fps=."
        )


def _load(source: Any, choose: Sampling) -> LoadedImage | LoadedClip:
    if isinstance(source, LoadedClip):
        return source
    if kind_of(source) == "video":
        return (source if isinstance(source, Clip) else Clip(source)).load(choose)
    return load_image(source)


def _as_list(given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, Gallery):
        return list(given.items)
    if isinstance(given, list | tuple):
        if not given:
            raise InputError("The list of pictures is empty: give at least one.")
        return list(given)
    return [given]


def _in_places(places: Sequence[tuple[Kind, Any]], given: Sequence[Any], some_left: bool) -> list[Any]:
    """What stands in the places of messages; empty ones are filled with what is given, in their order.

    Where a conversation is cut off at a turn, what belongs to later turns may be left over.
    """
    if not places:
        return list(given)
    empty = sum(source is None for _, source in places)
    if len(given) < empty or (len(given) > empty and not some_left):
        raise InputError(
            f"The messages have {empty} places without a picture or clip of their own, and {len(given)} are given: "
            f"give as many as there are places."
        )
    rest = iter(given)
    return [_placed(kind, next(rest) if source is None else source) for kind, source in places]


def _placed(kind: Kind, source: Any) -> Any:
    """A source as what its place says; a list in a video's place is a clip of frames."""
    if kind == "video" and not isinstance(source, Clip | LoadedClip):
        return Clip(source)
    if kind == "image" and kind_of(source) == "video":
        raise InputError("A video is given for a picture's place: write {'type': 'video'} there.")
    return source
