"""The stages of the recipe for pairs and clips: as for scenes, with several pictures or slices before the words."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ercr.datasets.scenes.compose import MOST, Packed, compose, visible

from .augment import bend, develop, touch
from .clips_batches import Part, Planned
from .families import Qwen2VL, Seen, language
from .stages import CONTENT, FINE, LENS, READABLE, Trainer
from .symbolic import dense_loss, lens_loss

PAIR = 2  # frames that a visual token covers


@dataclass(frozen=True)
class Shown:
    """A part as the tower takes it, in slices of time: one for a picture."""

    seen: Seen  # pixels [B * slices, patches, values], cells [B, slices * N, MOST + 1]
    slices: int


class ClipsTrainer(Trainer):
    """The trainer for scenes, which also draws and reads pairs and clips."""

    family: Qwen2VL

    def __init__(
        self, family: Qwen2VL, model: Any, tokenizer: PreTrainedTokenizerFast, bank: Tensor, device: torch.device
    ) -> None:
        super().__init__(family, model, tokenizer, bank, device)
        self.tokenizer = tokenizer
        ids = tokenizer.encode("<|vision_end|><|vision_start|>", add_special_tokens=False)
        self.between = torch.tensor(ids, device=device)

    def show(self, part: Part, plain: bool = False) -> Shown:
        """A part as its family takes it."""
        if part.path is None:
            return Shown(self.draw(part.facts, plain), 1)
        facts, path = part.facts, part.path
        count, frames = path.shape[:2]
        rows, columns = self.family.cells(
            round(facts.packed.width * facts.scale), round(facts.packed.height * facts.scale)
        )
        packed = facts.packed if plain else bend(facts.packed, facts.tint >= 0)
        coarse = _frames(replace(packed, width=columns * FINE, height=rows * FINE), path)
        maps = F.avg_pool2d(visible(coarse, self.small).float(), FINE)
        maps = maps.view(count, frames // PAIR, PAIR, MOST, rows, columns).mean(2)
        maps = torch.cat([maps, torch.ones_like(maps[:, :, :1])], 2)
        cells = maps.permute(0, 1, 3, 4, 2).flatten(1, 3)
        pixels = None
        if self.stage > 0:
            fine = _frames(replace(packed, width=columns * self.family.cell, height=rows * self.family.cell), path)
            bank = self.bank if facts.scale > 0.8 else self.small
            shadows = plain or random.random() < 0.5
            pictures = compose(fine, bank, touch=None if plain else touch, shadows=shadows, frames=frames)
            if not plain:  # the frames of a clip below each other, so that they change alike
                tall = pictures.view(count, frames, *pictures.shape[1:]).transpose(1, 2).flatten(2, 3)
                tall = develop(tall).unflatten(2, (frames, -1)).transpose(1, 2)
                pictures = tall.flatten(0, 1)
            pixels = self.family.patches_of_clips(pictures, rows, columns, PAIR)
        seen = Seen(pixels, cells, cells.new_empty(cells.shape[1], 2), (rows, columns))
        return Shown(seen, frames // PAIR)

    def see(self, shown: Shown) -> Tensor:
        """The visual tokens [B, slices * N, WIDTH]."""
        tokens = self.family.see(self.model, shown.seen)
        return tokens.reshape(len(shown.seen.cells), -1, tokens.shape[-1])

    def losses(self, batch: Any, into: float) -> dict[str, Tensor]:
        planned: Planned = batch
        with torch.no_grad():
            shown = [self.show(part) for part in planned.parts]
        found: dict[str, Tensor] = {}
        visual: list[Tensor] = []
        if self.stage > 0:
            visual = [self.see(one) for one in shown]
            parts = zip(visual, planned.parts, shown, strict=True)
            dense = [dense_loss(self.symbols, self.table, v, part.facts, one.seen) for v, part, one in parts]
            mean = torch.stack(dense).mean()
            found["dense"] = mean if self.stage == 1 else max(READABLE, 1 - 2 * into) * mean
        if self.stage < 2:
            rough = self.stage > 0 or into > 0.5
            visual = [
                self.symbols.write(self.table, part.facts, one.seen, rough).to(self.table.dtype)
                for part, one in zip(planned.parts, shown, strict=True)
            ]
        return {**found, **self.said(visual, planned, shown)}

    def said(self, visual: list[Tensor], planned: Planned, shown: list[Shown]) -> dict[str, Tensor]:
        """The losses of saying the answer after these visual tokens, and of reading the nouns off them."""
        hidden, places = self.read(visual, planned.text, shown)
        start = places[-1].stop - 1  # each state says the token behind it
        logits = self.model.lm_head(hidden[:, start : start + planned.text.shape[1]])
        caption = F.cross_entropy(
            logits.float().flatten(0, 1), planned.labels.flatten(), self.symbols.emphasis(CONTENT)
        )
        states = torch.cat([hidden[:, place] for place in places], 1)
        joint = _together(planned, shown)
        lens = lens_loss(self.symbols, self.table, states, *joint)
        return {"caption": caption, "lens": LENS * lens}

    def read(self, visual: list[Tensor], text: Tensor, shown: list[Shown]) -> tuple[Tensor, list[slice]]:
        """Final states [B, L, WIDTH] of a whole sample, and where in it the visual tokens of each part stand."""
        count = len(visual[0])
        marks = [self.before, *[self.between] * (len(visual) - 1)]
        parts, places, length = list[Tensor](), list[slice](), 0
        for mark, tokens in zip(marks, visual, strict=True):
            parts += [F.embedding(mark, self.table).expand(count, -1, -1), tokens]
            length += len(mark)
            places.append(slice(length, length + tokens.shape[1]))
            length += tokens.shape[1]
        embeds = torch.cat([*parts, F.embedding(text, self.table)], 1)
        positions = self.positions(marks, shown, embeds.shape[1])
        return language(self.model, embeds, positions), places

    def positions(self, marks: list[Tensor], shown: list[Shown], total: int) -> Tensor:
        """Positions [3, 1, L]: text goes on behind the longer side of a picture or a slice, as in the model itself."""
        parts, start = list[Tensor](), 0
        for mark, one in zip(marks, shown, strict=True):
            rows, columns = one.seen.grid
            parts.append((torch.arange(len(mark)) + start).expand(3, -1))
            start += len(mark)
            grid = torch.meshgrid(torch.arange(one.slices), torch.arange(rows), torch.arange(columns), indexing="ij")
            parts.append(torch.stack(grid).flatten(1) + start)
            start += max(rows, columns)
        done = sum(part.shape[1] for part in parts)
        parts.append((torch.arange(total - done) + start).expand(3, -1))
        return torch.cat(parts, 1)[:, None].to(self.device)


def _frames(packed: Packed, path: Tensor) -> Packed:
    """Clips [B] as scenes [B * frames], each with its things where they are in that frame."""
    frames = path.shape[1]
    turned = packed.place[..., :2]  # [B, MOST, 2, 2]
    shift = torch.einsum("bkij,bfkj->bfki", turned, path)
    place = torch.cat([turned[:, None].expand(-1, frames, -1, -1, -1), shift[..., None]], -1)
    spread = {
        name: value.repeat_interleave(frames, 0) for name, value in vars(packed).items() if isinstance(value, Tensor)
    }
    active = tuple(rows * frames for rows in packed.active)
    return replace(packed, **{**spread, "place": place.flatten(0, 1), "active": active})


def _together(planned: Planned, shown: list[Shown]) -> tuple[Any, Seen]:
    """All parts as one: things of one part are in no cell of another."""
    if len(shown) == 1:
        return planned.parts[0].facts, shown[0].seen
    nouns = torch.cat([part.facts.noun for part in planned.parts], 1)
    blocks = [one.seen.cells[..., :-1] for one in shown]
    rows = [
        torch.cat([block if i == j else block.new_zeros(*block.shape[:2], MOST) for j in range(len(blocks))], -1)
        for i, block in enumerate(blocks)
    ]
    cells = torch.cat(rows, 1)
    whole = torch.cat([cells, torch.ones_like(cells[..., :1])], -1)
    return replace(planned.parts[0].facts, noun=nouns), replace(shown[0].seen, cells=whole)
