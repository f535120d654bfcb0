"""Log-probabilities of given words from one pass, without ranked lists and views."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ercr.models.base import Adapter
from ercr.models.inputs import Prepared
from ercr.models.whole import logits_before
from ercr.trace.cancel import cancellable
from ercr.trace.ranked import own_log_probabilities
from ercr.trace.recorder import Recorder, forward


@torch.no_grad()
def log_probabilities(adapter: Adapter, prompts: Sequence[Prepared], answer: Tensor, rows: Tensor) -> Tensor:
    """Log-probabilities [B, S] of the tokens at some positions of a prompt and an answer that all samples share."""
    if len(prompts) > 1 and not adapter.batches:
        return torch.cat([log_probabilities(adapter, [prompt], answer, rows) for prompt in prompts])
    ids = torch.cat([prompts[0].input_ids, answer])
    if not prompts[0].cells:
        scores = logits_before(cancellable(adapter), prompts, answer, rows)
        logs = scores.log_softmax(-1)
        return logs.gather(-1, ids[rows].to(logs.device).expand(len(prompts), -1)[..., None])[..., 0]
    recorder = Recorder(adapter, -1)
    states, _ = forward(adapter, [prompt.with_answer(answer) for prompt in prompts], recorder)
    emit = states[:, (rows - 1).clamp(min=0).to(states.device)]
    logs = own_log_probabilities(adapter, emit.flatten(0, 1), ids[rows].repeat(len(prompts)))
    return logs.view(len(prompts), -1)


@torch.no_grad()
def answer_log_probabilities(adapter: Adapter, prompts: Sequence[Prepared], answers: Sequence[Tensor]) -> list[Tensor]:
    """Log-probabilities [R] of every answer behind its own prompt, in one pass where samples can share one."""
    together = adapter.batches and len({adapter.sort(prompt) for prompt in prompts}) == 1
    if len(prompts) > 1 and together and prompts[0].cells:
        recorder = Recorder(adapter, -1)
        full = [prompt.with_answer(answer) for prompt, answer in zip(prompts, answers, strict=True)]
        states, _ = forward(adapter, full, recorder)
        emits = [state[len(state) - len(answer) - 1 : -1] for state, answer in zip(states, answers, strict=True)]
        logs = own_log_probabilities(adapter, torch.cat(emits), torch.cat(list(answers)))
        return list(torch.split(logs, [len(answer) for answer in answers]))
    found = []
    for prompt, answer in zip(prompts, answers, strict=True):
        start = len(prompt.input_ids)
        found.append(log_probabilities(adapter, [prompt], answer, torch.arange(start, start + len(answer)))[0])
    return found
