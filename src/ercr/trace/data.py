"""Traces: the recorded states of a run as plain data that methods read; nothing here runs a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.errors import InputError, ModelStateError
from ercr.image.pieces import AnyGeometry
from ercr.models.inputs import Media, Prepared, ViewKind

if TYPE_CHECKING:
    from ercr.trace.changed import ChangedPictures
    from ercr.trace.replay import Replay


@dataclass(frozen=True)
class Needs:
    """What a method needs from a trace."""

    scales: tuple[float, ...] = (1.0,)
    kind: ViewKind = "pad"
    layer: int = -1  # counted as Hugging Face counts hidden_states; -1 is after the final norm
    top: int = 50
    replay: bool = False  # whether it needs a second pass for attention, gradients or states of blocks
    changed: bool = False  # whether it needs the words' probabilities under changed pictures
    cells: bool = True  # whether it needs visual tokens that have a place on the picture
    lens: tuple[float, ...] | None = (
        None  # None, or whether the anchor's last states are kept, and those of these depths
    )

    def together(self, other: Needs) -> Needs | None:
        """The needs of one run that serves both, or None if a single run cannot."""
        anchor_only = {1.0}
        kinds = {n.kind for n in (self, other) if set(n.scales) != anchor_only}
        if self.layer != other.layer or len(kinds) > 1:
            return None
        scales = tuple(sorted(set(self.scales) | set(other.scales)))
        kind = kinds.pop() if kinds else self.kind
        return Needs(
            scales,
            kind,
            self.layer,
            max(self.top, other.top),
            self.replay or other.replay,
            self.changed or other.changed,
            self.cells or other.cells,
            self.lens if other.lens is None else tuple(sorted({*(self.lens or ()), *other.lens})),
        )


def checked_layer(layer: int, count: int) -> int:
    """The index of a layer that is counted from 0 or, if negative, from the end; others are refused."""
    if not -count <= layer < count:
        raise InputError(f"layer must lie between {-count} and {count - 1} for this model, not {layer}.")
    return layer % count


def refuse_image_tokens(answer: Tensor, image_tokens: Sequence[int]) -> None:
    """Refuse an answer with an image token, because a pass over it would expect one more image."""
    if any(bool((answer == token).any()) for token in image_tokens):
        raise InputError("The answer contains the model's image token, which stands for one more image: remove it.")


@dataclass(frozen=True)
class View:
    """Visual states [N, d] of everything shown, at one scale, after the final norm."""

    scale: float
    geometry: AnyGeometry
    states: Tensor

    @cached_property
    def columns(self) -> Tensor:
        """The states [d, N] in float32 or better; cached, because every token of a stream reads them."""
        return self.states.to(torch.promote_types(self.states.dtype, torch.float32)).mT


@dataclass(frozen=True)
class TextRows:
    """One row per text token: the prompt's own words, then the answer."""

    context: Tensor  # [S] bool: whether the token may be context of later ones; False for special tokens
    targets: Tensor  # [S] token ids
    unembedding: Tensor  # [S, d] their rows of W_U
    emit_states: Tensor  # [S, d] at the positions that emit them
    read_states: Tensor  # [S, d] prompt tokens: at their own positions; answer tokens: at the emitting ones
    top_ids: Tensor  # [S, k] most probable tokens at the emitting positions
    top_probabilities: Tensor  # [S, k]
    log_probabilities: Tensor  # [S] of the tokens themselves
    places: Tensor | None = None  # [S] where each row stands in the text, if not in the order of the rows

    def then(self, later: TextRows) -> TextRows:
        """These rows, followed by later ones."""
        growing = _GrowingText(self)
        growing.add(later)
        return _GrownRows(growing, 2)

    def split(self, counts: Sequence[int]) -> list[TextRows]:
        """Split the concatenated rows of several samples."""
        columns = [getattr(self, name).split(list(counts)) for name in _COLUMNS]
        return [TextRows(*parts) for parts in zip(*columns, strict=True)]


