"""What a run of a model leaves behind: plain records that methods read; nothing here runs a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ercr.errors import InputError, ModelStateError
from ercr.image.geometry import Geometry
from ercr.models.base import Prepared, ViewKind

if TYPE_CHECKING:
    from ercr.trace.replay import Replay


@dataclass(frozen=True)
class Needs:
    """What a method asks a trace for."""

    scales: tuple[float, ...] = (1.0,)
    kind: ViewKind = "pad"
    layer: int = -1  # counted as Hugging Face counts hidden_states; -1 is after the final norm
    top: int = 50
    replay: bool = False  # looks inside a second pass: attention, gradients, states of blocks

    def together(self, other: Needs) -> Needs | None:
        """Needs that one run serves for both, or None where no single run can."""
        alone = {1.0}
        kinds = {n.kind for n in (self, other) if set(n.scales) != alone}
        if self.layer != other.layer or len(kinds) > 1:
            return None
        scales = tuple(sorted(set(self.scales) | set(other.scales)))
        kind = kinds.pop() if kinds else self.kind
        return Needs(scales, kind, self.layer, max(self.top, other.top), self.replay or other.replay)


def checked_layer(layer: int, count: int) -> int:
    """A layer counted from 0 or from the end, as an index; refused outside the model."""
    if not -count <= layer < count:
        raise InputError(f"layer must lie between {-count} and {count - 1} for this model, not {layer}.")
    return layer % count


def refuse_image_tokens(answer: Tensor, image_token: int) -> None:
    """A pass over an answer with an image token in it would look for a second image."""
    if bool((answer == image_token).any()):
        raise InputError("The answer contains the model's image token, so it cannot be read: remove it.")


@dataclass(frozen=True)
class View:
    """Visual states [N, d] of one showing of the image, after the final norm."""

    scale: float
    geometry: Geometry
    states: Tensor

    @cached_property
    def columns(self) -> Tensor:
        """The states [d, N] in float32 or better; kept, because every token of a stream reads them."""
        return self.states.to(torch.promote_types(self.states.dtype, torch.float32)).mT


@dataclass(frozen=True)
class TextRows:
    """What is known of each text token: of the prompt's own words, then of the answer."""

    context: Tensor  # [S] bool: may serve as context (special tokens may not)
    targets: Tensor  # [S] vocabulary index
    unembedding: Tensor  # [S, d] their rows of W_U
    emit_states: Tensor  # [S, d] at the positions that emit them
    read_states: Tensor  # [S, d] the prompt's at their own positions, the answer's at the emitting ones
    top_ids: Tensor  # [S, k] ranked candidates of the emitting distributions
    top_probabilities: Tensor  # [S, k]
    log_probabilities: Tensor  # [S] of the tokens themselves

    def then(self, later: TextRows) -> TextRows:
        """These rows followed by later ones."""
        growing = _Growing(self)
        growing.add(later)
        return _Longer(growing, 2)

    def split(self, counts: Sequence[int]) -> list[TextRows]:
        """The rows of several samples, one after another, taken apart again."""
        columns = [getattr(self, f.name).split(list(counts)) for f in fields(self)]
        return [TextRows(*parts) for parts in zip(*columns, strict=True)]


class _Growing:
    """The rows of a text that grows, shared by all lengths of it that are in use.

    A stream adds rows at every token and reads few columns. So a column is joined when it is read, up to the length
    that is asked for; shorter texts read its beginning.
    """

    def __init__(self, first: TextRows) -> None:
        self.parts = [first]
        self.counts = [len(first.targets)]  # rows up to and with each part
        self._joined: dict[str, tuple[int, Tensor]] = {}  # a column by name, and of how many parts

    def add(self, later: TextRows) -> None:
        self.parts.append(later)
        self.counts.append(self.counts[-1] + len(later.targets))

    def column(self, name: str, parts: int) -> Tensor:
        """The rows of the first `parts` parts."""
        first: Tensor = getattr(self.parts[0], name)
        joined, column = self._joined.get(name, (1, first))
        if joined < parts:
            column = torch.cat([column, *(getattr(part, name) for part in self.parts[joined:parts])])
            self._joined[name] = (parts, column)
        return column[: self.counts[parts - 1]]


class _Longer(TextRows):
    """Rows that others were added to: the first parts of a growing text."""

    _growing: _Growing
    _parts: int

    def __init__(self, growing: _Growing, parts: int) -> None:
        vars(self).update(_growing=growing, _parts=parts)

    def __getattr__(self, name: str) -> Tensor:
        if name not in _COLUMNS:
            raise AttributeError(name)
        return self._growing.column(name, self._parts)

    def then(self, later: TextRows) -> TextRows:
        if len(self._growing.parts) > self._parts:
            return super().then(later)  # the shared text went on in another way: this one gets its own
        self._growing.add(later)
        return _Longer(self._growing, len(self._growing.parts))


_COLUMNS = frozenset(column.name for column in fields(TextRows))


@dataclass(frozen=True)
class Trace:
    """Everything a method may read about one sample."""

    ids: Tensor  # [L] prompt and answer, on the CPU
    input_length: int
    rows: Tensor  # [S] positions of the text rows in `ids`, on the CPU
    prompts: int  # how many text rows belong to the prompt
    text: TextRows
    views: tuple[View, ...]  # the anchor first
    vocabulary: int
    unembed: Callable[[Tensor], Tensor] = field(repr=False)
    argmax: Callable[[Tensor], Tensor] = field(repr=False)
    spell: Callable[[Tensor], list[str]] = field(repr=False)
    inside: Replay | None = field(default=None, repr=False)
    finite: dict[str, Tensor] = field(default_factory=dict, repr=False)  # which states hold only finite numbers

    def check(self, finite: dict[str, bool] | None = None) -> None:
        """Refuse states with NaN or infinity; `finite` are the flags if they have come to the host already."""
        for where, fine in (finite or {where: bool(flag) for where, flag in self.finite.items()}).items():
            if not fine:
                raise ModelStateError(
                    f"The model's {where} states contain NaN or infinity, so there is nothing to explain: "
                    f"load it with another dtype (bfloat16 or float32)."
                )

    @property
    def replay(self) -> Replay:
        """The pass over prompt and answer that methods may look into, if they said they need it."""
        assert self.inside is not None, "a method that looks inside says so in its needs"
        return self.inside

    @property
    def anchor(self) -> View:
        return self.views[0]

    @property
    def geometry(self) -> Geometry:
        return self.anchor.geometry

    def view(self, scale: float) -> View:
        return next(view for view in self.views if view.scale == scale)

    def then(self, token: int, text: TextRows) -> Trace:
        """The trace with one more answer token."""
        ids = F.pad(self.ids, (0, 1), value=token)
        rows = F.pad(self.rows, (0, 1), value=len(ids) - 1)
        return replace(self, ids=ids, rows=rows, text=self.text.then(text))


@dataclass(frozen=True)
class Sample:
    """One image and conversation, ready to run; `answer` are given token ids, or None to generate."""

    image: Image.Image
    prepared: Prepared
    answer: Tensor | None = None
    views: Mapping[float, Prepared] = field(default_factory=dict)  # by scale, where they were prepared ahead
