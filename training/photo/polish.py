"""The last part of the training: the model generates captions, and good ones become more probable.

Rennie et al., Self-critical sequence training (2017): several captions of each picture are drawn, and each is worth as
much as it is better than the others. Ordinary steps continue in between, so that nothing else is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .augment import SIZES, augment
from .data import Captions, Split
from .model import PhotoModel
from .prompts import CAPTION, prompt_ids
from .reward import UNTOLD, Reward
from .speak import speak
from .train import Batches, Learner, Plan, Step

RATES = (3e-4, 2e-4)  # new parts, low-rank updates
_PICTURES, _DRAWS = 128, 4  # captions of so many pictures are drawn at once, and so many of each
_WEIGHT = 2.0  # of what is drawn, beside the ordinary steps


def polish(
    model: PhotoModel, split: Split, captions: Captions, before: list[int], plan: Plan, say: Callable[[str], None],
    untold: float = UNTOLD,
) -> None:  # fmt: skip
    torch.manual_seed(plan.seed)
    draw = Batches(model, split, captions, before, plan)
    spoken = Spoken(model, captions, draw, Reward(split.captions, model.lens.place, untold), plan.batch)
    learner = Learner(model, draw, plan)
    tried = Step(model.reinforce, spoken()[1][0], learner.pool)
    began, count, worths = time.monotonic(), 0, list[float]()
    while (done := (time.monotonic() - began) / 60 / plan.minutes) < 1:
        learner.pace(done, (count + 1) / 20)
        worth, batches = spoken()
        worths.append(worth)
        for batch in batches:
            learner.learn(partial(tried, batch))
        count += 1
        if count % 10 == 0:
            say(f"round {count}, {done * plan.minutes:.1f} min: worth {sum(worths[-10:]) / 10:.3f}")
    say(f"{count} rounds in {plan.minutes:g} min")


class Spoken:
    """Draws captions of pictures and says what they are worth."""

    def __init__(self, model: PhotoModel, captions: Captions, draw: Batches, reward: Reward, batch: int) -> None:
        self.model, self.captions, self.draw, self.reward, self.batch = model, captions, draw, reward, batch
        self.prompt = prompt_ids(captions.tokenizer, CAPTION)
        self.pictures = min(_PICTURES, len(draw.pictures))

    def __call__(self) -> tuple[float, list[tuple[Tensor, ...]]]:
        """Mean worth of what was said, and batches to learn from."""
        draw = self.draw
        rows = draw.chance.choices(range(len(draw.pictures)), cum_weights=draw.weights, k=self.pictures)
        pixels = augment(draw.pictures[torch.tensor(rows).to(draw.device)], SIZES[-1])
        end = self.captions.pad
        said = speak(self.model, pixels, draw.front[0].tolist(), self.prompt, end, self.captions.longest - 1, _DRAWS)
        ids = [one[: one.index(end) + 1] if end in one else one for one in said.tolist()]
        texts = self.captions.tokenizer.batch_decode(ids, skip_special_tokens=True)
        worth = torch.tensor([self.reward(rows[i // _DRAWS], text) for i, text in enumerate(texts)]).view(-1, _DRAWS)
        # beside the mean of the others
        better = ((worth - worth.mean(1, keepdim=True)) * _DRAWS / (_DRAWS - 1)).flatten()
        return float(worth.mean()), self._batches(pixels, ids, better)

    def _batches(self, pixels: Tensor, ids: list[list[int]], better: Tensor) -> list[tuple[Tensor, ...]]:
        text = self.captions.text([(self.prompt, one) for one in ids])
        whole = (pixels.repeat_interleave(_DRAWS, 0), text.ids, text.labels, text.start, better * _WEIGHT)
        parts = zip(*(part.to(pixels.device).split(self.batch) for part in whole), strict=True)
        return [(part[0], self.draw.front, *part[1:]) for part in parts if len(part[0]) == self.batch]
