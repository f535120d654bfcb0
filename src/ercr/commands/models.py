"""`ercr models`: the families that are checked, and what would be done with a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from ercr.commands.options import JsonOption
from ercr.commands.output import emit_data, results

if TYPE_CHECKING:
    from ercr.models.checked import CheckedFamily


def models(
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            help="Say what would be done with this checkpoint: a packaged model, a folder or a hub id. Only its "
            "configuration is read.",
            show_default=False,
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Its branch, tag or commit.", show_default=False)] = None,
    as_json: JsonOption = None,
) -> None:
    """List the packaged models and the families that are checked, or describe a checkpoint."""
    if checkpoint is None:
        _all(as_json)
    else:
        _one(checkpoint, revision, as_json)


def _one(checkpoint: str, revision: str | None, as_json: str | None) -> None:
    from ercr.models.prospects import prospect
    from ercr.zoo import locate

    found = prospect(locate(checkpoint), revision)
    if as_json is not None:
        emit_data({**found.to_dict(), "checkpoint": checkpoint}, as_json)
        return
    adapters = {None: "none", "generic": "generic"}
    lines = {
        "checkpoint": checkpoint,
        "type": found.model_type + (f" (decoder: {found.decoder})" if found.decoder else ""),
        "support": found.kind,
        "adapter": adapters.get(found.adapter, f"{found.adapter}, its own"),
    }
    for label, text in lines.items():
        results.print(f"{label}: {text}", markup=False, soft_wrap=True)
    for note in found.notes:
        results.print(f"- {note}", markup=False, soft_wrap=True)


def _all(as_json: str | None) -> None:
    from ercr.models.checked import checked, checked_with
    from ercr.models.registry import adapters
    from ercr.zoo import packaged

    own = {adapter.family: adapter for adapter in adapters().values()}
    if as_json is not None:
        emit_data(
            {
                "packaged": list(packaged()),
                "families": [
                    {"family": name, "model_types": list(a.model_types), "checkpoints": list(a.checkpoints)}
                    for name, a in sorted(own.items())
                ],
                "checked": [_as_dict(family) for family in checked()],
                "checked_with": {"transformers": checked_with()},
            },
            as_json,
        )
        return
    possible = [family for family in checked() if family.reason is None]
    for heading, wanted in (
        ("checked, with an adapter of their own", [f for f in possible if f.adapter == "own"]),
        ("checked, by the generic adapter", [f for f in possible if f.adapter == "generic"]),
        ("not possible, except by the method occlusion", [f for f in checked() if f.methods == 1]),
        ("not possible", [f for f in checked() if f.methods == 0]),
    ):
        results.print(f"[bold]{heading}[/bold]")
        results.print(_table(wanted))
    results.print(
        "Any other type behind AutoModelForImageTextToText: by the generic adapter, unchecked.\n"
        "`ercr models FOLDER_OR_ID` says what would be done with a checkpoint.\n"
        f"Packaged: {', '.join(packaged()) or 'none'}."
    )


def _table(wanted: list[CheckedFamily]) -> Table:
    """One line for each type; families of one type, such as LLaVA's decoders, share it."""
    table = Table(Column("type", no_wrap=True), "families", Column("example", overflow="fold"), box=None)
    by_type: dict[str, list[CheckedFamily]] = {}
    for family in wanted:
        by_type.setdefault(family.type, []).append(family)
    for kind, families in sorted(by_type.items()):
        titles = ", ".join(dict.fromkeys(family.title for family in families))
        reason = families[0].reason
        table.add_row(kind, titles if reason is None else f"{titles}: {_why(reason)}", families[0].checkpoint)
    return table


def _why(reason: str) -> str:
    """The middle of the sentence: what the model does, without its name and the way out."""
    _, _, after = reason.partition(", because ")
    return (after or reason).rpartition(": use ")[0] or reason


def _as_dict(family: CheckedFamily) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(family)
