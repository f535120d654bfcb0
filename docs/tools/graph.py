"""Draw which folder of the package imports which, as docs/images/imports.svg.

    python docs/tools/graph.py

Every import counts: at the top of a module, inside functions, and those that only type checkers read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ercr"
TARGET = ROOT / "docs" / "images" / "imports.svg"
# single files that any folder may use; arrows to them would tell nothing
EVERYWHERE = ("errors", "lazy", "printable", "progress", "version")
ENTRANCES = ("__init__", "__main__")  # names handed on and the command started: nothing imports them

Graph = Mapping[str, set[str]]


def modules(source: Path = SOURCE, types: bool = True) -> dict[str, set[str]]:
    """Every module of the package, and the modules that it imports anywhere; `types`: for type checkers as well."""
    files = {_name(path, source): path for path in sorted(source.rglob("*.py"))}
    return {name: set(_imported(name, path, files, types)) - {name} for name, path in files.items()}


def _name(path: Path, source: Path) -> str:
    parts = (source.name, *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, path: Path, known: Mapping[str, Path], types: bool) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = set() if types else {inner for node in guarded for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found = [inner if (inner := f"{base}.{alias.name}") in known else base for alias in node.names]
        else:
            continue
        yield from (module for module in found if module in known)


def folders(imports: Graph) -> dict[str, set[str]]:
    """The same between the folders (and single files) right below the package."""
    found: dict[str, set[str]] = {}
    for module, others in imports.items():
        home = folder(module)
        found.setdefault(home, set()).update(folder(other) for other in others)
        found[home].discard(home)
    return found


def folder(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def cycles(graph: Graph) -> list[set[str]]:
    """Groups of nodes that reach each other."""
    reached = {node: reach(graph, node) for node in graph}
    groups = {frozenset(n for n in reached[node] if node in reached[n]) for node in graph if node in reached[node]}
    return [set(group) for group in groups]


def reach(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(graph[node])
    return found


def without_shortcuts(graph: Graph) -> dict[str, set[str]]:
    """The arrows that no way over other nodes replaces; the rest would only make the picture black."""
    return {
        node: {to for to in others if not any(to in reach(graph, other) for other in others - {to})}
        for node, others in graph.items()
    }


def levels(graph: Graph) -> dict[str, int]:
    """How many steps a node stands above the ones that import nothing."""

    def level(node: str) -> int:
        return 1 + max((level(other) for other in graph[node]), default=-1)

    return {node: level(node) for node in graph}


_BOX, _GAP, _ROW, _LANE = (112, 30), 22, 74, 14  # width and height; between boxes; between levels; width of a bend
Bend = tuple[str, str, int]  # where an arrow passes a level that it does not end on
Place = str | Bend
Way = list[Place]  # from a node, by its bends, to another


def picture(graph: Graph) -> str:
    """The folders as boxes, those that build on others above them, and an arrow to each that is imported."""
    arrows = without_shortcuts(graph)
    heights = levels(graph)
    ways = [_way(a, b, heights) for a in sorted(arrows) for b in sorted(arrows[a])]
    rows = _ordered(heights, ways)
    wide = max(_length(row) for row in rows) + 2 * _GAP
    x = _across(rows, ways, wide)
    high = len(rows) * _ROW + 8

    def middle(place: Place, level: int) -> tuple[float, float]:
        return x[place], high - 22 - _ROW * level - _BOX[1] / 2

    lines = []
    for way in ways:
        points = [middle(place, heights[way[0]] - index) for index, place in enumerate(way)]
        lines.append(f'<path d="{_curve(points)}" marker-end="url(#tip)"/>')
    boxes = []
    for node, level in sorted(heights.items()):
        left, top = x[node] - _BOX[0] / 2, middle(node, level)[1] - _BOX[1] / 2
        boxes.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{_BOX[0]}" height="{_BOX[1]}" rx="6"/>')
        boxes.append(f'<text x="{x[node]:.1f}" y="{top + 20:.1f}">{escape(node)}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" font-family="sans-serif">',
            "<title>Folders of ercr; an arrow leads from a folder to one that it imports</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="#5b6472"/></marker></defs>',
            f'<rect width="{wide:.0f}" height="{high}" fill="#fff"/>',
            '<g fill="none" stroke="#5b6472" stroke-width="1.2">',
            *lines,
            '</g><g fill="#eef2f8" stroke="#3b4a63" text-anchor="middle" font-size="14">',
            *(box.replace("<text", '<text fill="#14181f" stroke="none"') for box in boxes),
            "</g></svg>\n",
        ]
    )


def _way(start: str, end: str, heights: Mapping[str, int]) -> Way:
    bends: list[Place] = [(start, end, level) for level in range(heights[start] - 1, heights[end], -1)]
    return [start, *bends, end]


def _ordered(heights: Mapping[str, int], ways: list[Way]) -> list[list[Place]]:
    """The places of each level from left to right, so that few arrows cross: each moves to the mean of its ends."""
    rows: list[list[Place]] = [[] for _ in range(max(heights.values()) + 1)]
    for node, level in sorted(heights.items()):
        rows[level].append(node)
    for way in ways:
        for index, place in enumerate(way[1:-1], 1):
            rows[heights[way[0]] - index].append(place)
    above, below = _neighbours(ways)
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for turn in range(24):
        side = (above, below)[turn % 2]
        for row in reversed(rows) if side is above else rows:
            where = {place: index / len(line) for line in rows for index, place in enumerate(line)}
            row.sort(key=lambda place: sum(w := [where[n] for n in side[place]] or [where[place]]) / len(w))
        if (count := _crossings(rows, below)) < fewest:
            best, fewest = [list(row) for row in rows], count
    return best


def _neighbours(ways: list[Way]) -> tuple[dict[Place, list[Place]], dict[Place, list[Place]]]:
    above: dict[Place, list[Place]] = {}
    below: dict[Place, list[Place]] = {}
    for way in ways:
        for place in way:
            above.setdefault(place, [])
            below.setdefault(place, [])
        for upper, lower in pairwise(way):
            above[lower].append(upper)
            below[upper].append(lower)
    return above, below


def _crossings(rows: list[list[Place]], below: Mapping[Place, list[Place]]) -> int:
    count = 0
    for lower, upper in pairwise(rows):
        where = {place: index for index, place in enumerate(lower)}
        ends = [(i, where[end]) for i, place in enumerate(upper) for end in below.get(place, ())]
        count += sum(1 for n, (i, a) in enumerate(ends) for j, b in ends[:n] if (i - j) * (a - b) < 0)
    return count


def _length(row: list[Place]) -> float:
    return sum((_BOX[0] if isinstance(place, str) else _LANE) + _GAP for place in row)


def _across(rows: list[list[Place]], ways: list[Way], wide: float) -> dict[Place, float]:
    """The middle of each place: level by level as near as possible to what it is joined with."""
    x: dict[Place, float] = {}
    above, below = _neighbours(ways)
    for row in rows:
        at = (wide - _length(row)) / 2
        for place in row:
            width = (_BOX[0] if isinstance(place, str) else _LANE) + _GAP
            x[place] = at + width / 2
            at += width
    for turn in range(40):
        for row in rows if turn % 2 else reversed(rows):
            joined = {p: [*above.get(p, ()), *below.get(p, ())] for p in row}
            for p in row:
                if joined[p]:
                    x[p] += 0.5 * (sum(x[n] for n in joined[p]) / len(joined[p]) - x[p])
            _apart(row, x, wide)
    return x


def _apart(row: list[Place], x: dict[Place, float], wide: float) -> None:
    """Push the places of a level to the right, then to the left, until none touches another or the border."""

    def half(place: Place) -> float:
        return ((_BOX[0] if isinstance(place, str) else _LANE) + _GAP) / 2

    for line, sign in ((row, 1), (row[::-1], -1)):
        border = _GAP / 2 if sign > 0 else _GAP / 2 - wide
        for place in line:
            x[place] = sign * max(sign * x[place], border + half(place))
            border = sign * x[place] + half(place)


def _curve(points: list[tuple[float, float]]) -> str:
    """Downwards from box to box, straight through its bends."""
    (x, y), (_, end) = points[0], points[-1]
    path = [f"M{x:.1f} {y + _BOX[1] / 2:.1f}"]
    before = (x, y + _BOX[1] / 2)
    for index, (px, py) in enumerate(points[1:], 1):
        last = index == len(points) - 1
        to = (px, end - _BOX[1] / 2 - 1 if last else py)
        bow = (to[1] - before[1]) / 2
        path.append(f"C{before[0]:.1f} {before[1] + bow:.1f} {to[0]:.1f} {to[1] - bow:.1f} {to[0]:.1f} {to[1]:.1f}")
        before = to
    return "".join(path)


def drawn() -> dict[str, set[str]]:
    """The part of the graph that the picture shows."""
    graph = folders(modules())
    hidden = (*EVERYWHERE, *ENTRANCES)
    return {node: others - set(hidden) for node, others in graph.items() if node not in hidden}


if __name__ == "__main__":
    TARGET.write_text(picture(drawn()), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")
