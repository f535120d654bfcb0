"""Run on its own, where the grad-cam package can be imported: its maps for given activations and gradients.

python grad_cam.py INPUT.npz OUTPUT.npz        arrays `activations` [N, c], `gradients` [R, N, c], `grid` [2]
"""

from __future__ import annotations

import sys

import numpy as np
import torch

library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):  # what a torchvision wheel without compiled operators misses
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from pytorch_grad_cam import GradCAMPlusPlus, LayerCAM


class Bare:
    """The packages' methods read little of their object; this is all of it."""

    def __init__(self, kind):
        self.kind = kind
        self.uses_gradients = True

    def __getattr__(self, name):
        return getattr(self.kind, name).__get__(self)


def main(source: str, target: str) -> None:
    data = np.load(source)
    activations, gradients, (h, w) = data["activations"], data["gradients"], data["grid"]
    image = activations.T.reshape(1, -1, h, w)
    out = {}
    for name, kind in (("grad_cam_pp", GradCAMPlusPlus), ("layer_cam", LayerCAM)):
        maps = []
        for row in gradients:
            grads = row.T.reshape(1, -1, h, w)
            cam = kind.get_cam_image(Bare(kind), None, None, None, image, grads, False)
            maps.append(np.maximum(cam[0], 0).ravel())
        out[name] = np.array(maps)
    np.savez(target, **out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
