"""Chat messages to token ids, with the positions of the conversation's own words; never opens a picture or a model."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.image.clips import Clip, LoadedClip

Message = dict[str, Any]
Kind = Literal["image", "video"]
_ROLES_WITH_TEXT = ("user", "assistant")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMES = {"image": "pictures", "video": "videos"}


@dataclass(frozen=True)
class Chat:
    """A rendered conversation: token ids and the positions of its own text (no template, system message or image)."""

    ids: Tensor  # [L]
    text_positions: Tensor  # [P]


@dataclass(frozen=True)
class Placeholder:
    """What a chat template writes for a picture or a clip, and the text that replaces it."""

    token: str
    expanded: str


def as_messages(prompt: str | Sequence[Message], kinds: Sequence[Kind] = ("image",)) -> list[Message]:
    """A prompt or a conversation as messages with a place for each of the given pictures and videos, in their order.

    If no message has a place, the first user message gets all of them in front of its text. What stands in the places
    is left out: only where they are matters here.
    """
    if isinstance(prompt, str):
        refuse_surrogates(prompt, "prompt")
        if not prompt.strip():
            raise InputError("The prompt is empty: ask the model something, such as 'Describe this image.'.")
        return [{"role": "user", "content": [*_places(kinds), {"type": "text", "text": prompt}]}]
    messages = _checked(prompt)
    if messages[-1]["role"] != "user":
        raise InputError(
            "The conversation must end with a user message: pass the model's words as answer=, or say with turn= which "
            "of its answers to explain."
        )
    found = kinds_of(messages)
    if not found:
        first = next(message for message in messages if message["role"] == "user")
        first["content"][:0] = _places(kinds)
    elif found != list(kinds):
        raise InputError(
            f"The messages have places for {_counted(found)}, and {_counted(kinds)} are given, which is not the same: "
            f"give one for each place, in their order."
        )
    if not any(part["type"] == "text" and part["text"].strip() for part in messages[-1]["content"]):
        raise InputError("The last user message has no text: ask the model something.")
    return messages


def up_to_turn(messages: Sequence[Message], turn: int) -> tuple[list[Message], str]:
    """The messages before an assistant's turn (counted from 0, or from the end if negative), and its words."""
    _checked(messages)
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if isinstance(turn, bool) or not isinstance(turn, int) or not -len(answers) <= turn < len(answers):
        raise InputError(f"The conversation has {len(answers)} answers of the assistant, so there is no turn {turn!r}.")
    at = answers[turn]
    words = "".join(part["text"] for part in _normalise(messages[at])["content"] if part["type"] == "text")
    if not words.strip():
        raise InputError(f"The assistant's turn {turn} is empty, so there is nothing to explain.")
    return list(messages[:at]), words.strip()


def given_in(messages: Sequence[Message]) -> list[tuple[Kind, Any]]:
    """What stands in each place for a picture (a source of `load_image`) or a video (a Clip); None in an empty one."""
    _checked(messages)
    parts = [part for message in messages if not isinstance(message.get("content"), str) for part in message["content"]]
    return [_given(part) for part in parts if part["type"] != "text"]


def _given(part: Message) -> tuple[Kind, Any]:
    video = part["type"] == "video"
    names = ("video", "url", "path") if video else ("image", "url", "path", "base64", "image_url")
    name = next((name for name in names if part.get(name) is not None), None)
    source = None if name is None else part[name]
    if name == "image_url" and isinstance(source, dict):  # as OpenAI writes it
        source = source.get("url")
    if isinstance(source, str) and (name == "base64" or source.startswith("data:")):
        source = _from_base64(source)
    if video and source is not None and not isinstance(source, Clip | LoadedClip):
        source = Clip(source, part.get("fps"), part.get("num_frames"))
    return "video" if video else "image", source


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except ValueError:
        raise InputError("A picture in base64 is damaged: encode its file again.") from None


def kinds_of(messages: Sequence[Message]) -> list[Kind]:
    """Which places for pictures and videos the messages have, in their order."""
    return [part["type"] for message in messages for part in message["content"] if part["type"] in _NAMES]


def _places(kinds: Sequence[Kind]) -> list[Message]:
    return [{"type": kind} for kind in kinds]


def _counted(kinds: Sequence[str]) -> str:
    """`2 pictures and 1 videos`, or `none`."""
    counts = {name: sum(kind == known for kind in kinds) for known, name in _NAMES.items()}
    return " and ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def _checked(messages: object) -> list[Message]:
    if not isinstance(messages, list | tuple):
        raise InputError(f"A prompt must be text or a list of messages, not {type(messages).__name__}.")
    if not messages:
        raise InputError("The conversation is empty: give at least one user message.")
    found = [_normalise(message) for message in messages]
    if not any(message["role"] == "user" for message in found):
        raise InputError("The conversation has no user message: give at least one.")
    return found


def refuse_surrogates(text: str, what: str) -> None:
    """Refuse half of a surrogate pair: it is not a character, so no tokenizer can read it and no file can store it."""
    if _SURROGATE.search(text):
        raise InputError(f"The {what} contains half of a surrogate pair, which is not a character: remove it.")


def _normalise(message: Message) -> Message:
    """A message with its content as parts, without what stands in the places of pictures and videos."""
    if not isinstance(message, dict) or message.get("role") not in ("system", "user", "assistant"):
        raise InputError("Give every message a role ('system', 'user' or 'assistant') and a content.")
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    return {"role": message["role"], "content": [_part(part) for part in parts]}


