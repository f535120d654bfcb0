"""ERCR once more, from a picture and words to maps, for what users run: padded, tiled and enlarged views.

Written from the equations and from what the method's definition says of views, and not from the package's code. It
asks the model through transformers alone (float64, one pass per view), makes its own canvases, and reads maps by
loops. Of the package's explainer it takes the loaded model, the tokenizer and the image processor; of an explanation
the answer's token ids.

A view is held as two axes. On each, everything is counted in pixels of the canvas that the tower receives: where the
picture begins there, how long it is, and how long a cell is. Whole pixels and fractions, so nothing is rounded.
"""

from __future__ import annotations

import contextlib
import functools
import math
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from PIL import Image

from tests.methods import leans, reference

FLAT = 1e-6  # a map whose span is below this share of its highest value is constant but for rounding


@dataclass(frozen=True)
class Axis:
    """One direction of a canvas: pixels, cells, and the picture's place in it."""

    pixels: int
    cells: int
    start: Fraction  # of the picture; below 0 where the canvas cuts it
    length: Fraction
    lean: Fraction = Fraction(0)  # pixels by which the tower looks beside the middle of its cells

    @property
    def cell(self):
        return Fraction(self.pixels, self.cells)

    def share(self, i):
        """How much of a cell lies on the picture."""
        low, high = max(i * self.cell, self.start), min((i + 1) * self.cell, self.start + self.length)
        return max(high - low, Fraction(0)) / self.cell

    def centre(self, i):
        """Where in the picture a cell looks, 0 at its beginning and 1 at its end."""
        return ((i + Fraction(1, 2)) * self.cell + self.lean - self.start) / self.length

    def shows(self, place):
        return 0 < place < 1 and 0 < self.start + place * self.length < self.pixels

    def at(self, place):
        """A place of the picture, counted in cells from the middle of the first."""
        return (self.start + place * self.length - self.lean) / self.cell - Fraction(1, 2)


@dataclass(frozen=True)
class Canvas:
    upright: Axis
    across: Axis

    def valid(self):
        """Cells with more than half their area on the picture; the fullest where none has."""
        area = [
            [self.upright.share(i) * self.across.share(j) for j in range(self.across.cells)]
            for i in range(self.upright.cells)
        ]
        most = max(max(row) for row in area)
        return np.array([[share > Fraction(1, 2) or (most <= Fraction(1, 2) and share == most) for share in row]
                         for row in area])  # fmt: skip

    def places(self):
        """Where its cells look, row by row."""
        across = [self.across.centre(j) for j in range(self.across.cells)]
        return [(self.upright.centre(i), x) for i in range(self.upright.cells) for x in across]

    def reading(self, places, within=None):
        """The bilinear reading of its maps at places, as weights [places, cells]; `within` are the cells to read."""
        height, width = self.upright.cells, self.across.cells
        rows, columns = within or (range(height), range(width))
        weights = []
        for y, x in places:
            weights.append(np.zeros((height, width)))
            for i, a in _neighbours(self.upright.at(y), rows):
                for j, b in _neighbours(self.across.at(x), columns):
                    weights[-1][i, j] = float(a * b)
        return np.array(weights).reshape(len(weights), -1)


def _neighbours(at, cells):
    first, last = int(min(cells)), int(max(cells))
    at = min(max(at, first), last)
    low = math.floor(at)
    return [(low, 1 - (at - low))] + ([(low + 1, at - low)] if at > low else [])


