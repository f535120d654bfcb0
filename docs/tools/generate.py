"""Write what the code already says into the pages: facts of every method, options of every command, checked families.

    python docs/tools/generate.py

`methods.md` and `families.md` keep their text; only what stands between their marks is replaced. `commands.md` is
written whole.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

from ercr.commands.cli import app, root
from ercr.methods import Method, methods
from ercr.models.checked import checked, checked_with

DOCS = Path(__file__).resolve().parents[1]
_FACTS = re.compile(r"(<!-- facts: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TABLES = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIELD = re.compile(r"^\s+(\w+):[^#=]+=[^#]+?(?:#\s*(.*))?$")
# switches whose line in the code needs no comment
_MEANINGS = {
    "scales": "sizes of the views, as factors of the image's",
    "filter": "the rank Gaussian filter",
    "eps": "keeps divisions finite",
}


def methods_page(text: str) -> str:
    """The page with today's facts of every method it has a section for."""
    known = methods()
    return _FACTS.sub(lambda found: f"{found[1]}\n{facts(known[found[2]])}\n\n{found[3]}", text)


def facts(method: Method) -> str:
    rows = [
        ("name", method.title),
        ("reads", method.reads),
        ("cost", method.cost),
        ("memory", method.memory),
        ("streams", "yes" if method.streams(method.settings()) else "no"),
        ("paper", method.paper),
    ]
    lines = ["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows)]
    switches = fields(method.settings)
    if switches:
        meanings = comments(method.settings)
        lines += ["", "| setting | default | meaning |", "|---|---|---|"]
        lines += [
            f"| `{f.name}` | `{shown(f.default)}` | {_cell(meanings.get(f.name) or _MEANINGS.get(f.name, ''))} |"
            for f in switches
        ]
    return "\n".join(lines)


def comments(settings: type) -> dict[str, str]:
    """The comments behind the fields of a dataclass and of those it inherits from."""
    found: dict[str, str] = {}
    for one in reversed(settings.__mro__[:-1]):
        for line in inspect.getsource(one).splitlines():
            if (match := _FIELD.match(line)) and match[2]:
                found[match[1]] = match[2]
    return found


def shown(value: Any) -> str:
    """A default as it is typed on a command line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "/".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)


def families_page(text: str) -> str:
    """The page on families with the tables of what was checked and measured."""
    tables = {"checked": _checked, "refused": _refused, "without": _without, "generic": _generic, "cost": _cost}
    return _TABLES.sub(lambda found: f"{found[1]}{tables[found[2]]()}\n{found[3]}", text)


def _checked() -> str:
    lines = [
        f"With transformers {checked_with()}:",
        "",
        "| family | `model_type` | decoder | adapter | inputs, tokens | p | painted | bf16 | replay | sees | methods |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in checked():
        if row.reason is not None:
            continue
        sees = "the prompt" if row.causal is False else "each other" if row.mutual else "nothing"
        same = "equal" if row.inputs and row.tokens else "differ"
        beside = "" if row.beside_own is None else f"; centres within {row.beside_own:.3f} of a cell of the probe's"
        numbers = f"{row.probabilities:.0e} | {row.painted:.0%} | {row.half:.3f} | {row.replayed:.0e}"
        lines.append(
            f"| {row.title} | `{row.type}` | {row.decoder} | {row.adapter}{beside} | {same} | {numbers} | {sees} | "
            f"{row.methods} |"
        )
    return "\n".join(lines)


def _refused() -> str:
    """Reasons, each with the families and methods that it stops."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in checked():
        for method, reason in row.refused.items():
            found.setdefault(reason, {}).setdefault(row.title, []).append(method)
    lines = ["| reason | families | methods |", "|---|---|---|"]
    for reason, families in sorted(found.items()):
        names = dict.fromkeys(name for stopped in families.values() for name in stopped)
        methods = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {_cell(reason)} | {', '.join(families)} | {methods} |")
    return "\n".join(lines)


def _without() -> str:
    lines = ["| family | `model_type` | what is said | inputs, tokens | p |", "|---|---|---|---|---|"]
    for row in checked():
        if row.reason is not None:
            same = "" if row.inputs is None else "equal" if row.inputs and row.tokens else "differ"
            p = "" if row.probabilities is None else f"{row.probabilities:.0e}"
            lines.append(f"| {row.title} | `{row.type}` | {_cell(row.reason)} | {same} | {p} |")
    return "\n".join(lines)


def _generic() -> str:
    lines = [
        "| model | Obj-IoU of `ercr`, own | generic | mean difference of its maps | largest |",
        "|---|---|---|---|---|",
    ]
    for path in sorted((DOCS / "tables").glob("generic-scenes-*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        own, generic = (data["scores"][kind]["ercr"]["obj_iou"] for kind in ("own", "generic"))
        mean, largest = data["mean difference of maps"]["ercr"], data["largest difference of maps"]["ercr"]
        lines.append(f"| {data['model']} | {own:.1f} | {generic:.1f} | {mean:.1e} | {largest:.1e} |")
    return "\n".join(lines)


def _cost() -> str:
    lines = [
        "What asking costs, random weights in published shapes (`python -m benchmarks.generic cost`), 16 new tokens, "
        "milliseconds:",
        "",
        "| shape | picture | visual tokens | device | probe of a new size | up to the decoder | `cam` own | generic | "
        "`ercr` own | generic |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted((DOCS / "tables").glob("generic-cost-*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        times = [data.get(f"{method}, {kind}") for method in ("cam", "ercr") for kind in ("own", "generic")]
        cells = [data["probe"], data["up to the decoder"], *times]
        shown = " | ".join("–" if value is None else f"{value:,.0f}" for value in cells)
        lines.append(f"| {data['shape']} | {data['size']} | {data['visual tokens']} | {data['device']} | {shown} |")
    return "\n".join(lines)


def commands_page() -> str:
    """Every command with its arguments and options, as its own help says."""
    parts = [
        "# Commands",
        "<!-- written by docs/tools/generate.py; edit the commands' own help instead -->",
        "Results go to standard output, progress and errors to standard error. Exit status: 0 done, 1 failed, 2 wrong "
        "use, 130 interrupted. `--json` prints one JSON document and nothing else; followed by a name that ends in "
        "`.json` it writes that file instead.",
        "These options go with every command:",
        table(parameters(root)),
    ]
    for name, function in sorted(commands().items()):
        options = parameters(function)
        words = [o.name.upper() if o.needed else f"[{o.name.upper()}]" for o in options if o.argument]
        parts += [f"## ercr {name}", str(inspect.getdoc(function))]
        parts += [f"```\n{' '.join(['ercr', name, *words, '[options]'])}\n```", table(options)]
    return "\n\n".join(parts) + "\n"


def commands() -> dict[str, Any]:
    return {str(c.name or c.callback.__name__): c.callback for c in app.registered_commands if c.callback is not None}


@dataclass(frozen=True)
class Parameter:
    """One argument or option of a command."""

    name: str
    names: tuple[str, ...]
    argument: bool
    needed: bool
    default: str
    help: str


def parameters(function: Any) -> list[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return [_parameter(p, hints[p.name]) for p in inspect.signature(function).parameters.values()]


def _parameter(given: inspect.Parameter, hint: Any) -> Parameter:
    info = hint.__metadata__[0]
    argument = isinstance(info, ArgumentInfo)
    # in an annotation the first name stands where a default would
    names = tuple(n for n in (info.default, *(info.param_decls or ())) if isinstance(n, str) and n.startswith("-"))
    flag = "--" + given.name.rstrip("_").replace("_", "-")
    values = [value for kind in (hint.__origin__, *get_args(hint.__origin__)) for value in _literals(kind)]
    text = str(info.help or "").strip()
    if values and not any(value in text for value in values):
        text += f" One of {', '.join(f'`{value}`' for value in values)}."
    needed = given.default is inspect.Parameter.empty
    return Parameter(given.name, names or (flag,), argument, needed, _default(given.default, info, needed), text)


def _literals(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _default(value: Any, info: Any, needed: bool) -> str:
    if needed:
        return "needed"
    if isinstance(info.show_default, str):
        return _cell(info.show_default)
    return "" if value in (None, False) else f"`{_cell(str(value))}`"


def table(options: list[Parameter]) -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        names = f"`{option.name.upper()}`" if option.argument else ", ".join(f"`{name}`" for name in option.names)
        lines.append(f"| {names} | {option.default} | {_cell(option.help)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text that stays in its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def pages() -> dict[Path, str]:
    """What the generated pages should hold now."""
    listed, families = DOCS / "methods.md", DOCS / "families.md"
    return {
        listed: methods_page(listed.read_text(encoding="utf-8")),
        families: families_page(families.read_text(encoding="utf-8")),
        DOCS / "commands.md": commands_page(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")
