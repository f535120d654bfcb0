"""A quick look at a model in training: what it names and whether its cells can be read; not an official measurement."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ercr.datasets.sample import PROMPT
from ercr.datasets.scenes.captions import counts
from ercr.datasets.scenes.nouns import NOUNS

from .batches import Batch, Planner
from .families import language
from .stages import Trainer


@torch.no_grad()
@torch.compiler.set_stance("force_eager")  # growing captions would be compiled anew for nothing
def probe(trainer: Trainer, planner: Planner, symbolic: bool) -> dict[str, Any]:
    """Noun precision and recall of greedy captions, double naming, and the lens's density inside over outside."""
    number = min(planner.size, 256)
    fresh = Planner(planner.tokenizer, planner.speech, number, planner.styles, first=10_000)
    batch = next(iter(fresh)).to(trainer.device)
    batch.scale = 1.0
    seen = trainer.draw(batch, plain=True)
    if symbolic:
        visual = trainer.symbols.write(trainer.table, batch, seen, rough=False).to(trainer.table.dtype)
    else:
        visual = trainer.family.see(trainer.model, seen)
    captions, hidden = _speak(trainer, visual, planner, seen)
    return {
        **_score(captions, batch),
        "density": round(_density(trainer, hidden, batch, seen), 2),
        "says": captions[:2],
    }


def _speak(trainer: Trainer, visual: Tensor, planner: Planner, seen: Any) -> tuple[list[str], Tensor]:
    """Greedy captions, and the final states of the visual tokens."""
    question = planner._ids(planner.speech.after.format(prompt=PROMPT))
    text = torch.tensor([question] * len(visual), device=trainer.device)
    before = trainer.table[trainer.before].expand(len(visual), -1, -1)
    said: list[Tensor] = []
    for _ in range(40):
        embeds = torch.cat([before, visual, trainer.table[text]], 1)
        positions = trainer.family.positions(len(trainer.before), seen, embeds.shape[1], trainer.device)
        hidden = language(trainer.model, embeds, positions)
        said.append(trainer.model.lm_head(hidden[:, -1]).argmax(-1))
        text = torch.cat([text, said[-1][:, None]], 1)
    end = planner.tokenizer.convert_tokens_to_ids(planner.speech.end)
    rows = torch.stack(said, 1).tolist()
    rows = [row[: row.index(end)] if end in row else row for row in rows]
    first = len(trainer.before)
    return [planner.tokenizer.decode(row).strip() for row in rows], hidden[:, first : first + visual.shape[1]]


def _score(captions: list[str], batch: Batch) -> dict[str, float]:
    right = named = there = found = over = 0
    for caption, nouns, number in zip(captions, batch.noun.tolist(), batch.count.tolist(), strict=True):
        truth = {NOUNS[n].name: c for n, c in zip(nouns, number, strict=True) if n >= 0}
        said = counts(caption)
        right += sum(name in truth for name in said)
        named += len(said)
        there += len(truth)
        found += sum(name in said for name in truth)
        over += any(said[name] > truth[name] for name in truth)
    return {
        "precision": round(right / max(named, 1), 3),
        "recall": round(found / max(there, 1), 3),
        "over": round(over / len(captions), 3),
    }


def _density(trainer: Trainer, hidden: Tensor, batch: Batch, seen: Any) -> float:
    """Mean evidence for a noun's first subword on its cells over elsewhere, for objects that fill a cell."""
    first = trainer.symbols.nouns[batch.noun.clamp(min=0), 0]
    evidence = torch.einsum("bnd,bkd->bnk", hidden.float(), trainer.table[first].float()).clamp(min=0)
    top = evidence.amax(1, keepdim=True).clamp(min=1e-6)
    evidence = (evidence - evidence.amin(1, keepdim=True)) / top
    inside = (seen.cells[..., :-1] > 0.5).float()
    there = (inside.sum(1) > 0) & (batch.noun >= 0) & (batch.count == 1)
    on = (evidence * inside).sum(1) / inside.sum(1).clamp(min=1)
    off = (evidence * (1 - inside)).sum(1) / (1 - inside).sum(1).clamp(min=1)
    return float(on[there].mean() / off[there].mean())