class _GrowingText:
    """The rows of a growing text, shared by the TextRows of all its lengths.

    A stream adds a row for every token but reads few columns. So a column is concatenated only when it is read, up to
    the length that is needed; shorter texts use its beginning.
    """

    def __init__(self, first: TextRows) -> None:
        self.parts = [first]
        self.counts = [len(first.targets)]  # number of rows up to and including each part
        self._joined: dict[
            str, tuple[int, Tensor]
        ] = {}  # by column name: the number of joined parts, and the joined rows

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


class _GrownRows(TextRows):
    """The first parts of a growing text as TextRows."""

    _growing: _GrowingText
    _parts: int

    def __init__(self, growing: _GrowingText, parts: int) -> None:
        vars(self).update(_growing=growing, _parts=parts)

    def __getattr__(self, name: str) -> Tensor:
        if name not in _COLUMNS:
            raise AttributeError(name)
        return self._growing.column(name, self._parts)

    def then(self, later: TextRows) -> TextRows:
        if len(self._growing.parts) > self._parts:
            return super().then(later)  # the shared text was continued with other rows, so this one starts a new one
        self._growing.add(later)
        return _GrownRows(self._growing, len(self._growing.parts))


_COLUMNS = tuple(column.name for column in fields(TextRows) if column.name != "places")


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
    unembed: Callable[[Tensor], Tensor] = field(repr=False)  # token ids to rows of W_U
    argmax: Callable[[Tensor], Tensor] = field(repr=False)  # states to their most probable token ids
    spell: Callable[[Tensor], list[str]] = field(repr=False)  # token strings after decoding and tokenising again
    inside: Replay | None = field(default=None, repr=False)
    beside: ChangedPictures | None = field(default=None, repr=False)
    lens: Tensor | None = field(default=None, repr=False)  # [K, N, d] visual states of some layers, the last one last
    # by kind of state: whether all numbers are finite
    finite: dict[str, Tensor] = field(default_factory=dict, repr=False)
    spelling: Callable[[], Tensor] | None = field(default=None, repr=False)  # letters of every token [V, letters]
    middle: Callable[[], Tensor] | None = field(default=None, repr=False)  # the mean [d] of all rows of W_U

    def check(self, finite: dict[str, bool] | None = None) -> None:
        """Refuse states with NaN or infinity; `finite` are the flags if they are on the CPU already."""
        for where, fine in (finite or {where: bool(flag) for where, flag in self.finite.items()}).items():
            if not fine:
                raise ModelStateError(
                    f"The model's {where} states contain NaN or infinity, so there is nothing to explain: "
                    f"load it with another dtype (bfloat16 or float32)."
                )

    @property
    def replay(self) -> Replay:
        """The second pass over prompt and answer, for methods whose needs ask for it."""
        assert self.inside is not None, "a method that uses the replay must ask for it: Needs(replay=True)"
        return self.inside

    @property
    def changed(self) -> ChangedPictures:
        """The same words under changed pictures, for methods whose needs ask for it."""
        assert self.beside is not None, "a method that changes the picture must ask for it: Needs(changed=True)"
        return self.beside

    @property
    def letters(self) -> Tensor:
        """How every token of the vocabulary is spelt [V, letters]: `ercr.models.letters`."""
        assert self.spelling is not None, "a trace of a model's run knows its tokens"
        return self.spelling()

    @property
    def mean_row(self) -> Tensor:
        """The mean [d] of all words' rows of W_U: what they have in common."""
        assert self.middle is not None, "a trace of a model's run knows its words"
        return self.middle()

    @property
    def anchor(self) -> View:
        return self.views[0]

    @property
    def geometry(self) -> AnyGeometry:
        return self.anchor.geometry

    def view(self, scale: float) -> View:
        return next(view for view in self.views if view.scale == scale)

    def then(self, token: int, text: TextRows) -> Trace:
        """The trace with one more answer token."""
        ids = F.pad(self.ids, (0, 1), value=token)
        rows = F.pad(self.rows, (0, 1), value=len(ids) - 1)
        return replace(self, ids=ids, rows=rows, text=self.text.then(text))


@dataclass(frozen=True)
class TraceRequest:
    """Pictures and a conversation to run the model on; `answer` are given token ids, or None to generate one."""

    media: Media
    prepared: Prepared
    answer: Tensor | None = None
    views: Mapping[float, Prepared] = field(default_factory=dict)  # by scale, if they were prepared in advance
