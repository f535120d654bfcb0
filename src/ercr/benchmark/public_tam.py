"""The work of TAM's public script, step by step, as a baseline for time and memory; never used to explain.

It generates with all hidden states kept, multiplies every position with the whole vocabulary, fits the interference of
each token with a scalar search and filters each map window by window in Python. The figures of `tam(compat=True)`
agree with the script to the bit; this file agrees with it in what is computed, and when.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ercr.models.base import Adapter, Prepared


@torch.no_grad()
def explain(adapter: Adapter, prepared: Prepared, tokens: int) -> list[NDArray[np.uint8]]:
    """A map per answer token, made the public way."""
    inputs = adapter.collate([prepared], int(adapter.tokenizer.pad_token_id))
    out = adapter.model.generate(
        **inputs,
        max_new_tokens=tokens,
        do_sample=False,
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    logits = [adapter.head(step[-1]) for step in out.hidden_states]
    ids = out.sequences[0].cpu().tolist()
    start = len(prepared.input_ids)
    before = [_record(logits, prepared, ids[int(at)]) for at in prepared.prompt]
    maps, spoken = [], list[NDArray[np.float32]]()
    for index in range(len(logits)):
        own = _record(logits, prepared, ids[start + index])
        scores = _text_scores(logits, prepared, ids[start + index], index)
        maps.append(_finish(_cleaned(own, [*before, *spoken], scores), prepared.geometry.grid))
        spoken.append(own)
    return maps


def _record(logits: list[Any], prepared: Prepared, token: int) -> NDArray[np.float32]:
    column = logits[0][0, prepared.visual.to(logits[0].device), token]
    return np.asarray(prepared.geometry.stitch(column.clip(0).float().cpu()).numpy().ravel(), np.float32)


def _text_scores(logits: list[Any], prepared: Prepared, token: int, index: int) -> NDArray[np.float32]:
    prompt = logits[0][0, prepared.prompt.to(logits[0].device), token]
    answer = [step[0, -1, token] for step in logits[:index]]
    joined = torch.cat([prompt, torch.stack(answer)]) if answer else prompt
    return np.asarray(joined.clip(0).float().cpu().numpy(), np.float32)


def _cleaned(
    own: NDArray[np.float32], others: list[NDArray[np.float32]], scores: NDArray[np.float32]
) -> NDArray[np.float32]:
    from scipy.optimize import minimize_scalar

    if not others:
        return own
    weights = scores / (scores.sum() + 1e-8)
    interference = (np.stack(others) * weights[:, None]).sum(0)
    factor = minimize_scalar(lambda x: np.sum((own - interference * x) ** 2)).x
    return np.clip(own - interference * factor, 0, None)


def _finish(image: NDArray[np.float32], grid: tuple[int, int]) -> NDArray[np.uint8]:
    span = image.max() - image.min()
    scaled = (image - image.min()) / (span if span > 0 else 1)
    return (np.nan_to_num(_window_by_window(scaled.reshape(grid))) * 255).astype(np.uint8)


def _window_by_window(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rank Gaussian filter as the script has it: a Python loop over cells."""
    padded = np.pad(image, 1, mode="reflect" if min(image.shape) > 1 else "edge")
    filtered = np.zeros_like(image)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            window = np.sort(padded[i : i + 3, j : j + 3].flatten())
            mean = window.mean()
            if mean > 0:
                sigma = window.std() / mean
                kernel = np.exp(-((np.arange(9) - 4) ** 2) / (2 * sigma**2 + 1e-12))
                kernel = kernel / np.sum(kernel)
                filtered[i, j] = (window * kernel).sum()
    return filtered
