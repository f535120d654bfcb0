"""Chat messages to token ids, with the positions of the conversation's own words; never touches an image or a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ercr.errors import InputError

Message = dict[str, Any]
_ROLES_WITH_TEXT = ("user", "assistant")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Chat:
    """A rendered conversation: token ids and the positions of its own text (no template, system message or image)."""

    ids: Tensor  # [L]
    text_positions: Tensor  # [P]


def as_messages(prompt: str | Sequence[Message]) -> list[Message]:
    """A prompt or a conversation as messages; the first user message gets the image if none has it."""
    if isinstance(prompt, str):
        refuse_surrogates(prompt, "prompt")
        if not prompt.strip():
            raise InputError("The prompt is empty: ask the model something, such as 'Describe this image.'.")
        return [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}]
    if not isinstance(prompt, list | tuple):
        raise InputError(f"A prompt must be text or a list of messages, not {type(prompt).__name__}.")
    if not prompt:
        raise InputError("The conversation is empty: give at least one user message.")
    messages = [_normalise(message) for message in prompt]
    if messages[-1]["role"] != "user":
        raise InputError("The conversation must end with a user message; pass the model's words as answer=.")
    images = sum(part["type"] == "image" for message in messages for part in message["content"])
    if images > 1:
        raise InputError(f"The conversation has {images} images: pass exactly one.")
    if images == 0:
        first = next(message for message in messages if message["role"] == "user")
        first["content"].insert(0, {"type": "image"})
    if not any(part["type"] == "text" and part["text"].strip() for part in messages[-1]["content"]):
        raise InputError("The last user message has no text: ask the model something.")
    return messages


def refuse_surrogates(text: str, what: str) -> None:
    """Refuse half of a surrogate pair: it is not a character, so no tokenizer can read it and no file can store it."""
    if _SURROGATE.search(text):
        raise InputError(f"The {what} contains half of a surrogate pair, which is not a character: remove it.")


def _normalise(message: Message) -> Message:
    if not isinstance(message, dict) or message.get("role") not in ("system", "user", "assistant"):
        raise InputError("Give every message a role ('system', 'user' or 'assistant') and a content.")
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    for part in parts:
        if (
            not isinstance(part, dict)
            or part.get("type") not in ("text", "image")
            or (part["type"] == "text" and not isinstance(part.get("text"), str))
        ):
            raise InputError("A message's content must be text or a list of {'type': 'text'|'image'} parts.")
        refuse_surrogates(str(part.get("text", "")), "prompt")
    return {"role": message["role"], "content": [dict(part) for part in parts]}


def render_chat(
    tokenizer: Any, template: str | None, messages: Sequence[Message], image_token: str, expanded: str
) -> Chat:
    """Apply the template, replace its image token by `expanded`, tokenise, and locate the conversation's own text."""
    _refuse_image_token(messages, image_token)
    text, spans = render_text(tokenizer, template, messages)
    at = text.find(image_token)
    if at < 0:
        raise InputError("The chat template has no place for an image: pass a processor whose template has one.")
    shift = len(expanded) - len(image_token)
    text = text[:at] + expanded + text[at + len(image_token) :]
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


def _refuse_image_token(messages: Sequence[Message], image_token: str) -> None:
    for message in messages:
        if any(part["type"] == "text" and image_token in part["text"] for part in message["content"]):
            raise InputError(f"The prompt contains {image_token!r}, which the model reads as an image: remove it.")


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
