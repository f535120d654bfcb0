"""The weak objective: words of a picture's captions should be readable in its cells, without labels for where.

What is read is the logit lens, as CAM reads it: the language head applied to the last states of the visual tokens.
The objective makes lens methods look better than they would on a model that never had it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SHARPNESS = 0.5  # of the pooling: 0 is the mean of all cells, a large number the best cell
_SCALE = 0.5  # of logits, which are large beside what a logistic loss is made for
_SHIFT = 1.0  # a word is readable, that is above 0, before it is more likely than not
EDGE = 4.5  # a classifier's logit from which on its word is readable
_SLOPE = 0.3  # of what is read, beside the logit
_PLAUSIBLE = 16.0  # the largest logit in a picture from which on a class counts in full


class Lens(nn.Module):
    """Scores of readable words, each by its first token.

    `words` gives the tokens; `classes` names, for each class of the classifier, the words that stand for it; `silent`
    are tokens that name nothing. `edge` may be raised later, and words are then readable only where the
    classifier is surer.
    """

    def __init__(
        self, words: dict[str, int], classes: Sequence[Sequence[str]], table: Tensor, silent: Sequence[int]
    ) -> None:
        super().__init__()
        self.edge = EDGE
        self.register_buffer("silent", table[torch.tensor(silent)].clone(), persistent=False)
        tokens = sorted(set(words.values()))
        self.place = {name: tokens.index(token) for name, token in words.items()}
        self.register_buffer("rows", table[torch.tensor(tokens)].clone(), persistent=False)
        pairs = sorted({(self.place[word], number) for number, own in enumerate(classes) for word in own})
        named, column = torch.tensor([place for place, _ in pairs]).unique(return_inverse=True)
        self.register_buffer("named", named, persistent=False)  # which of the words stand for classes
        self.register_buffer("column", column, persistent=False)  # of each pair of a word and a class, the word
        self.register_buffer("member", torch.tensor([number for _, number in pairs]), persistent=False)  # and the class
        self.register_buffer("free", torch.ones(len(tokens)).index_fill(0, named, 0), persistent=False)

    def labels(self, groups: Sequence[Collection[str]]) -> Tensor:
        """Which words the captions of each picture have [pictures, words]."""
        found = torch.zeros(len(groups), self.rows.shape[0], dtype=torch.bool)
        for i, group in enumerate(groups):
            found[i, [self.place[word] for word in group if word in self.place]] = True
        return found

    def forward(
        self, states: Tensor, said: Tensor, logits: Tensor, real: Tensor, shown: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses of the words of captions, pooled over cells, and, cell by cell, of the classifier's and silent words.

        states [B, N, d] behind the final norm; said [B, W]; logits [B, N, classes] of the classifier; real [B]: rows
        with a picture; shown [B]: those whose features are not hidden, so that the classifier can be followed.
        """
        scores = F.linear(states, self.rows).float() * _SCALE
        pooled = (torch.logsumexp(scores * _SHARPNESS, 1) - math.log(scores.shape[1])) / _SHARPNESS
        each = F.binary_cross_entropy_with_logits(pooled - _SHIFT, said.float(), reduction="none")
        # captions leave much unsaid that a classifier sees, so they do not speak against its words
        each = (each * torch.maximum(said.float(), self.free)).sum(1)
        quiet = F.softplus(F.linear(states, self.silent).float() * _SCALE + _SHIFT).mean()
        return (each * real).sum() / real.sum(), self._named(scores[..., self.named], logits, shown), quiet

    def _named(self, scores: Tensor, logits: Tensor, shown: Tensor) -> Tensor:
        """A word of a class is as readable in a cell as the classifier's own map says."""
        with torch.no_grad():
            shape = (*logits.shape[:2], len(self.named))
            given = logits[..., self.member]
            best = logits.new_full(shape, -1e4).scatter_reduce_(2, self.column.expand(given.shape), given, "amax")
            weight = (best.amax(1) / _PLAUSIBLE).clamp(0.05, 1) ** 3 * shown[:, None]
        apart = F.smooth_l1_loss(scores, _SLOPE * (best - self.edge), reduction="none").mean(1)
        return (apart * weight).sum() / weight.sum()
