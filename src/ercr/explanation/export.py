"""An explanation as plain NumPy arrays, for those who go on with other tools; never runs a model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ercr.explanation import Explanation, Word


def as_arrays(explanation: Explanation) -> dict[str, NDArray[Any]]:
    """Texts and maps of words and of tokens, earlier stages, context weights, and where on the image the maps lie."""
    grid, tokens = explanation.maps.shape[1:], explanation.text_tokens
    optional = {"alpha": explanation.alpha, "beta": explanation.beta, "relevance": explanation.relevance}
    return {
        **_words("", explanation.words, grid),
        **_words("prompt_", explanation.prompt_words, grid),
        "tokens": np.array([token.text for token in tokens], np.str_),
        "token_ids": np.array([token.id for token in tokens], np.int64),
        "token_in_answer": np.array([token.kind == "answer" for token in tokens], np.bool_),
        "token_maps": explanation.maps,
        **{f"stage_{name}": maps for name, maps in explanation.stages.items()},
        **{name: values for name, values in optional.items() if values is not None},
        "box": np.array(explanation.geometry.box, np.float64),  # left, top, right, bottom in pixels of the image
        "image_size": np.array(explanation.image.size, np.int64),  # height, width
        "text": np.array(explanation.text),
        "prompt": np.array(explanation.prompt),
    }


def _words(prefix: str, words: Sequence[Word], grid: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    return {
        f"{prefix}words": np.array([word.text for word in words], np.str_),
        f"{prefix}maps": np.array([word.map for word in words], np.float32).reshape(len(words), *grid),
        f"{prefix}probability": np.array([word.probability for word in words], np.float64),
        f"{prefix}evidence": np.array([word.evidence for word in words], np.float64),
    }


def to_npz(explanation: Explanation) -> bytes:
    """The same as one compressed file, which `numpy.load` reads."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **as_arrays(explanation))  # type: ignore[arg-type]
    return buffer.getvalue()
