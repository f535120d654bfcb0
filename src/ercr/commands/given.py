"""What a command line shows a model: pictures, videos and a conversation from a file; loads no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ercr.errors import InputError
from ercr.zoo.defaults import PROMPT

_MOST_BYTES = 2**29  # of a conversation, whose pictures may be inside
_FILES = {"image": ("image", "path", "url"), "video": ("video", "path", "url")}  # where a part may name a file

MessagesOption = Annotated[
    Path | None,
    typer.Option(
        "--messages",
        help="A conversation instead of a prompt: a JSON file with chat messages; pictures and videos stand in them, "
        "or are given as arguments, in the order of their places.",
        show_default=False,
    ),
]
TurnOption = Annotated[
    int | None,
    typer.Option(
        "--turn",
        help="With --messages: explain this answer of the assistant, from 0, or from the end (-1).",
        show_default=False,
    ),
]
FpsOption = Annotated[
    float | None,
    typer.Option("--fps", help="Frames a second to show of videos, instead of the model's rule.", show_default=False),
]
FramesOption = Annotated[
    int | None,
    typer.Option("--num-frames", help="Frames to show of videos, instead of the model's rule.", show_default=False),
]


@dataclass(frozen=True)
class Given:
    """What is shown, and the prompt or the conversation, as `Explainer.explain` takes them."""

    shown: Any
    prompt: str | list[dict[str, Any]]
    turn: int | None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"image": self.shown, "prompt": self.prompt} | ({} if self.turn is None else {"turn": self.turn})


def given(
    names: Sequence[str],
    prompt: str,
    messages: Path | None = None,
    turn: int | None = None,
    fps: float | None = None,
    num_frames: int | None = None,
) -> Given:
    """Pictures and videos are opened here, so that a wrong name is found before a model is loaded."""
    from ercr.explaining.media import asked

    if messages is None and turn is not None:
        raise InputError("--turn needs a conversation: give its file with --messages.")
    if messages is not None and prompt != PROMPT:
        raise InputError("Give --messages or --prompt, not both: the conversation has its own question.")
    if messages is None and not names:
        raise InputError("Give a picture or a video, or a conversation with --messages.")
    shown: Any = [opened(name, fps, num_frames) for name in names]
    said: Any = prompt if messages is None else _conversation(messages, fps, num_frames)
    shown = shown[0] if len(shown) == 1 else shown or None
    asked(shown, said, turn)  # refuses what no model can be asked
    return Given(shown, said, turn)


def opened(name: str, fps: float | None = None, num_frames: int | None = None) -> Any:
    """A picture, read; or a clip, of whose file the header was read."""
    from ercr.image.addresses import is_address
    from ercr.image.clips import Clip, is_video_name
    from ercr.image.images import load_image
    from ercr.image.video import open_video

    if not is_address(name) and not Path(name).expanduser().exists():
        raise InputError(f"There is no file or folder {name!r}.")
    if not is_video_name(name):
        return load_image(name)
    if is_address(name):
        return Clip(name, fps, num_frames)
    path = Path(name).expanduser()
    open_video(path)
    return Clip(path, fps, num_frames)


def one_of_many(names: Sequence[str], asks: Mapping[str, Any]) -> str | None:
    """A name that stands for many pictures, each explained by itself; the only one, and asked nothing else."""
    from ercr.album.sources import is_source

    found = next((name for name in names if is_source(name)), None)
    if found is not None and len(names) > 1:
        raise InputError(f"{found} stands for many pictures, each explained by itself: give it alone.")
    if found is not None and any(value is not None for value in asks.values()):
        raise InputError("--messages, --turn, --fps and --num-frames are not for many pictures: omit them.")
    return found


def _conversation(path: Path, fps: float | None, num_frames: int | None) -> list[dict[str, Any]]:
    """The messages of a JSON file: a list, or an object with `messages`; names of files are relative to its folder."""
    from ercr.files.plain import read_plain

    try:
        found = json.loads(read_plain(path.expanduser(), _MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}.") from None
    found = found.get("messages") if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
        raise InputError(f"{path} must hold a list of messages, each with a role and a content.")
    return [_beside(message, path.expanduser().parent, {"fps": fps, "num_frames": num_frames}) for message in found]


def _beside(message: dict[str, Any], folder: Path, wishes: dict[str, Any]) -> dict[str, Any]:
    """A message whose files are named from here; its videos get what the command line wishes of them."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(part, folder, wishes) if isinstance(part, dict) else part for part in content]}


def _part(part: dict[str, Any], folder: Path, wishes: dict[str, Any]) -> dict[str, Any]:
    from ercr.image.addresses import is_address

    kind = part.get("type")
    changed = dict(part)
    for key in _FILES.get(str(kind), ()):
        name = part.get(key)
        plain = name.removeprefix("file://") if isinstance(name, str) else ""
        if plain and not is_address(plain) and not plain.startswith("data:"):
            changed[key] = str(folder / Path(plain).expanduser())
    if kind == "video":
        changed |= {key: value for key, value in wishes.items() if value is not None}
    return changed
