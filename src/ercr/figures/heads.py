"""Column titles, all in one size: on one line if they fit, else on two."""

from __future__ import annotations

from collections.abc import Sequence

from ercr.figures.sheet import BODY, FAINT, SMALL, Sheet, line_height, measured, shortened

_TRIES = ((1, BODY), (1, 7.0), (2, 7.5), (2, 7.0), (2, SMALL), (2, 6.0))  # lines and size, the best first


class Heads:
    """The font size and number of lines in which all titles fit, and their height with the remarks."""

    def __init__(self, names: Sequence[str], width: float, remarks: int = 0) -> None:
        self.width = width
        fitting = ((deep, size) for deep, size in _TRIES if all(self._wrapped(n, deep, size) for n in names))
        self.deep, self.size = next(fitting, _TRIES[-1])
        self.height = self.deep * line_height(self.size) + remarks * line_height(SMALL) + 0.03

    def draw(self, sheet: Sheet, name: str, middle: float, top: float, remark: Sequence[str] = ()) -> None:
        """A name, on the last of the lines where it needs fewer, and its remark below."""
        lines = self._wrapped(name, self.deep, self.size) or [shortened(name, self.width, self.size, "bold")]
        at = top + (self.deep - len(lines)) * line_height(self.size)
        for number, line in enumerate(lines):
            baseline = at + (number + 0.8) * line_height(self.size)
            sheet.text(middle, baseline, line, self.size, ha="center", fontweight="bold")
        below = top + self.deep * line_height(self.size)
        for number, line in enumerate(remark):
            baseline = below + (number + 0.75) * line_height(SMALL)
            sheet.text(middle, baseline, shortened(line, self.width, SMALL), SMALL, ha="center", color=FAINT)

    def _wrapped(self, name: str, deep: int, size: float) -> list[str]:
        """One line, or two of about the same length, that fit; none where the name is too long."""
        cuts = [at + 1 for at, letter in enumerate(name[:-1]) if letter in "- "] if deep > 1 else []
        splits = [[name], *([name[:cut].strip(), name[cut:].strip()] for cut in cuts)]
        # between words rather than inside one, then in the middle
        best = sorted(splits, key=lambda s: (len(s), s[0].endswith("-"), abs(len(s[0]) - len(s[-1]))))
        return next((s for s in best if all(measured(line, size, "bold")[0] <= self.width for line in s)), [])
