"""Show which part of an image a multimodal language model used for each word it said."""

from typing import TYPE_CHECKING

from ercr.lazy import lazy_attributes
from ercr.version import __version__

if TYPE_CHECKING:
    from ercr import methods
    from ercr.errors import ErcrError
    from ercr.explaining.explainer import Explainer
    from ercr.explanation import Explanation, Token, Word
    from ercr.explanation.storage import load
    from ercr.image.clips import Clip
    from ercr.render.compare import compare

__all__ = [
    "Clip",
    "ErcrError",
    "Explainer",
    "Explanation",
    "Token",
    "Word",
    "__version__",
    "compare",
    "load",
    "methods",
]

# importing ercr alone must not load torch
__getattr__ = lazy_attributes(
    __name__,
    {
        "Clip": "ercr.image.clips",
        "Explainer": "ercr.explaining.explainer",
        "Explanation": "ercr.explanation",
        "Token": "ercr.explanation",
        "Word": "ercr.explanation",
        "ErcrError": "ercr.errors",
        "compare": "ercr.render.compare",
        "load": "ercr.explanation.storage",
        "methods": "ercr.methods",
    },
)
