"""EfficientNet-Lite0's ImageNet weights, with every batch norm folded into its convolution."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ercr.models.towers.efficientnet_lite import EfficientNetLiteModel

_EPSILON = 1e-3  # the published network's batch norms
_PARTS = (
    ("expand", "_expand_conv", "_bn0"),
    ("depthwise", "_depthwise_conv", "_bn1"),
    ("project", "_project_conv", "_bn2"),
)


def load_backbone(tower: EfficientNetLiteModel, file: Path) -> None:
    """Fill the convolutions and the classifier of a tower from the published file."""
    stored = torch.load(file, map_location="cpu", weights_only=True)
    found: dict[str, Tensor] = {}

    def fold(name: str, convolution: str, norm: str) -> None:
        scale = stored[f"{norm}.weight"] / (stored[f"{norm}.running_var"] + _EPSILON).sqrt()
        found[f"{name}.weight"] = stored[f"{convolution}.weight"] * scale[:, None, None, None]
        found[f"{name}.bias"] = stored[f"{norm}.bias"] - stored[f"{norm}.running_mean"] * scale

    fold("stem", "_conv_stem", "_bn0")
    fold("head", "_conv_head", "_bn1")
    for i, block in enumerate(tower.blocks):
        for name, convolution, norm in _PARTS:
            if getattr(block, name) is not None:
                fold(f"blocks.{i}.{name}", f"_blocks.{i}.{convolution}", f"_blocks.{i}.{norm}")
    for kind in ("weight", "bias"):  # the classes that ImageNet does not have stay as they are
        left = getattr(tower.classifier, kind).detach().cpu()[tower.config.classes :]
        found[f"classifier.{kind}"] = torch.cat([stored[f"_fc.{kind}"], left])
    missing, unexpected = tower.load_state_dict(found, strict=False)
    lost = [name for name in missing if not name.startswith(("words", "neck", "middle_norm", "top_norm"))]
    assert not [*unexpected, *lost], (unexpected, lost)
