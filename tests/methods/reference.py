"""The equations once more, in plain float64 NumPy with loops: what the library's tensor code is compared with."""

from __future__ import annotations

import math

import numpy as np


def bilinear(grid, height, width):
    h, w = grid.shape
    out = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            y = min(max((i + 0.5) * h / height - 0.5, 0), h - 1)
            x = min(max((j + 0.5) * w / width - 0.5, 0), w - 1)
            y0, x0 = math.floor(y), math.floor(x)
            y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
            a, b = y - y0, x - x0
            out[i, j] = (
                grid[y0, x0] * (1 - a) * (1 - b)
                + grid[y0, x1] * (1 - a) * b
                + grid[y1, x0] * a * (1 - b)
                + grid[y1, x1] * a * b
            )
    return out


def minmax(a):
    return (a - a.min()) / (a.max() - a.min()) if a.max() > a.min() else np.zeros_like(a)


def rbo(first, second, p):
    total = 0.0
    for d in range(1, len(first) + 1):
        total += p ** (d - 1) * len(set(first[:d]) & set(second[:d])) / d
    return (1 - p) * total


def ranked(logits, k):
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:k]


def rank_filter(image):
    h, w = image.shape
    out = np.zeros((h, w))

    def at(index, size):
        if size == 1:
            return 0
        if index < 0:
            return -index
        return 2 * size - 2 - index if index >= size else index

    for i in range(h):
        for j in range(w):
            window = sorted(image[at(i + a, h), at(j + b, w)] for a in (-1, 0, 1) for b in (-1, 0, 1))
            mean = sum(window) / 9
            if mean <= 0:
                continue
            sigma = math.sqrt(sum((v - mean) ** 2 for v in window) / 9) / mean
            if sigma < 1e-9:
                out[i, j] = window[4]
                continue
            weights = [math.exp(-((r - 4) ** 2) / (2 * sigma**2)) for r in range(9)]
            out[i, j] = sum(v * g for v, g in zip(window, weights, strict=True)) / sum(weights)
    return out


def ercr(views, anchor_grid, rows, logits, p=0.8, k=50, eps=1e-8):
    """Maps of all tokens.

    views: list of (states [N, d], (h, w)); rows: W_U rows of the tokens [S, d]; logits [S, V] that emit them.
    """
    evidence = []
    for row in rows:
        maps = [minmax(bilinear(np.clip(z @ row, 0, None).reshape(g), *anchor_grid)) for z, g in views]
        evidence.append(sum(maps) / len(maps))
    lists = [ranked(list(line), k) for line in logits]
    out, alphas, betas = [], [], []
    for t, own in enumerate(evidence):
        weights = [1 - rbo(lists[j], lists[t], p) for j in range(t)]
        total = sum(weights) + eps
        context = sum((w / total * e for w, e in zip(weights, evidence, strict=False)), np.zeros(anchor_grid))
        beta = (own * context).sum() / ((context * context).sum() + eps)
        out.append(rank_filter(np.clip(own - beta * context, 0, None)))
        alphas.append([w / total for w in weights])
        betas.append(beta)
    return np.array(out), alphas, betas


def tam(image, text, tokens, prompts):
    """Clean TAM: image [S, N] raw maps, text [S, S] scores of row t's class at column j, all clipped."""
    out = []
    for t in range(len(image)):
        others = [j for j in range(t) if tokens[j] != tokens[t]]
        cleaned = image[t].copy()
        if others:
            w = text[t][others] / (text[t][others].sum() + 1e-8)
            context = sum(a * image[j] for a, j in zip(w, others, strict=True))
            cleaned = np.clip(cleaned - (cleaned * context).sum() / ((context**2).sum() + 1e-8) * context, 0, None)
        together = np.concatenate([cleaned.ravel(), text[t][:t]])
        span = together.max() - together.min()
        out.append(rank_filter((cleaned - together.min()) / span if span > 0 else np.zeros_like(cleaned)))
    return np.array(out)
