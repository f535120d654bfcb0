"""What would be done with a checkpoint, told from its configuration alone: no weights are read, nothing is run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ercr.errors import ErcrError, NeedsConversion, UnsupportedModel
from ercr.models.checked import CheckedFamily, checked, checked_with
from ercr.models.loading import load_processor, read_configuration, refuse_text_only
from ercr.models.registry import own_adapter

Kind = Literal["checked", "by the generic adapter", "to be converted", "not possible"]


@dataclass(frozen=True)
class Prospect:
    """What a checkpoint is to this package, with sentences for people."""

    checkpoint: str
    model_type: str
    decoder: str
    kind: Kind
    adapter: str | None  # the family whose own adapter is used, generic, or None
    checked_as: str | None  # the checked family that is nearest to it
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "notes": list(self.notes)}


def prospect(name: str, revision: str | None = None) -> Prospect:
    """What `from_pretrained` would make of a folder or a hub id; damaged checkpoints are refused as it does."""
    try:
        config = read_configuration(name, revision)
    except NeedsConversion as error:
        return Prospect(name, error.model_type, "", "to be converted", None, None, (str(error),))
    kind, decoder = str(config.model_type), str(getattr(config.get_text_config(), "model_type", ""))
    try:
        refuse_text_only(config)
    except UnsupportedModel as error:
        return Prospect(name, kind, decoder, "not possible", None, None, (str(error),))
    own = own_adapter(config)
    known = _nearest(kind, decoder, own is not None)
    title = None if known is None else known.title
    if known is not None and known.reason:
        return Prospect(name, kind, decoder, "not possible", None, title, (known.reason,))
    notes = [*_about(known, decoder), *(() if own is not None else _about_processor(name, revision))]
    how: Kind = "by the generic adapter" if known is None else "checked"
    return Prospect(name, kind, decoder, how, "generic" if own is None else own.family, title, tuple(notes))


def _nearest(kind: str, decoder: str, own: bool) -> CheckedFamily | None:
    """The checked family of this type; if there are several, one with the same decoder."""
    same = [family for family in checked() if family.type == kind and (family.adapter == "own") == own]
    return next((family for family in same if family.decoder == decoder), same[0] if same else None)


def _about(known: CheckedFamily | None, decoder: str) -> list[str]:
    if known is None:
        return [
            "No checkpoint of this type was checked. The generic adapter asks the processor and the model where visual "
            "tokens lie, and says in one sentence if they have no place on the picture."
        ]
    notes = [f"Checked as {known.title} with transformers {checked_with()}: {known.methods} methods run."]
    if decoder and decoder != known.decoder:
        notes.append(f"It was checked with the decoder {known.decoder!r}, not {decoder!r}.")
    if known.causal is False:
        notes.append("Its visual tokens see the prompt behind them, so a view keeps the whole prompt.")
    elif known.mutual:
        notes.append("Its visual tokens see each other both ways.")
    if known.batches is False:
        notes.append("Pictures run one at a time.")
    return [*notes, *(f"{method}: {reason}" for method, reason in known.refused.items())]


def _about_processor(name: str, revision: str | None) -> list[str]:
    """Whether the processor can be loaded here; another package may be missing."""
    try:
        load_processor(name, revision)
    except ErcrError as error:
        return [str(error)]
    # a processor's class may fail in any way
    except Exception as error:
        return [f"Its processor cannot be loaded here: {' '.join(str(error).split())[:200]}."]
    return []