def _part(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    kind = "image" if kind == "image_url" else kind
    if kind in _NAMES:
        return {"type": kind}
    if kind != "text" or not isinstance(part.get("text"), str):
        raise InputError("A message's content must be text or a list of {'type': 'text'|'image'|'video'} parts.")
    refuse_surrogates(part["text"], "prompt")
    return {"type": "text", "text": part["text"]}


def render_chat(
    tokenizer: Any, template: str | None, messages: Sequence[Message], placeholders: Sequence[Placeholder]
) -> Chat:
    """Apply the template, expand its placeholders in their order, tokenise, and locate the conversation's own text."""
    text, spans = render_text(tokenizer, template, messages)
    cursor = 0
    for place in placeholders:
        at = text.find(place.token, cursor)
        if at < 0:
            raise InputError(
                f"The chat template has no place {place.token!r} for a picture or a clip where one is given: pass a "
                f"processor whose template has one for each, in the order of the message."
            )
        cursor, shift = at + len(place.expanded), len(place.expanded) - len(place.token)
        text = text[:at] + place.expanded + text[at + len(place.token) :]
        spans = [(a + shift, b + shift) if a > at else (a, b) for a, b in spans]
    special = needs_special_tokens(tokenizer, text)
    encoded = tokenizer(text, add_special_tokens=special, return_offsets_mapping=True, return_tensors="pt")
    ids = torch.as_tensor(encoded["input_ids"])[0]
    return Chat(ids, positions_in(spans, torch.as_tensor(encoded["offset_mapping"])[0]))


def render_text(tokenizer: Any, template: str | None, messages: Sequence[Message]) -> tuple[str, list[tuple[int, int]]]:
    """The conversation as the template writes it, and where its own text stands in it."""
    text = _render(tokenizer, template, messages)
    return text, _text_spans(tokenizer, template, messages, text)


def prompt_alone(messages: Sequence[Message]) -> str:
    """The text of a single message of the user, for a checkpoint without a template."""
    if len(messages) > 1:
        raise InputError(
            "This checkpoint has no chat template, so a conversation cannot be written for it: give a prompt as text, "
            "or add chat_template.jinja to its folder."
        )
    return "".join(part["text"] for part in messages[0]["content"] if part["type"] == "text")


def needs_special_tokens(tokenizer: Any, text: str) -> bool:
    """Whether the tokenizer has to add its special tokens: not if the template has written the first one."""
    bos = getattr(tokenizer, "bos_token", None)
    return not (bos and text.startswith(bos))


def positions_in(spans: Sequence[tuple[int, int]], offsets: Tensor) -> Tensor:
    """Positions of the tokens that overlap spans of the text; `offsets` [L, 2] are the tokens' own places in it."""
    own = torch.zeros(len(offsets), dtype=torch.bool)
    for start, stop in spans:
        own |= (offsets[:, 0] < stop) & (offsets[:, 1] > start)
    return own.nonzero()[:, 0]


def refuse_placeholders(messages: Sequence[Message], tokens: Sequence[str]) -> None:
    """Refuse texts that contain what stands for a picture or a clip."""
    texts = [part["text"] for message in messages for part in message["content"] if part["type"] == "text"]
    for token in dict.fromkeys(tokens):
        if any(token in text for text in texts):
            raise InputError(f"The prompt contains {token!r}, which the model reads as an image: remove it.")


def _render(tokenizer: Any, template: str | None, messages: Sequence[Message]) -> str:
    if template is None:
        raise InputError("This checkpoint has no chat template: add chat_template.jinja to its folder.")
    for turns in (list(messages), [_plain_text(message) for message in messages]):
        try:
            options = {"chat_template": template, "tokenize": False, "add_generation_prompt": True}
            return str(tokenizer.apply_chat_template(turns, **options))
        # some templates expect a string and fail on a list, in many different ways; then they get the string
        except Exception as error:
            reason = " ".join(str(error).split())
    raise InputError(
        f"The chat template cannot render this conversation, so change the messages or the template: {reason}."
    )


def _plain_text(message: Message) -> Message:
    """A message without an image with its content as one string, which some templates expect."""
    if any(part["type"] != "text" for part in message["content"]):
        return message
    return {**message, "content": "".join(part["text"] for part in message["content"])}


def _text_spans(tokenizer: Any, template: str | None, messages: Sequence[Message], text: str) -> list[tuple[int, int]]:
    """Character spans of the user's and the earlier answers' text in the rendered conversation.

    The template is rendered again with a marker in place of each text: everything between the markers belongs to
    the template. A search for the text itself could find it in a system prompt, too.
    """
    texts: list[str] = []
    marked: list[Message] = []
    for message in messages:
        parts = [dict(part) for part in message["content"]]
        for part in parts:
            if part["type"] == "text" and message["role"] in _ROLES_WITH_TEXT and part["text"].strip():
                texts.append(part["text"])
                part["text"] = _marker(len(texts) - 1)
        marked.append({"role": message["role"], "content": parts})
    outline = _render(tokenizer, template, marked)
    spans, cursor, outline_cursor = [], 0, 0
    for index, own in enumerate(texts):
        found = outline.find(_marker(index), outline_cursor)
        if found < 0:
            continue  # the template omits this message
        start = cursor + found - outline_cursor
        written = own if text.startswith(own, start) else own.strip()
        if not text.startswith(written, start):
            raise InputError(
                "The chat template rewrites the prompt, so its words cannot be located: use another template."
            )
        spans.append((start, start + len(written)))
        cursor, outline_cursor = start + len(written), found + len(_marker(index))
    return spans


def _marker(index: int) -> str:
    return f"\ue000{index}\ue001"
