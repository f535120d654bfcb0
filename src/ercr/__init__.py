"""Show which part of an image a multimodal language model used for each word it said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ercr.version import __version__

if TYPE_CHECKING:
    from ercr.errors import ErcrError
    from ercr.explaining.explainer import Explainer
    from ercr.explanation import Explanation, Token, Word
    from ercr.explanation.storage import load
    from ercr.methods import methods
    from ercr.render.compare import compare

# resolved on first use: importing ercr alone must not load torch
_HOMES = {
    "Explainer": "ercr.explaining.explainer",
    "Explanation": "ercr.explanation",
    "Token": "ercr.explanation",
    "Word": "ercr.explanation",
    "ErcrError": "ercr.errors",
    "compare": "ercr.render.compare",
    "load": "ercr.explanation.storage",
    "methods": "ercr.methods",
}

__all__ = ["ErcrError", "Explainer", "Explanation", "Token", "Word", "__version__", "compare", "load", "methods"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ercr' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_HOMES[name])
    return module if name == "methods" else getattr(module, name)
