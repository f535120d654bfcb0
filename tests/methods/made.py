"""Traces made of random numbers over any geometry, and ERCR and TAM over them in plain loops, from their equations."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import torch

from ercr.image.geometry import Geometry, Panel
from ercr.trace.data import TextRows, Trace, View
from tests.methods import reference

SIZE = (30, 40)  # height, width of the picture
WHOLE = (0, 0, 40, 30)
WIDTH, VOCABULARY = 5, 12  # of states; few words, so that some are said twice
WORDS = ["a", "an", "dog", "dogs", "do", "umb", "umbrella", "dig", ".", "..", "A", ""]  # how the vocabulary is spelt
SPELLING = torch.tensor([[ord(letter) for letter in word.lower().ljust(9, "\0")] for word in WORDS])


def one(grid, box):
    return Geometry(SIZE, (Panel(grid, box),))


TILED = Geometry(
    SIZE,
    (Panel((3, 2), (0, 0, 20, 30)), Panel((3, 2), (20, 0, 40, 30)), Panel((2, 3), WHOLE)),
    (1, 2),
)
ANCHORS = [one((3, 4), WHOLE), one((5, 5), (0, -5, 40, 35)), one((4, 4), (5, 0, 35, 30)), TILED]
OTHERS = [
    one((2, 3), WHOLE),
    one((4, 5), (-20, -15, 60, 45)),  # smaller, on a canvas
    one((3, 3), (8, 3, 31, 26)),  # larger than the canvas: the border is not shown
    one((4, 4), (14, -5, 54, 35)),  # half beside it
    TILED,
]
SCALES = (0.5, 0.75, 1.6)


def trace(seed):
    """Four views of one picture, three words of the prompt and six of the answer."""
    rng = np.random.default_rng(seed)
    shown = [ANCHORS[rng.integers(len(ANCHORS))], *(OTHERS[i] for i in rng.permutation(len(OTHERS))[:3])]
    views = []
    for scale, geometry in zip((1.0, *SCALES), shown, strict=True):
        states = rng.normal(0.2, 1, (geometry.tokens, WIDTH))
        states[:, 0] = 1 / 3  # what spells the same everywhere is no evidence
        views.append(View(scale, geometry, torch.from_numpy(states)))
    words = 9
    targets = rng.integers(0, VOCABULARY, words)
    rows = rng.normal(0, 1, (VOCABULARY, WIDTH))
    rows[0], rows[1] = [0.7, 0, 0, 0, 0], 0
    context = rng.random(words) > 0.15
    lists = np.array([rng.permutation(VOCABULARY)[:6] for _ in range(words)])
    matrix = torch.from_numpy(rows)
    text = TextRows(
        torch.from_numpy(context),
        torch.from_numpy(targets),
        torch.from_numpy(rows[targets]),
        torch.from_numpy(rng.normal(0, 1, (words, WIDTH))),
        torch.from_numpy(rng.normal(0, 1, (words, WIDTH))),
        torch.from_numpy(lists),
        torch.from_numpy(-np.sort(-rng.random((words, 6)))),
        torch.from_numpy(np.log(rng.random(words))),
    )
    asked = {"unembed": lambda ids: matrix[ids], "spelling": lambda: SPELLING, "middle": lambda: matrix.mean(0)}
    unused = {"argmax": torch.zeros_like, "spell": list}
    return Trace(torch.arange(words), 3, torch.arange(words), 3, text, tuple(views), VOCABULARY, **asked, **unused)


@cache
def on_picture(geometry):
    """Cells with more than half their area on the picture, cell by cell."""
    (left, top, right, bottom), (rows, columns) = geometry.canvas.edges, geometry.grid

    def share(start, stop, limit):
        return max(Fraction(0), min(stop, limit) - max(start, 0)) / (stop - start)

    def edges(start, stop, cells):
        return [(start + (stop - start) * i / cells, start + (stop - start) * (i + 1) / cells) for i in range(cells)]

    return np.array([
        [share(*y, SIZE[0]) * share(*x, SIZE[1]) > Fraction(1, 2) for x in edges(left, right, columns)]
        for y in edges(top, bottom, rows)
    ])  # fmt: skip


@cache
def centres(geometry):
    (left, top, right, bottom), (rows, columns) = geometry.canvas.edges, geometry.grid
    x = [left + (right - left) * (2 * i + 1) / (2 * columns) for i in range(columns)]
    return [top + (bottom - top) * (2 * i + 1) / (2 * rows) for i in range(rows)], x


@cache
def covered(view, anchor):
    """Cells of the anchor on the picture whose centre lies within what the view was shown."""
    left, top, right, bottom = view.canvas.edges
    (ys, xs), valid = centres(anchor), on_picture(anchor)
    inside = np.array([
        [max(left, 0) < x < min(right, SIZE[1]) and max(top, 0) < y < min(bottom, SIZE[0]) for x in xs] for y in ys
    ])  # fmt: skip
    return valid & inside if (valid & inside).any() else valid


def read(grid, view, at, keep=None):
    """A map of a view's canvas at centres given in pixels; cells that `keep` leaves out are not read."""
    (left, top, right, bottom), (rows, columns) = (float(e) for e in view.edges), view.grid
    keep = np.ones(view.grid, bool) if keep is None else keep
    ys, xs = np.flatnonzero(keep.any(1)), np.flatnonzero(keep.any(0))
    out = np.zeros((len(at[0]), len(at[1])))
    for i, y in enumerate(at[0]):
        for j, x in enumerate(at[1]):
            v = min(max((float(y) - top) / (bottom - top) * rows - 0.5, ys[0]), ys[-1])
            u = min(max((float(x) - left) / (right - left) * columns - 0.5, xs[0]), xs[-1])
            y0, x0 = math.floor(v), math.floor(u)
            y1, x1 = min(y0 + 1, ys[-1]), min(x0 + 1, xs[-1])
            a, b = v - y0, u - x0
            upper = grid[y0, x0] * (1 - b) + grid[y0, x1] * b
            out[i, j] = upper * (1 - a) + (grid[y1, x0] * (1 - b) + grid[y1, x1] * b) * a
    return out