@dataclass(frozen=True)
class Shown:
    """A picture as the model gets it: what goes in, and where the visual tokens lie."""

    inputs: dict[str, torch.Tensor]
    canvas: Canvas  # of the stitched tiles
    tiles: tuple[int, int] = (1, 1)
    thumbnail: Canvas | None = None

    @property
    def tokens(self):
        small = self.thumbnail
        extra = small.upright.cells * small.across.cells if small else 0
        return self.canvas.upright.cells * self.canvas.across.cells + extra

    def maps(self, values):
        """Scores [S, tokens] in the model's order as maps: tiles side by side, the thumbnail averaged in."""
        (rows, columns), height, width = self.tiles, self.canvas.upright.cells, self.canvas.across.cells
        out, at = np.zeros((len(values), height, width)), 0
        for top in range(0, height, height // rows):
            for left in range(0, width, width // columns):
                for y in range(top, top + height // rows):
                    for x in range(left, left + width // columns):
                        out[:, y, x] = values[:, at]
                        at += 1
        if self.thumbnail:
            over = values[:, at:] @ self.thumbnail.reading(self.canvas.places()).T
            out = (out + over.reshape(out.shape)) / 2
        return out


# how each family is shown a picture


class Family:
    """A loaded model in float64, and how its pictures and prompts are made."""

    def __init__(self, explainer):
        adapter = explainer.adapter
        self.model = deepcopy(adapter.model).double().eval()
        self.config, self.processor = self.model.config, adapter.image_processor
        self.tokenizer, self.template = adapter.tokenizer, adapter.chat_template

    def numbers(self, picture):
        mean, std = (np.array(getattr(self.processor, name)) for name in ("image_mean", "image_std"))
        values = (np.asarray(picture, np.float64) / 255 - mean) / std
        return torch.from_numpy(values.transpose(2, 0, 1).copy())

    def resized(self, picture, height, width):
        return picture.resize((width, height), Image.Resampling(int(self.processor.resample)))

    def pasted(self, picture, height, width, content):
        """The picture at the size `content` in the middle of a canvas of the mean colour, and its two axes' starts."""
        colour = tuple(round(c * 255) for c in self.processor.image_mean)
        sheet = Image.new("RGB", (width, height), colour)
        starts = [math.floor((side - length) / 2) for side, length in zip((height, width), content, strict=True)]
        sheet.paste(self.resized(picture, *content), (starts[1], starts[0]))
        return sheet, starts

    def features_of_any_size(self, kind):
        return contextlib.nullcontext()


class Qwen(Family):
    image_token = "<|image_pad|>"

    def __init__(self, explainer):
        super().__init__(explainer)
        self.side = self.processor.patch_size * self.processor.merge_size

    def smart(self, height, width, least, most):
        """The family's rule: whole cells, and an area between two limits."""
        cell = self.side
        high, wide = round(height / cell) * cell, round(width / cell) * cell
        if high * wide > most:
            shrink = math.sqrt(height * width / most)
            high, wide = (max(cell, math.floor(side / shrink / cell) * cell) for side in (height, width))
        elif high * wide < least:
            grow = math.sqrt(least / (height * width))
            high, wide = (math.ceil(side * grow / cell) * cell for side in (height, width))
        return high, wide

    def _on(self, picture, height, width):
        made = self.processor(images=[self.resized(picture, height, width)], do_resize=False, return_tensors="pt")
        inputs = {"pixel_values": made["pixel_values"].double(), "image_grid_thw": made["image_grid_thw"]}
        sides = (Axis(side, side // self.side, Fraction(0), Fraction(side)) for side in (height, width))
        return Shown(inputs, Canvas(*sides))

    def anchor(self, picture):
        size = self.processor.size
        limits = size["shortest_edge"], size["longest_edge"]
        return self._on(picture, *self.smart(picture.height, picture.width, *limits))

    def view(self, picture, scale, kind):
        """By the factor, then by the rule without its limits; where a limit set the anchor's size, that is scaled."""
        anchor = self.anchor(picture).canvas
        sides = anchor.upright.pixels, anchor.across.pixels
        free = tuple(max(self.side, round(side / self.side) * self.side) for side in (picture.height, picture.width))
        base = (picture.height, picture.width) if sides == free else sides
        height, width = (max(1, round(side * scale)) for side in base)
        small = self.resized(picture, height, width)
        return self._on(small, *(max(self.side, round(side / self.side) * self.side) for side in (height, width)))

    def written(self, count):
        return self.image_token * count

    def further(self, ids):
        return {"mm_token_type_ids": (ids == self.config.image_token_id).int()}


class Llava(Family):
    image_token = "<image>"

    def __init__(self, explainer):
        super().__init__(explainer)
        self.patch = self.config.vision_config.patch_size
        size = dict(self.processor.size)
        self.edge, self.whole = size.get("shortest_edge") or size["height"], "height" in size
        self.pads = bool(getattr(self.processor, "do_pad", False))
        self.free = getattr(self.config.vision_config, "any_size", False)

    def placed(self, picture, edge):
        """Where the picture lies on the official canvas: squeezed, in a padded square, or cut to the middle."""
        sides = picture.height, picture.width
        if self.whole:
            return [(Fraction(0), Fraction(edge))] * 2
        if self.pads:
            square = max(sides)
            return [(Fraction((square - side) // 2 * edge, square), Fraction(side * edge, square)) for side in sides]
        longer = [edge if side == min(sides) else int(edge * side / min(sides)) for side in sides]
        return [(Fraction(-((length - edge) // 2)), Fraction(length)) for length in longer]

    def official(self, picture, edge):
        if self.whole:
            values = self.numbers(self.resized(picture, edge, edge))[None]
        else:
            more = {"size": {"shortest_edge": edge}, "crop_size": {"height": edge, "width": edge}}
            values = self.processor(images=[picture], return_tensors="pt", **more)["pixel_values"].double()
        return self._shown(values, edge, self.placed(picture, edge))

    def _shown(self, values, edge, placed):
        sides = (
            Axis(edge, edge // self.patch, Fraction(a), Fraction(length), lean)
            for (a, length), lean in zip(placed, self.lean(edge), strict=True)
        )
        return Shown({"pixel_values": values}, Canvas(*sides))

    def lean(self, edge):
        """Pixels by which the tower looks below and to the right of its cells' middles."""
        return leans.of(self.model.model.vision_tower, edge) if self.free else (Fraction(0), Fraction(0))

    def anchor(self, picture):
        return self.official(picture, self.edge)

    def view(self, picture, scale, kind):
        if kind == "interpolate" or self.free:
            step = self.patch
            if self.free and self.edge % 32 == 0:  # every stride of the tower divides its canvas
                step = 32
            return self.official(picture, max(1, round(self.edge / step * scale)) * step)
        content = [max(1, round(float(length) * scale)) for _, length in self.placed(picture, self.edge)]
        sheet, starts = self.pasted(picture, self.edge, self.edge, content)
        return self._shown(self.numbers(sheet)[None], self.edge, list(zip(starts, content, strict=True)))

    def written(self, count):
        return self.image_token * count

    def further(self, ids):
        return {}

    @contextlib.contextmanager
    def features_of_any_size(self, kind):
        """Position embeddings are interpolated where the tower has some; the option does not reach it otherwise."""
        tower = self.model.model.vision_tower
        if kind == "interpolate" and not self.free:
            tower.forward = functools.partial(tower.forward, interpolate_pos_encoding=True)
        try:
            yield
        finally:
            tower.__dict__.pop("forward", None)


class Intern(Family):
    image_token = "<IMG_CONTEXT>"

    def __init__(self, explainer):
        super().__init__(explainer)
        self.tile = self.processor.size["height"]
        patch = self.config.vision_config.patch_size
        patch = patch[0] if isinstance(patch, list | tuple) else patch
        self.side = round(patch / self.config.downsample_ratio)

    def layout(self, picture):
        """Rows and columns of tiles: the nearest aspect ratio, of equals the larger one if pixels abound."""
        most, best, nearest = self.processor.max_patches, (1, 1), math.inf
        for count in range(self.processor.min_patches, most + 1):
            for columns in (c for c in range(1, count + 1) if count % c == 0):
                rows = count // columns
                away = abs(picture.width / picture.height - columns / rows)
                abounds = picture.width * picture.height > 0.5 * self.tile**2 * count
                if away < nearest or (away == nearest and abounds):
                    best, nearest = (rows, columns), away
        return best

    def _sheet(self, picture, height, width, scale):
        content = [max(1, round(side * scale)) for side in (height, width)]
        sheet, starts = self.pasted(picture, height, width, content)
        sides = zip((height, width), starts, content, strict=True)
        return sheet, [(side, Fraction(start), Fraction(length)) for side, start, length in sides]

    def _on(self, picture, tile, scale):
        rows, columns = self.layout(picture)
        cell = Fraction(tile, round(self.tile / self.side) if tile == self.tile else tile // self.side)
        sheet, placed = self._sheet(picture, rows * tile, columns * tile, scale)
        parts = [
            sheet.crop((c * tile, r * tile, (c + 1) * tile, (r + 1) * tile))
            for r in range(rows)
            for c in range(columns)
        ]
        small = None
        if rows * columns > 1:
            sheet, own = self._sheet(picture, tile, tile, scale)
            parts.append(sheet)
            small = self._canvas(own, cell)
        values = torch.stack([self.numbers(part) for part in parts])
        return Shown({"pixel_values": values}, self._canvas(placed, cell), (rows, columns), small)

    def _canvas(self, placed, cell):
        return Canvas(*(Axis(side, int(side / cell), start, length) for side, start, length in placed))

    def anchor(self, picture):
        return self._on(picture, self.tile, 1.0)

    def view(self, picture, scale, kind):
        if kind == "interpolate":
            return self._on(picture, max(1, round(self.tile // self.side * scale)) * self.side, 1.0)
        return self._on(picture, self.tile, scale)

    def written(self, count):
        return f"<img>{self.image_token * count}</img>"

    def further(self, ids):
        return {}


KINDS = {"qwen2_vl": Qwen, "qwen2_5_vl": Qwen, "llava": Llava, "internvl": Intern}


def around(explainer):
    """The oracle of a loaded model."""
    return KINDS[explainer.adapter.config.model_type](explainer)


# a run of the model, and the method


@dataclass(frozen=True)
class Run:
    states: np.ndarray  # [L, d] behind the final norm
    logits: np.ndarray  # [L, V]


def run(family, shown, ids, kind="pad"):
    ids = torch.as_tensor(ids)[None]
    with torch.no_grad(), family.features_of_any_size(kind):
        out = family.model(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True, use_cache=False,
            **shown.inputs, **family.further(ids),
        )  # fmt: skip
    return Run(out.hidden_states[-1][0].numpy(), out.logits[0].numpy())


def sequence(family, shown, prompt):
    """Token ids of the conversation up to the answer, and which of them the user wrote."""
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    text = family.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], chat_template=family.template, tokenize=False,
        add_generation_prompt=True,
    )  # fmt: skip
    before, after = text.split(family.image_token)
    text = before + family.written(shown.tokens) + after
    begin = text.rindex(prompt)
    bos = family.tokenizer.bos_token
    made = family.tokenizer(text, add_special_tokens=not (bos and text.startswith(bos)), return_offsets_mapping=True)
    own = [i for i, (a, b) in enumerate(made["offset_mapping"]) if a < begin + len(prompt) and b > begin]
    return made["input_ids"], own


@dataclass(frozen=True)
class Found:
    """Maps [S, h, w] of all text tokens and everything on the way to them."""

    maps: np.ndarray
    evidence: np.ndarray
    raw: np.ndarray | None  # of the unscaled view alone
    alpha: np.ndarray
    beta: np.ndarray
    relevance: np.ndarray


def explain(family, picture, prompt, answer, scales=(0.5, 0.75, 1.0), kind="pad", normalize="none", k=50, p=0.8,
            eps=1e-8):  # fmt: skip
    """The default method over a given answer (token ids)."""
    anchor = family.anchor(picture)
    asked, own = sequence(family, anchor, prompt)
    ids = [*asked, *answer]
    image = family.tokenizer.convert_tokens_to_ids(family.image_token)
    places = [i for i, token in enumerate(ids) if token == image]
    whole = run(family, anchor, ids)
    rows = [*own, *range(len(asked), len(ids))]
    views = []
    for scale in scales:
        if scale == 1.0:
            views.append((anchor, whole.states[places]))
            continue
        view = family.view(picture, scale, kind)
        seen = [*ids[: places[0]], *[image] * view.tokens]  # nothing behind the image: it would not be seen
        views.append((view, run(family, view, seen, kind).states[places[0] :]))
    unembedding = family.model.get_output_embeddings().weight.detach().numpy()
    counted = anchor.canvas.valid()
    evidence, each = recompose(views, anchor.canvas, counted, unembedding[[ids[i] for i in rows]])
    context = [ids[i] not in family.tokenizer.all_special_ids for i in rows]
    lists = [reference.ranked(list(whole.logits[i - 1].astype(np.float32)), k) for i in rows]
    spelled = [whole.states[i if i < len(asked) else i - 1] for i in rows]
    text = np.clip(np.array([[unembedding[ids[i]] @ state for state in spelled] for i in rows]), 0, None)
    maps, alpha, beta, relevance = residualize(evidence, lists, context, counted, text, normalize, p, eps)
    raw = each[scales.index(1.0)] if 1.0 in scales and len(scales) > 1 else None
    return Found(maps, evidence, raw, alpha, beta, relevance)


def recompose(views, anchor, counted, targets):
    """Equations 5 to 7: read each view, warp it, stretch it over the cells that count, average those that show."""
    places, grid = anchor.places(), counted.shape
    shows, reads = [], []
    for shown, states in views:
        canvas, valid = shown.canvas, shown.canvas.valid()
        lit = [canvas.upright.shows(y) and canvas.across.shows(x) for y, x in places] & counted.ravel()
        shows.append((lit if lit.any() else counted).reshape(grid))
        maps = shown.maps(np.clip(targets @ states.T, 0, None))
        if canvas != anchor:
            weights = canvas.reading(places, (np.flatnonzero(valid.any(1)), np.flatnonzero(valid.any(0))))
            maps = (maps.reshape(len(maps), -1) @ weights.T).reshape(-1, *grid)
        reads.append(maps)
    each = np.array([[stretch(m, lit) for m in maps] for maps, lit in zip(reads, shows, strict=True)])
    votes = np.array(shows).sum(0)
    return each.sum(0) / np.maximum(votes, 1), each


def stretch(values, counted, beside=()):
    """Min-max over the cells that count (and further scores); a constant map and other cells are 0."""
    known = [*values[counted], *beside]
    low, high = min(known), max(known)
    if high - low <= FLAT * abs(high):
        return np.zeros_like(values)
    return np.where(counted, (values - low) / (high - low), 0.0)


def residualize(evidence, lists, context, counted, text, normalize, p, eps):
    """Equations 11 to 18."""
    count = len(evidence)
    alpha, relevance = np.zeros((count, count)), np.zeros((count, count))
    maps, beta = [], []
    for t, own in enumerate(evidence):
        before = [j for j in range(t) if context[j]]
        for j in before:
            relevance[t, j] = reference.rbo(lists[j], lists[t], p)
        total = sum(1 - relevance[t, j] for j in before) + eps
        for j in before:
            alpha[t, j] = (1 - relevance[t, j]) / total
        shared = sum((alpha[t, j] * evidence[j] for j in before), np.zeros_like(own))
        beta.append((own * shared).sum() / ((shared * shared).sum() + eps))
        left = np.clip(own - beta[-1] * shared, 0, None)
        if normalize == "joint":
            left = stretch(left, counted, text[t, before])
        maps.append(reference.rank_filter(left) * counted)
    return np.array(maps), alpha, np.array(beta), relevance


def difference(told, found):
    """The largest difference between an explanation and the oracle's, in maps, stages, weights, fit and relevance."""
    before = np.tril(np.ones_like(found.alpha), -1) > 0
    pairs = [(told.maps, found.maps), (told.stages["evidence"], found.evidence), (told.alpha, found.alpha),
             (told.beta, found.beta), (told.relevance[found.alpha > 0], found.relevance[found.alpha > 0])]  # fmt: skip
    if found.raw is not None:
        pairs.append((told.stages["raw"], found.raw))
    assert not told.alpha[~before].any(), "a word is context of earlier words"
    return max(float(np.abs(np.asarray(a, np.float64) - b).max(initial=0)) for a, b in pairs)
