"""Greedy decoding of samples that begin and end at different times: an answer that ends makes room for another sample.

The state of each sample is in buffers at fixed addresses, so that on a GPU a step is one captured graph, whatever the
lengths of the prompts. Nothing is read back from the device but whether answers have ended, every few tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.image.sending import sent
from ercr.models.base import Adapter
from ercr.models.inputs import Batch
from ercr.trace.cancel import check
from ercr.trace.graphs import CaptureFailed, Graph, Graphs
from ercr.trace.greedy import greedy_token
from ercr.trace.slots import Slots
from ercr.trace.tokens import cut_answer

_PLACES = 128  # lengths of slots are multiples of this
_ALONE = 512  # places of a slot that is the only one, at least
_ROOM = 64  # tokens that every answer has room for at first
_TOKENS_PER_CHECK = 4  # tokens that are generated together: with graphs, ends are asked for in between
_FEW = 8  # up to so many samples each number has a graph of its own; above, multiples of this


@dataclass
class _Speaker:
    """A sample in a slot."""

    name: int
    prompt: Tensor  # [L, d] final states of the prompt
    count: int = 1  # tokens generated so far


@dataclass(frozen=True)
class Said:
    """An answer that has ended: its tokens [T] on the CPU, and the final states [L + T - 1, d] up to its last token."""

    name: int
    answer: Tensor
    states: Tensor


class Speaking:
    """Samples that are being answered, in the slots of `slots`, up to `limit` tokens each."""

    def __init__(
        self,
        own: Adapter,
        slots: Callable[[int], Slots],
        rows: int,
        limit: int,
        ends: Sequence[int],
        graphs: Graphs,
        most: int | None = None,
    ) -> None:
        """`slots(length)` makes slots for `rows` samples. `most` positions are what prompt and answer may take."""
        self.rows, self.limit = rows, limit
        self._own, self._make, self._graphs = own, slots, graphs
        self._slots: Slots | None = None
        self._stop, self._most = list(ends), most
        self._speakers: list[_Speaker] = []
        self._captured: dict[int, Graph] = {}
        self._room = 0  # tokens that every answer has room for; 0 before there are buffers
        self._embed = own.model.get_input_embeddings()

    @property
    def free(self) -> int:
        return self.rows - len(self._speakers)

    @property
    def speaking(self) -> int:
        return len(self._speakers)

    def set_ends(self, limit: int, ends: Sequence[int]) -> None:
        """Other answers' lengths and end tokens from now on; nobody may be speaking."""
        assert not self._speakers, "samples are being answered"
        self.limit = limit
        if list(ends) != self._stop:
            self._stop = list(ends)
            self._captured.clear()
            if self._room:
                self._ends = torch.tensor(self._stop, device=self._at.device, dtype=torch.long)

    @torch.no_grad()
    def begin(self, batch: Batch, names: Sequence[int]) -> None:
        """Read the prompts of new samples and take the first token of each."""
        first, added = len(self._speakers), len(names)
        assert added <= self.free, "there are not enough free slots"
        prompt = batch.ids.shape[1]
        self._check_length(prompt)
        slots = self._with_room(prompt, min(self.limit, _ROOM), batch)
        states = slots.prefill(batch, first)
        if not self._room:
            self._allocate(slots, min(self.limit, _ROOM), states)
        rows = slice(first, first + added)
        token = greedy_token(self._own, states)
        self._token[rows, 0] = token
        self._tokens[rows, 0] = token
        self._position[rows] = batch.next_positions
        lengths = torch.tensor([prompt - offset for offset in batch.offsets])
        self._at[rows] = sent(lengths, self._at.device)
        self._count[rows] = 0
        self._ended[rows] = torch.isin(token, self._ends)
        self._speakers += [
            _Speaker(name, states[row, offset:])
            for row, (name, offset) in enumerate(zip(names, batch.offsets, strict=True))
        ]

    def _check_length(self, prompt: int) -> None:
        """Refuse an answer that may become too long for the model."""
        if self._most is not None and prompt + self.limit > self._most:
            raise InputError(
                f"With compile=True prompt and answer have to fit into this model's {self._most} positions, of which "
                f"the prompt takes {prompt}: max_new_tokens can be at most {max(self._most - prompt, 0)}, "
                f"not {self.limit}."
            )

    @torch.no_grad()
    def advance(self) -> list[Said]:
        """Generate some tokens for everybody; the answers that have ended."""
        check()
        left = min(self.limit - speaker.count for speaker in self._speakers) if self._speakers else 0
        left = min(left, 1 if self._stop and not self._graphs.active else _TOKENS_PER_CHECK)
        longest = max((speaker.count for speaker in self._speakers), default=0)
        if longest + left > self._room > 0:
            self._grow(longest + left)
        for _ in range(left):
            self._one()
        return self._finished()

    def drop_all(self) -> None:
        """Forget all samples that are being answered."""
        self._speakers.clear()

    # slots and buffers

    def _with_room(self, prompt: int, room: int, batch: Batch) -> Slots:
        """The slots, long enough for a prompt and its answer."""
        room = max(room, self._room)
        length = self._rounded(prompt + room)
        if self._slots is None:
            self._slots = self._make(length)
        elif self._slots.length < length:
            self._replace(self._slots.grown(length) if self._speakers else self._make(length))
        return self._slots

    def _rounded(self, length: int) -> int:
        """The length of slots: doubled for a single one, as prompts of all sizes use it one after the other."""
        if self.rows > 1:
            return -(-length // _PLACES) * _PLACES
        return max(_ALONE, 1 << (length - 1).bit_length())

    def _replace(self, slots: Slots) -> None:
        """Use other slots; what was captured reads and writes the old ones."""
        self._slots = slots
        self._captured.clear()
        self._graphs.clear()

    def _allocate(self, slots: Slots, room: int, states: Tensor) -> None:
        rows, device = self.rows, states.device
        self._room = room
        nothing = torch.zeros(rows, dtype=torch.long, device=device)
        self._token, self._position = nothing[:, None].clone(), nothing[:, None].clone()
        self._at = nothing.clone()  # the place of the newest token in its slot
        self._count = nothing.clone()  # tokens before the newest
        self._ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self._ends = torch.tensor(self._stop, dtype=torch.long, device=device)
        self._tokens = torch.zeros(rows, room, dtype=torch.long, device=device)
        self._states = states.new_zeros(rows, room, states.shape[-1])

    def _grow(self, room: int) -> None:
        """Make answers longer, in steps that double, so that a long one costs little and a short one no memory."""
        room = min(self.limit, max(room, 2 * self._room))
        for name in ("_tokens", "_states"):
            old = getattr(self, name)
            new = old.new_zeros(self.rows, room, *old.shape[2:])
            new[:, : self._room] = old
            setattr(self, name, new)
        assert self._slots is not None
        longest = max(len(speaker.prompt) for speaker in self._speakers)
        self._room = room
        self._captured.clear()
        if self._rounded(longest + room) > self._slots.length:
            self._replace(self._slots.grown(self._rounded(longest + room)))

    # one token

    def _one(self) -> None:
        speaking = len(self._speakers)
        if self._graphs.active:
            rows = min(self.rows, speaking if speaking <= _FEW else -(-speaking // _FEW) * _FEW)
            if rows not in self._captured:
                self._capture(rows)
        if self._graphs.active:
            self._captured[rows].replay()
        else:
            used = max(len(speaker.prompt) + speaker.count for speaker in self._speakers)
            self._step(speaking, used)
        for speaker in self._speakers:
            speaker.count += 1

    def _capture(self, rows: int) -> None:
        """Capture a step; running it for the capture changes the buffers, which are restored."""
        assert self._slots is not None
        changing = (self._token, self._position, self._at, self._count, self._ended, self._tokens, self._states)
        before = [buffer[:rows].clone() for buffer in changing]
        length = self._slots.length

        def step() -> None:
            # a warm-up may run past the end of a slot
            self._at.clamp_(max=length - 1)
            self._count.clamp_(max=self._room - 2)
            self._step(rows, length)

        try:
            self._captured[rows] = self._graphs.capture(step)
        except CaptureFailed:
            self._graphs.active = False
        for buffer, values in zip(changing, before, strict=True):
            buffer[:rows] = values

    def _step(self, rows: int, used: int) -> None:
        """Generate one token in the first slots without reading anything back from the device."""
        assert self._slots is not None
        token, position, at, count = (b[:rows] for b in (self._token, self._position, self._at, self._count))
        states = self._slots.step(self._embed(token), position, at, used)
        first = torch.arange(rows, device=at.device) * self._room
        self._states.view(-1, states.shape[-1]).index_copy_(0, first + count, states[:, 0].to(self._states.device))
        following = greedy_token(self._own, states).to(at.device)
        for counter in (position, at, count):
            counter.add_(1)
        self._tokens.view(-1).index_copy_(0, first + count, following)
        token.copy_(following[:, None])
        if self._stop:
            self._ended[:rows].logical_or_(torch.isin(following, self._ends))

    # answers that have ended

    def _finished(self) -> list[Said]:
        speaking = len(self._speakers)
        if not speaking:
            return []
        ended = self._ended[:speaking].tolist() if self._stop else [False] * speaking
        over = [row for row, s in enumerate(self._speakers) if ended[row] or s.count >= self.limit]
        if not over:
            return []
        tokens = self._tokens[over].cpu()
        found = []
        for row, own in zip(over, tokens, strict=True):
            speaker = self._speakers[row]
            answer = cut_answer(own[: speaker.count], self._stop, -1)
            states = torch.cat([speaker.prompt, self._states[row, : len(answer) - 1]])
            found.append(Said(speaker.name, answer, states))
        self._close_up(over)
        return found

    def _close_up(self, over: Sequence[int]) -> None:
        """Move the last samples into the slots that are free now."""
        kept = len(self._speakers) - len(over)
        holes = [row for row in over if row < kept]
        movers = [row for row in range(kept, len(self._speakers)) if row not in set(over)]
        buffers = (self._token, self._position, self._at, self._count, self._ended, self._tokens, self._states)
        assert self._slots is not None
        if movers:
            sources, targets = (sent(torch.tensor(rows), self._at.device) for rows in (movers, holes))
            self._slots.move(sources, targets)
            for buffer in buffers:
                buffer[targets.to(buffer.device)] = buffer[sources.to(buffer.device)]
            for source, target in zip(movers, holes, strict=True):
                self._speakers[target] = self._speakers[source]
        del self._speakers[kept:]
        self._at[kept:] = 0
        self._count[kept:] = 0
