"""The `Method`: a name, what it needs from a trace, and two pure functions; never runs a model.

A method has two steps so that it can be streamed: `evidence` computes maps for a range of tokens, and `refine` makes
the final maps of those tokens from them and all earlier maps. No token needs a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ercr.errors import InputError, nearest

if TYPE_CHECKING:  # reports read names and settings of methods without loading torch
    from torch import Tensor

    from ercr.trace import Needs, Trace


@dataclass(frozen=True)
class Evidence:
    """The maps of some tokens before `refine`: `maps` [R, h, w] and named earlier stages of the same shape.

    `size` [R] is what 1 in the maps was before they were stretched, in the method's unit; without it, maps are in it.
    """

    maps: Tensor
    stages: dict[str, Tensor] = field(default_factory=dict)
    size: Tensor | None = None


@dataclass(frozen=True)
class Result:
    """Final maps [R, h, w] in 0..1; for methods with a context also `alpha` [R, S], `beta` [R], `relevance` [R, S].

    `size` [R] is how much of the evidence's scale 1 in the maps is; without it, they are on the same scale.
    """

    maps: Tensor
    alpha: Tensor | None = None
    beta: Tensor | None = None
    relevance: Tensor | None = None
    size: Tensor | None = None


@dataclass(frozen=True)
class Settings:
    """Base class of every method's settings: a frozen dataclass with one field per setting."""


@dataclass(frozen=True)
class Method:
    """An attribution method and its paper."""

    name: str
    title: str
    paper: str
    settings: type[Settings]
    needs: Callable[[Any], Needs]
    evidence: Callable[[Trace, slice, Any], Evidence]
    refine: Callable[[Trace, Tensor, slice, Any], Result]
    unit: str = "logit"  # of the maps before they are stretched
    reads: str = "visual states of the last block"
    cost: str = "one forward pass"
    memory: str = "as plain generation"
    streams: Callable[[Any], bool] = lambda settings: True


_DECODING = (
    *("temperature", "top_p", "top_k", "min_p", "do_sample", "num_beams", "repetition_penalty", "length_penalty"),
    *("min_new_tokens", "max_length", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "stop_strings"),
)  # options of the model's `generate` that users pass by mistake


def make_settings(method: Method, given: dict[str, Any]) -> Settings:
    """The method's settings with the given values; text (from a command line) is converted to the field's type."""
    known = {f.name: f for f in fields(method.settings)}
    for name in given:
        if name in _DECODING and name not in known:
            raise InputError(f"{name} is an option of the model's generate: pass it as generation={{{name!r}: …}}.")
        if name not in known:
            choices = ", ".join(known) or "none"
            raise InputError(
                f"Method {method.name!r} has no setting {name!r}: its settings are {choices}.{nearest(name, known)}"
            )
    values = {name: _fitting(name, value, known[name].default) for name, value in given.items()}
    return method.settings(**values)


def _fitting(name: str, value: Any, default: Any) -> Any:
    """A setting's value in the type of its default; text (from a command line) is parsed first."""
    value = _typed(value) if isinstance(value, str) else value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()  # a NumPy or torch scalar
    if isinstance(default, bool) or isinstance(value, bool):
        if not (isinstance(default, bool) and isinstance(value, bool)):
            raise InputError(
                f"{name} must be {'on or off' if isinstance(default, bool) else 'a number'}, not {value!r}."
            )
    elif isinstance(default, int) and not isinstance(value, int):
        raise InputError(f"{name} must be a whole number, not {value!r}.")
    elif isinstance(default, float):
        if not isinstance(value, int | float):
            raise InputError(f"{name} must be a number, not {value!r}.")
        value = float(value)
    return value


def _typed(text: str) -> Any:
    """Parse on/off, numbers and slash-separated numbers; any other text stays text."""
    words = {"on": True, "true": True, "off": False, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    if "/" in text:
        return tuple(_typed(part) for part in text.split("/"))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
