"""A quick look at the model for pairs and clips in training; not an official measurement."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from ercr.datasets.scenes.captions import counts

from .clips_batches import KINDS, ClipsPlanner, Planned
from .clips_stages import ClipsTrainer, Shown
from .tokens import FIRST_SEED

_MOST, _LONGEST = 128, 44
_SEEDS = FIRST_SEED + 10_000 * 64 * 10_000_000  # behind those of all workers and parts


@torch.no_grad()
@torch.compiler.set_stance("force_eager")  # growing answers would be compiled anew for nothing
def probe(trainer: ClipsTrainer, planner: ClipsPlanner) -> dict[str, Any]:
    """For each kind of sample: precision and recall of nouns, how dense the lens is on them, and some answers."""
    fresh = ClipsPlanner(planner.tokenizer, planner.speech, min(planner.size, _MOST), planner.styles)
    found = {}
    for kind in KINDS:
        planned = fresh.batch(random.Random(kind), kind, _SEEDS).to(trainer.device)
        for part in planned.parts:
            part.facts.scale = 1.0
        shown = [trainer.show(part, plain=True) for part in planned.parts]
        if trainer.stage == 0:
            visual = [
                trainer.symbols.write(trainer.table, part.facts, one.seen, rough=False).to(trainer.table.dtype)
                for part, one in zip(planned.parts, shown, strict=True)
            ]
        else:
            visual = [trainer.see(one) for one in shown]
        answers, hidden = _speak(trainer, visual, planned, shown)
        wanted = [trainer.tokenizer.decode(row[row >= 0], skip_special_tokens=True) for row in planned.labels]
        found[kind] = {**_score(answers, wanted), "density": _density(trainer, hidden, planned, shown)}
        found[kind]["says"] = list(zip(answers[:2], wanted[:2], strict=True))
    return found


def _speak(
    trainer: ClipsTrainer, visual: list[Tensor], planned: Planned, shown: list[Shown]
) -> tuple[list[str], list[Tensor]]:
    """Greedy answers, and the final states of each part's visual tokens."""
    rows = torch.arange(len(planned.text), device=trainer.device)
    lengths = (planned.labels >= 0).int().argmax(1)  # of the questions
    text = planned.text.clone()
    text[torch.arange(text.shape[1], device=trainer.device)[None] >= lengths[:, None]] = 0
    text = torch.nn.functional.pad(text, (0, _LONGEST))
    said: list[Tensor] = []
    states: list[Tensor] = []
    for step in range(_LONGEST):
        hidden, places = trainer.read(visual, text, shown)
        states = states or [hidden[:, place] for place in places]
        last = places[-1].stop + lengths - 1 + step
        said.append(trainer.model.lm_head(hidden[rows, last]).argmax(-1))
        text[rows, lengths + step] = said[-1]
    end = trainer.tokenizer.eos_token_id
    answers = [row[: row.index(end)] if end in row else row for row in torch.stack(said, 1).tolist()]
    return [trainer.tokenizer.decode(row).strip() for row in answers], states


def _score(answers: list[str], wanted: list[str]) -> dict[str, float]:
    right = named = there = exact = 0
    for answer, truth in zip(answers, wanted, strict=True):
        said, true = counts(answer), counts(truth)
        right += sum(name in true for name in said)
        named += len(said)
        there += len(true)
        exact += answer == truth.strip()
    return {
        "precision": round(right / max(named, 1), 3),
        "recall": round(right / max(there, 1), 3),
        "exact": round(exact / len(answers), 3),
    }


def _density(trainer: ClipsTrainer, hidden: list[Tensor], planned: Planned, shown: list[Shown]) -> list[float]:
    """For each part: the nouns' first subwords at cells that they fill, over what they have at all other cells."""
    found = []
    for states, part, one in zip(hidden, planned.parts, shown, strict=True):
        noun = part.facts.noun
        rows = torch.nn.functional.embedding(trainer.symbols.nouns[noun.clamp(min=0), 0], trainer.table)
        scores = torch.relu(torch.einsum("bnd,bkd->bkn", states, rows).float())
        covered = one.seen.cells[..., :-1].transpose(1, 2)
        there = (noun >= 0)[..., None]
        inside, outside = (covered > 0.6) & there, (covered < 0.05) & there
        on, off = (scores[mask].mean() for mask in (inside, outside))
        found.append(round(float(on / off.clamp(min=1e-6)), 1))
    return found
