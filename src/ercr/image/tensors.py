"""Pictures as arrays and tensors of any layout, as [H, W] or [H, W, channels] arrays; knows no file."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.errors import ImageError

_CHANNELS = (1, 3, 4)


def is_array(source: object) -> bool:
    """Whether a picture comes as numbers: of NumPy, torch, or whatever can become a NumPy array."""
    return isinstance(source, np.ndarray) or _is_tensor(source) or hasattr(source, "__array__")


def as_pixels(source: Any) -> NDArray[Any]:
    """The numbers with channels last; torch puts them first, and where both are possible its order is believed."""
    first = _is_tensor(source)
    array = _from_torch(source) if first else _from_any(source)
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim == 4:
        raise ImageError(f"One image is explained at a time: give one of the {len(array)} of this array.")
    if array.ndim != 3:
        return array
    if first:
        return np.moveaxis(array, 0, -1) if array.shape[0] in _CHANNELS else array
    return np.moveaxis(array, 0, -1) if array.shape[0] in (1, 3) and array.shape[2] not in _CHANNELS else array


def _is_tensor(source: object) -> bool:
    torch = sys.modules.get("torch")  # a tensor exists only where torch was imported
    return torch is not None and isinstance(source, torch.Tensor)


def _from_torch(tensor: Any) -> NDArray[Any]:
    try:
        host = tensor.detach().cpu()
        return np.asarray(host.float().numpy() if host.is_floating_point() else host.numpy())
    except (RuntimeError, TypeError, ValueError) as error:
        raise ImageError(f"The tensor cannot be read: {' '.join(str(error).split())}.") from None


def _from_any(source: Any) -> NDArray[Any]:
    try:
        return np.asarray(source)
    except Exception as error:  # whatever another library's conversion raises
        raise ImageError(f"The array cannot be read: {' '.join(str(error).split())}.") from None
