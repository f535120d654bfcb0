"""Converts arrays and tensors of any layout to [H, W] or [H, W, channels] arrays; reads no file."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.errors import ImageError

_CHANNELS = (1, 3, 4)


def is_array(source: object) -> bool:
    """Whether an image is given as a NumPy array, a torch tensor or an object that converts to an array."""
    return isinstance(source, np.ndarray) or _is_tensor(source) or hasattr(source, "__array__")


def as_pixels(source: Any) -> NDArray[Any]:
    """The array with channels last; torch tensors are read as channels first where both orders are possible."""
    channels_first = _is_tensor(source)
    array = _from_torch(source) if channels_first else _from_any(source)
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim == 4:
        raise ImageError(
            f"The array holds {len(array)} images: give one of them, a list of some to show them together, or "
            f"ercr.Clip(array) if they are frames of a video."
        )
    if array.ndim != 3:
        return array
    if channels_first:
        return np.moveaxis(array, 0, -1) if array.shape[0] in _CHANNELS else array
    return np.moveaxis(array, 0, -1) if array.shape[0] in (1, 3) and array.shape[2] not in _CHANNELS else array


def _is_tensor(source: object) -> bool:
    torch = sys.modules.get("torch")  # without torch imported there can be no tensor
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
    except Exception as error:  # conversions of other libraries can raise anything
        raise ImageError(f"The array cannot be read: {' '.join(str(error).split())}.") from None
