"""The work of TAM's public script, step by step, as a baseline for time and memory; never used to explain.

It generates with all hidden states kept and multiplies every position with the whole vocabulary. Then each text token,
first the prompt's, then the answer's, is one call: decode and tokenise the texts again, read the token's scores at all
positions, fit the interference of the earlier tokens with a scalar search, find the three best candidates, and filter
the map window by window in Python. The maps of `tam(compat=True)` are bit-identical to the
script's; this file only repeats the same computations equally often.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ercr.models.base import Adapter
from ercr.models.inputs import Prepared

Floats = NDArray[np.float32]


@torch.no_grad()
def explain(adapter: Adapter, prepared: Prepared, tokens: int) -> list[NDArray[np.uint8]]:
    """A map per text token, computed as the public script does."""
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
    start, prompt = len(prepared.input_ids), prepared.prompt.tolist()
    calls = [(0, at, ids[at]) for at in prompt]  # round of generation, position, class
    if prompt:
        calls[0] = (0, prompt[0], int(logits[0][0, prompt[0]].argmax()))
    calls += [(0, start - 1, ids[start - 1])]
    calls += [(step, -1, ids[start + step]) for step in range(1, len(logits))]
    maps, records = [], list[Floats]()
    for row, (step, position, class_id) in enumerate(calls):
        strings = _strings(adapter, ids, prompt, start)
        column = torch.cat([logits[i][0, :, class_id] for i in range(step + 1)], -1).clip(min=0)
        scores = np.asarray(column.detach().cpu().float().numpy())
        image = torch.from_numpy(scores[prepared.visual.numpy()])
        own = np.asarray(prepared.geometry.stitch(image).numpy().ravel(), np.float32)
        text = np.concatenate([scores[prompt], scores[start - 1 :]])
        cleaned = _cleaned(own, records, text, row, strings)
        candidates = logits[step][0, position].topk(3)
        adapter.tokenizer.batch_decode(candidates.indices[:, None].tolist())
        maps.append(_finish(cleaned, text[: len(prompt)] if row < len(prompt) else text[:row], prepared.geometry.grid))
        records.append(own)
    return maps


def _strings(adapter: Adapter, ids: list[int], prompt: list[int], start: int) -> list[str]:
    """The strings of prompt and answer, tokenised again for every token."""
    found = [adapter.tokenizer.tokenize(adapter.tokenizer.decode(p)) for p in ([ids[i] for i in prompt], ids[start:])]
    return [*(found[0] + [""] * len(prompt))[: len(prompt)], *found[1]]


def _cleaned(
    own: NDArray[np.float32],
    records: list[NDArray[np.float32]],
    text: NDArray[np.float32],
    row: int,
    strings: list[str],
) -> NDArray[np.float32]:
    from scipy.optimize import minimize_scalar

    others = [i for i in range(row) if row < len(strings) and strings[i] != strings[row]]
    if not others:
        return own
    weights = text[others] / (text[others].sum() + 1e-8)
    interference = (np.stack([records[i] for i in others]) * weights[:, None]).sum(0)
    factor = minimize_scalar(lambda x: np.sum((own - interference * x) ** 2)).x
    return np.asarray(np.clip(own - interference * factor, 0, None), np.float32)


def _finish(image: Floats, text: Floats, grid: tuple[int, int]) -> NDArray[np.uint8]:
    low, high = min(image.min(), text.min(initial=np.inf)), max(image.max(), text.max(initial=-np.inf))
    scaled = (image - low) / (high - low if high > low else 1)
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
