"""Short labels that distinguish explanations: the method, then whatever else differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ercr.words import WordMaps


def labels(explanations: Sequence[WordMaps]) -> list[str]:
    """One name each: method, model where there are several, and the settings in which equal methods differ."""
    facts = [e.provenance for e in explanations]
    several = len({fact.get("model") for fact in facts}) > 1
    names = []
    for fact in facts:
        method = fact.get("method")
        parts = [str(method or "?")]
        if several:
            parts.append(_short(str(fact.get("model"))))
        mine = fact.get("settings") or {}
        others = [other.get("settings") or {} for other in facts if other.get("method") == method]
        parts += [f"{k}={_plain(v)}" for k, v in mine.items() if any(_plain(o.get(k)) != _plain(v) for o in others)]
        names.append(" ".join(parts))
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _short(model: str) -> str:
    """The last part of a hub id or a folder."""
    return model.rstrip("/").rsplit("/", 1)[-1] or model


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    # a saved explanation holds lists where a new one holds tuples
    return "/".join(_plain(v) for v in value) if isinstance(value, list | tuple) else str(value)