def mosaic(values, geometry):
    """Scores of visual tokens as one map: the tiles side by side, the overview averaged in."""
    count = geometry.layout[0] * geometry.layout[1]
    parts, start = [], 0
    for panel in geometry.panels:
        parts.append(values[start : start + panel.tokens].reshape(panel.grid))
        start += panel.tokens
    whole = np.block([[parts[r * geometry.layout[1] + c] for c in range(geometry.layout[1])]
                      for r in range(geometry.layout[0])])  # fmt: skip
    overviews = [read(part, panel, centres(geometry)) for part, panel in
                 zip(parts[count:], geometry.panels[count:], strict=True)]  # fmt: skip
    return np.mean([whole, *overviews], 0)


def spread(values, among):
    """Min-max over some of the values; all 0 where they are equal, and elsewhere."""
    low, high = values[among].min(), values[among].max()
    flat = high - low <= 1e-6 * abs(high)
    return np.where(among, 0 if flat else (values - low) / (high - low or 1), 0)


def logits(trace, view):
    return view.states.numpy() @ trace.text.unembedding.numpy().T


def evidence(trace, settings, logits=logits):
    """Recomposed maps, and those of each view alone."""
    anchor, rows = trace.views[0].geometry, trace.text.unembedding.numpy()
    views = [next(v for v in trace.views if v.scale == scale) for scale in settings.scales]
    shown = np.array([covered(v.geometry, anchor) for v in views])
    alone = np.zeros((len(views), len(rows), *anchor.grid))
    for at, view in enumerate(views):
        scores = logits(trace, view)
        scores = np.clip(scores, 0, None) if settings.clip else scores
        for t in range(len(rows)):
            own = mosaic(scores[:, t], view.geometry)
            same = view.geometry.canvas == anchor.canvas
            warped = own if same else read(own, view.geometry.canvas, centres(anchor), on_picture(view.geometry))
            alone[at, t] = spread(warped, shown[at])
    if settings.aggregate == "max":
        return alone.max(0), alone
    weights = np.array(settings.weights or [1.0] * len(views))[:, None, None] * shown
    total = weights.sum(0)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return (alone * shares[:, None]).sum(0), alone


def text_scores(trace):
    return np.clip(trace.text.unembedding.numpy() @ trace.text.read_states.numpy().T, 0, None)


def ercr(trace, settings, logits=logits):
    """Final maps, weights, fits and relevance of every word."""
    maps, _ = evidence(trace, settings, logits)
    valid, context = on_picture(trace.geometry), trace.text.context.numpy()
    targets, lists = trace.text.targets.tolist(), trace.text.top_ids[:, : settings.k].tolist()
    spelled = text_scores(trace)
    out, betas, alphas = [], [], np.zeros((len(maps), len(maps)))
    overlap = np.array([[reference.rbo(a, b, settings.p) for b in lists] for a in lists])
    for t, own in enumerate(maps):
        before = [j for j in range(t) if context[j]]
        used = [j for j in before if not (settings.exclude_repeats and targets[j] == targets[t])]
        kinds = {"pcr": 1 - overlap[t], "tam": spelled[t], "mean": np.ones(len(maps)), "none": np.zeros(len(maps))}
        weights = {j: kinds[settings.context][j] for j in used}
        for j in used:
            alphas[t, j] = weights[j] / (sum(weights.values()) + settings.eps)
        blend = (alphas[t][:, None, None] * maps).sum(0)
        beta = (own * blend).sum() / ((blend * blend).sum() + settings.eps)
        cleaned = np.clip(own - beta * blend, 0, None)
        if settings.normalize != "none":
            more = spelled[t][before] if settings.normalize == "joint" else []
            cleaned = jointly(cleaned, valid, more)
        betas.append(beta)
        out.append(reference.rank_filter(cleaned) * valid if settings.filter else cleaned)
    return np.array(out), alphas, np.array(betas), overlap


def jointly(map_, valid, more):
    """Min-max of a map's cells on the picture together with some further scores."""
    values = np.append(map_[valid], more)
    low, high = values.min(), values.max()
    return np.where(valid, (map_ - low) / (high - low), 0) if high - low > 1e-6 * abs(high) else np.zeros_like(map_)


def tam(trace, filtered=True, logits=logits):
    valid = on_picture(trace.geometry)
    scores = np.clip(logits(trace, trace.views[0]).T, 0, None)
    maps = np.array([mosaic(line, trace.geometry) for line in scores])
    targets, context, spelled = trace.text.targets.tolist(), trace.text.context.numpy(), text_scores(trace)
    out = []
    for t, own in enumerate(maps):
        before = [j for j in range(t) if context[j]]
        others = [j for j in before if targets[j] != targets[t]]
        total = sum(spelled[t][j] for j in others) + 1e-8
        blend = sum((spelled[t][j] / total * maps[j] for j in others), np.zeros(trace.geometry.grid))
        cleaned = np.clip(own - (own * blend).sum() / ((blend * blend).sum() + 1e-8) * blend, 0, None)
        cleaned = jointly(cleaned, valid, spelled[t][before])
        out.append(reference.rank_filter(cleaned) * valid if filtered else cleaned)
    return np.array(out), maps
