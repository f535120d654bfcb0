"""TAM as its public code computes it, step by step in NumPy, so that the uint8 maps agree bit by bit.

This is separate from `tam.py`, because the last bit depends on the order of float32 sums, on a numerical line search
for the least-squares coefficient, and on several quirks:

- token strings come from decoding and tokenising again;
- the class of the first prompt token is the argmax at its position;
- the map stored for the first answer token uses the last input token's id, and the map returned for it is the
  first prompt token's, without interference removal;
- a constant positive window of the filter becomes NaN, hence 0;
- the least-squares coefficient is a NumPy number of 64 bits, so that maps without interference go on in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ercr.errors import missing
from ercr.image.pieces import Sheet, sheets_of
from ercr.trace import Trace

Floats = NDArray[np.floating[Any]]  # float32 until interference is removed, float64 afterwards


def compat_maps(trace: Trace) -> Tensor:
    """Maps [S, h, w] of uint8 / 255 for every text row."""
    classes = _classes(trace)
    rows = trace.unembed(classes.to(trace.text.targets.device))
    image = _clipped(trace.geometry.stitch(_model_precision(trace.anchor.states, rows)).flatten(1))  # [K, N]
    text = _clipped(_model_precision(trace.text.read_states, rows))  # [K, S]
    strings = _strings(trace)
    sheets = sheets_of(trace.geometry)
    maps = np.zeros((len(trace.rows), *trace.geometry.grid), np.uint8)
    for row in range(len(trace.rows)):
        source = 0 if row == trace.prompts else row  # the first answer token gets the map of the first prompt token
        cleaned = _without_interference(source, image, text[source], strings) if source else image[0]
        scores = text[source, : trace.prompts] if source < trace.prompts else text[source, :source]
        maps[row] = _finish(cleaned, scores, sheets).reshape(trace.geometry.grid)
    return torch.from_numpy(maps).to(trace.text.targets.device).float() / 255


def _strings(trace: Trace) -> list[str]:
    """The strings of prompt and answer tokens, both decoded and tokenised again, each at its own rows."""
    prompt, answer = trace.rows[: trace.prompts], trace.rows[trace.prompts :]
    padded = trace.spell(trace.ids[prompt]) + [""] * len(prompt)
    return padded[: len(prompt)] + trace.spell(trace.ids[answer])


def _classes(trace: Trace) -> Tensor:
    """The token id of each row's raw map: its own, except for the first prompt and the first answer token."""
    classes = trace.text.targets.cpu().clone()
    if trace.prompts:
        classes[0] = trace.argmax(trace.text.read_states[:1])[0].cpu()
    if len(classes) > trace.prompts:
        classes[trace.prompts] = trace.ids[trace.input_length - 1]
    return classes


def _model_precision(states: Tensor, rows: Tensor) -> Tensor:
    return rows.to(states.device, states.dtype) @ states.mT


def _clipped(scores: Tensor) -> Floats:
    return np.asarray(scores.clamp(min=0).float().cpu().numpy(), np.float32)


def _without_interference(row: int, image: Floats, text: Floats, strings: list[str]) -> Floats:
    """Subtract the scaled mean of earlier raw maps, weighted by the text scores; equal strings are excluded."""
    own: Floats = image[row]
    if row >= len(strings):
        return own
    others = [i for i in range(row) if strings[i] != strings[row]]
    if not others:
        return own
    weights = text[others]
    weights = weights / (weights.sum() + 1e-8)
    interference = (image[others] * weights.reshape(-1, 1)).sum(0)
    cleaned: Floats = np.clip(own - interference * _line_search(own, interference), 0, None)
    return cleaned


def _line_search(own: Floats, interference: Floats) -> Any:
    try:
        from scipy.optimize import minimize_scalar
    except ImportError:
        raise missing("tam(compat=True) needs SciPy, as the public code does", "compat") from None

    def distance(factor: float) -> Any:
        return np.sum((own - interference * factor) ** 2)

    return minimize_scalar(distance).x


def _finish(image: Floats, text: Floats, sheets: Sequence[Sheet]) -> NDArray[np.uint8]:
    """Joint min-max normalisation of image and text scores, rank filter of every grid, truncation to uint8."""
    together = np.concatenate([image, text])
    with np.errstate(invalid="ignore", divide="ignore"):
        together = (together - together.min()) / (together.max() - together.min())
        grids = [(h, w) for count, h, w in sheets for _ in range(count)]
        parts = np.split(together[: len(image)], list(accumulate(h * w for h, w in grids))[:-1])
        filtered = np.concatenate([_rank_filter(p.reshape(g)).ravel() for p, g in zip(parts, grids, strict=True)])
    levels: NDArray[np.uint8] = (np.nan_to_num(filtered, nan=0.0) * 255).astype(np.uint8)
    return levels


def _rank_filter(image: Floats) -> Floats:
    padded = image
    for axis, side in enumerate(image.shape):
        width = [(1, 1) if axis == other else (0, 0) for other in range(2)]
        padded = np.pad(padded, width, mode="reflect") if side > 1 else np.pad(padded, width, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3)).reshape(*image.shape, 9)
    windows = np.sort(windows, axis=-1)
    mean = windows.mean(-1)
    width = (windows.std(-1) / mean)[..., None]
    kernel = np.exp(-((np.arange(9) - 4) ** 2) / (2 * width**2))
    kernel = kernel / kernel.sum(-1, keepdims=True)
    value = (windows * kernel).sum(-1)
    filtered: Floats = np.where(mean > 0, value, 0).astype(image.dtype)
    return filtered
