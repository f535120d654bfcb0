"""What a method's specification is called in the paper: its name, ablation row and views. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ercr.errors import InputError

if TYPE_CHECKING:
    from ercr.methods.base import Settings

# the paper's names, in the order of its first table, with the paper's family of methods
NAMES = {
    "grad_cam_pp": ("Grad-CAM++", "Gradient"),
    "grad_rollout": ("Grad-Rollout", "Gradient"),
    "layer_cam": ("Layer-CAM", "Gradient"),
    "attention": ("Attention", "Attention"),
    "attention_rollout": ("Attention-Rollout", "Attention"),
    "lvlm_interpret": ("LVLM-Interpret", "Attention"),
    "vl_interpret": ("VL-InterpreT", "Representation"),
    "cp_lrp": ("CP-LRP", "Hybrid"),
    "attn_lrp": ("Attn-LRP", "Hybrid"),
    "cam": ("CAM", "Logit"),
    "llava_cam": ("LLaVA-CAM", "Logit"),
    "architecture_surgery": ("Archi.-Surgery", "Logit"),
    "tam": ("TAM", "Logit"),
    "ercr": ("ERCR", "Logit"),
}
# methods beside the paper's, with a name and a family
OTHERS = {"contrast": ("Contrast", "Logit"), "occlusion": ("Occlusion", "Perturbation")}
# the ablation's rows: how views are recomposed (None: one view) and what context is subtracted
ABLATION = {
    (None, None): ("Baseline", "ercr:views=1,context=none"),
    (None, "mean"): ("Mean sub.", "ercr:views=1,context=mean"),
    (None, "tam"): ("TAM-style", "ercr:views=1,context=tam"),
    (None, "pcr"): ("PCR only", "ercr:views=1"),
    ("max", None): ("ER only, max", "ercr:aggregate=max,context=none"),
    ("mean", None): ("ER only", "ercr:context=none"),
    ("max", "pcr"): ("ERCR, max", "ercr:aggregate=max"),
    ("mean", "pcr"): ("ERCR", "ercr"),
}
_PARTS = {
    "scales",
    "views",
    "aggregate",
    "context",
    "weights",
}  # settings of ERCR that the ablation and the sweeps change
Row = tuple[str | None, str | None]


@dataclass(frozen=True)
class Spec:
    """A specification of a method, and what it stands for in the paper."""

    text: str
    name: str
    label: str
    family: str = ""
    published: str | None = None  # the name of its row in the paper's tables of methods
    row: Row | None = None  # of the ablation
    scales: tuple[float, ...] = ()  # if it is ERCR as published except for its scales

    @property
    def label_is_complete(self) -> bool:
        """Whether the label names all settings of the specification."""
        return self.text in (self.name, self.label) or self.label.endswith(_switched("", self.text))

    @property
    def views(self) -> int | None:
        """The number of views if they are evenly spaced over 0.5..1, as in the paper's study of their number."""
        count = len(self.scales)
        even = (1.0,) if count == 1 else tuple(0.5 + 0.5 * i / (count - 1) for i in range(count))
        return count if count and _close(self.scales, even) else None

    @property
    def span(self) -> str | None:
        """The range of scales as text if there are several; a list of all unless they are three, evenly spaced."""
        if len(self.scales) < 2:
            return None
        low, high, count = min(self.scales), max(self.scales), len(self.scales)
        even = tuple(low + (high - low) * i / (count - 1) for i in range(count))
        if count == 3 and _close(self.scales, even):
            return f"{low:g}–{high:g}"
        return "/".join(f"{scale:g}" for scale in self.scales)


@lru_cache(maxsize=1024)
def read(text: str) -> Spec:
    """What a specification such as `ercr:context=tam,views=1` stands for; unknown methods keep their text."""
    from ercr.methods import resolve

    name = text.partition(":")[0]
    title, family = NAMES.get(name) or OTHERS.get(name, (name, ""))
    try:
        method, settings = resolve(text)
    except InputError:  # a method of another version, or of a plugin that is not loaded
        return Spec(text, name, text, family)
    if name == "ercr":
        return _read_ercr(text, settings, method.settings())
    published = title if name in NAMES and _changed(settings, method.settings()) <= {"compat"} else None
    return Spec(text, name, title if published else _switched(title, text), family, published)


def _read_ercr(text: str, settings: Any, default: Any) -> Spec:
    title, family = NAMES["ercr"]
    changed = _changed(settings, default)
    if changed - _PARTS or settings.weights is not None or settings.view_kind != default.view_kind:
        return Spec(text, "ercr", _switched(title, text), family)
    one, usual = _close(settings.scales, (1.0,)), _close(settings.scales, default.scales)
    context = None if settings.context == "none" else settings.context
    row: Row | None = (None if one else settings.aggregate, context)
    if row not in ABLATION or not (one or usual):
        row = None
    published = title if row == ("mean", "pcr") else None
    whole = context == "pcr" and (one or settings.aggregate == "mean")
    label = ABLATION[row][0] if row else _switched(title, text)
    return Spec(text, "ercr", label, family, published, row, tuple(settings.scales) if whole else ())


def _switched(title: str, text: str) -> str:
    """The name with its settings, such as `Layer-CAM, layer=1`."""
    switches = text.partition(":")[2]
    return f"{title}, {switches.replace(',', ', ')}" if switches else title


def _changed(settings: Settings, default: Settings) -> set[str]:
    return {f.name for f in fields(settings) if getattr(settings, f.name) != getattr(default, f.name)}


def _close(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return len(one) == len(other) and all(abs(a - b) < 1e-6 for a, b in zip(sorted(one), sorted(other), strict=True))


def place(spec: Spec) -> tuple[int, int, str]:
    """Sort key of a table row: the paper's order, variants after the published method, other methods last."""
    names = list(NAMES)
    return (names.index(spec.name) if spec.name in names else len(names), int(spec.published is None), spec.text)
