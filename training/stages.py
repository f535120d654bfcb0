"""The three stages of the recipe: the language model, then language model and vision tower apart, then both together.

A  the language model alone, on symbolic images;
B  the language model continues, while the vision tower learns to write the same symbols from pixels;
C  everything together on captions of pictures, with a weak loss that keeps the cells readable.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from ercr.datasets.scenes.compose import Packed, compose, visible

from .augment import bend, develop, touch
from .batches import Batch
from .families import Family, Seen, language
from .symbolic import Symbols, dense_loss, lens_loss


@dataclass(frozen=True)
class Stage:
    name: str
    share: float  # of the whole training time
    peak: float
    floor: float  # what is left of the peak at the end


STAGES = (Stage("A", 0.18, 1.5e-3, 0.7), Stage("B", 0.34, 1.2e-3, 0.6), Stage("C", 0.48, 1e-3, 0.01))
READABLE = 0.3  # what is left of the dense loss's weight halfway through stage C
LENS = 0.15  # weight of the lens loss in every stage
CONTENT = 2.5  # weight of nouns and numbers in the caption's loss: what a caption can get wrong
FINE = 4  # samples along each side of a cell when its content is counted


def where(progress: float, stages: Sequence[Stage] = STAGES) -> tuple[int, float]:
    """Stage number and how far into it, from the share of the whole time that is spent."""
    for number, stage in enumerate(stages):
        if progress < stage.share or number == len(stages) - 1:
            return number, min(progress / stage.share, 1.0)
        progress -= stage.share
    raise AssertionError


def last_stage(progress: float, stages: Sequence[Stage] = STAGES) -> float:
    """The same progress, counted within the last stage alone."""
    return 1 - stages[-1].share * (1 - progress)


class Trainer:
    """A model, its optimiser and the tables it is taught from."""

    stages: Sequence[Stage] = STAGES

    def __init__(
        self,
        family: Family,
        model: Any,
        tokenizer: PreTrainedTokenizerFast,
        bank: Tensor,
        device: torch.device,
    ) -> None:
        self.family, self.model, self.device = family, model, device
        precision = torch.float16 if device.type == "cuda" else torch.float32
        self.bank = bank.to(device, precision)
        self.small = F.avg_pool2d(self.bank, 2)  # for objects drawn at about half the pictograms' size
        self.master = [p.detach().float().clone() for p in model.parameters()]
        for name, p in model.named_parameters():
            p.requires_grad_("lambda_" not in name)  # layer scales stay at 1: their gradients cost more than they give
        for p in model.parameters():  # buffers stay as they are: rounded rotary frequencies would not match later
            p.data = p.data.to(torch.bfloat16)
        self.symbols = Symbols(tokenizer, device, placed=family.fixed_canvas)
        ids = tokenizer.encode(family.speech.before, add_special_tokens=False)
        self.before = torch.tensor(ids, device=device)
        self.stage, self.step = -1, 0
        self.optimizer: Any = None
        self.learning: list[tuple[Any, Any]] = []

    @property
    def table(self) -> Tensor:
        weight: Tensor = self.model.model.language_model.embed_tokens.weight
        return weight

    def enter(self, number: int) -> None:
        """Starts a stage with a fresh optimiser."""
        both = zip(self.model.parameters(), self.master, strict=True)
        self.learning = [(p, exact) for p, exact in both if p.requires_grad]
        decay = [exact for _, exact in self.learning if exact.ndim > 1]
        plain = [exact for _, exact in self.learning if exact.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
        fused = self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), fused=fused)
        self.stage, self.step = number, 0

    def draw(self, batch: Batch, plain: bool = False) -> Seen:
        """The batch as its family takes it; the first stage needs no picture, only what the cells cover."""
        packed, canvas = batch.packed, self.family.fixed_canvas
        shown = 1.0 if canvas else batch.scale
        rows, columns = self.family.cells(round(packed.width * shown), round(packed.height * shown))
        inside = batch.scale if canvas else 1.0
        packed = packed if plain else bend(packed, batch.tint >= 0)
        packed = replace(packed, place=packed.place * torch.tensor([1 / inside, 1 / inside, 1], device=self.device))
        coarse = replace(packed, width=columns * FINE, height=rows * FINE)
        maps = torch.cat([visible(coarse, self.small).float(), self._content(coarse, inside, torch.float32)], 1)
        maps = F.avg_pool2d(maps, FINE)
        if self.stage == 0:
            return self.family.look(None, maps)
        fine = replace(packed, width=columns * self.family.cell, height=rows * self.family.cell)
        bank = self.bank if batch.scale > 0.8 else self.small
        shadows = plain or random.random() < 0.5
        pictures = compose(fine, bank, touch=None if plain else touch, shadows=shadows)
        if not plain:
            pictures = develop(pictures)
        if inside < 1:
            mean = torch.tensor(self.family.norm[0], device=self.device, dtype=pictures.dtype)[:, None, None]
            pictures = torch.lerp(mean.expand_as(pictures), pictures, self._content(fine, inside, pictures.dtype))
        return self.family.look(pictures, maps)

    def _content(self, packed: Packed, inside: float, dtype: torch.dtype) -> Tensor:
        """1 where the picture is, 0 on the rim that a scaled view leaves on a fixed canvas [B, 1, H, W]."""
        y = (torch.arange(packed.height, device=self.device) + 0.5) / packed.height * 2 - 1
        x = (torch.arange(packed.width, device=self.device) + 0.5) / packed.width * 2 - 1
        there = (y.abs() <= inside)[:, None] & (x.abs() <= inside)[None]
        return there.to(dtype).expand(len(packed.base), 1, -1, -1)

    def spoken(self, visual: Tensor, batch: Batch, seen: Seen) -> dict[str, Tensor]:
        """The losses of saying the caption after these visual tokens, and of reading the nouns off them."""
        before = F.embedding(self.before, self.table).expand(len(visual), -1, -1)
        text = F.embedding(batch.text, self.table)
        embeds = torch.cat([before, visual, text], 1)
        positions = self.family.positions(len(self.before), seen, embeds.shape[1], self.device)
        hidden = language(self.model, embeds, positions)
        start, stop = len(self.before), len(self.before) + visual.shape[1]
        logits = self.model.lm_head(hidden[:, stop - 1 : -1])
        caption = F.cross_entropy(logits.float().flatten(0, 1), batch.labels.flatten(), self.symbols.emphasis(CONTENT))
        lens = lens_loss(self.symbols, self.table, hidden[:, start:stop], batch, seen)
        return {"caption": caption, "lens": LENS * lens}

    def losses(self, batch: Batch, into: float) -> dict[str, Tensor]:
        with torch.no_grad():
            seen = self.draw(batch)
        found: dict[str, Tensor] = {}
        if self.stage > 0:
            visual = self.family.see(self.model, seen)
            dense = dense_loss(self.symbols, self.table, visual, batch, seen)
            found["dense"] = dense if self.stage == 1 else max(READABLE, 1 - 2 * into) * dense
        if self.stage < 2:
            rough = self.stage > 0 or into > 0.5
            visual = self.symbols.write(self.table, batch, seen, rough).to(self.table.dtype)
        return {**found, **self.spoken(visual, batch, seen)}

    def advance(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """One step of learning; returns its losses."""
        number, into = where(progress, self.stages)
        if number != self.stage:
            self.enter(number)
        stage = self.stages[number]
        rate = stage.floor + (1 - stage.floor) * 0.5 * (1 + math.cos(math.pi * into))
        for group in self.optimizer.param_groups:
            group["lr"] = stage.peak * rate * min(1.0, (self.step + 1) / 100)
        losses = self.losses(batch, into)
        torch.stack(list(losses.values())).sum().backward()
        self._learn()
        self.step += 1
        return {name: loss.detach() for name, loss in losses.items()}

    def _learn(self) -> None:
        """One step of the optimiser on the exact weights, which the model then takes over in bfloat16."""
        used = [(p, exact) for p, exact in self.learning if p.grad is not None]
        for p, exact in used:
            exact.grad = p.grad.float()
        self.model.zero_grad(set_to_none=True)
        nn.utils.clip_grad_norm_([exact for _, exact in used], 1.0)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_([p for p, _ in used], [exact for _, exact in used])

    def state(self) -> dict[str, Any]:
        kept = {"master": self.master, "stage": self.stage, "step": self.step}
        return {**kept, "optimizer": self.optimizer.state_dict() if self.optimizer else None}

    def take(self, other: nn.Module) -> None:
        """Begins with the weights of another model of the same shape."""
        with torch.no_grad():
            for p, exact, given in zip(self.model.parameters(), self.master, other.parameters(), strict=True):
                exact.copy_(given)
                p.copy_(given)

    def restore(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self.master, state["master"])
            torch._foreach_copy_(list(self.model.parameters()), self.master)
        if state["stage"] >= 0:
            self.enter(state["stage"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
