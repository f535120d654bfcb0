"""Linear layers whose weights are packed (bitsandbytes, torchao, GPTQ, AWQ): how to tell them, and their weights.

No library is named. A layer is linear whatever holds its weights, so its answer to the unit vectors is the weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ROWS = 1024  # unit vectors at once


def packed_shape(module: nn.Module) -> tuple[int, int] | None:
    """Outputs and inputs of a linear layer without an ordinary float matrix; None for any other module."""
    rows, columns = getattr(module, "out_features", None), getattr(module, "in_features", None)
    if not isinstance(rows, int) or not isinstance(columns, int) or any(True for _ in module.children()):
        return None
    weight = module._parameters.get("weight")
    ordinary = weight is not None and weight.is_floating_point() and type(weight.data) is Tensor
    return None if ordinary else (rows, columns)


@torch.no_grad()
def unpacked(module: nn.Module, columns: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Weight [out, in] and bias [out] in float32, read from the layer's answers in the model's own precision."""
    unit = torch.eye(columns, device=device, dtype=dtype)
    bias = module(torch.zeros(1, columns, device=device, dtype=dtype))[0].float()
    rows = [module(part).float() - bias for part in torch.split(unit, _ROWS)]
    return torch.cat(rows).mT.contiguous(), bias if bool(bias.any()) else None


def unpack(module: nn.Module, columns: int, device: torch.device, dtype: torch.dtype) -> None:
    """Give a layer of a replica the plain product, whose gradients are exact."""
    weight, bias = unpacked(module, columns, device, dtype)
    module.forward = lambda states: F.linear(states, weight.to(states), None if bias is None else bias.to(states))
