"""Makes torchvision importable for tests: its wheel without compiled operators, which are declared here."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

PLACE = Path(__file__).parents[2] / ".venv" / "torchvision"


def make_importable() -> bool:
    """Whether torchvision can be imported; call it before transformers is imported."""
    try:
        import torchvision
    except (ImportError, RuntimeError):
        for name in [n for n in sys.modules if n.startswith("torchvision")]:
            del sys.modules[name]
        if not PLACE.is_dir():
            return False
        sys.path.append(str(PLACE))
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401
    return True
