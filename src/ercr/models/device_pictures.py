"""Pictures prepared on the model's device by the checkpoint's own processor, with the numbers that it gives on the CPU.

The processors of torchvision's kind take tensors of any device. Only their resizing rounds differently there, so that
is replaced by one with the CPU's very numbers. What a processor does with a picture depends on its size alone, and most
of its time goes into finding that out. So the sizes that it resizes to are remembered, and pictures of a known size are
resized and laid out in a few launches. Whether all of it does what the CPU does is tried once, with pictures of several
sizes, and else the CPU prepares the pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ercr.image.on_device import DevicePicture
from ercr.image.resampling import resize

if TYPE_CHECKING:
    from ercr.models.base import Adapter

_TRIALS = ((640, 427), (97, 331), (500, 375))  # width and height of pictures that are prepared in both ways
_SCALES = (0.5, 0.75)  # of views
_EXACT = {"BILINEAR": 2, "BICUBIC": 3, 2: 2, 3: 3}  # filters whose numbers on the CPU are known
_PLANS = 2**14  # sizes of pictures that are remembered
Size = tuple[int, int]  # height, width
LayOut = Callable[[Tensor], Tensor]  # a resized picture [3, H, W] as rows that the tower takes


class _Wanted(Exception):
    """Carries the size (height, width) that a picture would be resized to."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size


class _Shape(Tensor):
    """The shape of a picture without its pixels; tells the size that it is to be resized to."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function is torch.nn.functional.interpolate:
            height, width = named["size"] if "size" in named else given[1]
            raise _Wanted((int(height), int(width)))
        return super().__torch_function__(function, types, given, named)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Plan:
    """What a processor does with pictures of certain sizes."""

    steps: tuple[tuple[Size, int], ...]  # sizes that the one picture is resized to, with the filter; none: as it is
    beside: dict[str, Any]  # what comes out beside the pixels

    def resized(self, pixels: Sequence[Tensor]) -> Sequence[Tensor]:
        return [resize(pixels[0], *step, "torch") for step in self.steps] or pixels


class DeviceProcessor:
    """Wraps an image processor: pictures on a device come out as 8-bit pixels there; the rest is the wrapped one's."""

    def __init__(self, processor: Any, lay_out: LayOut | None) -> None:
        self._processor, self._lay_out = _with_exact_resize(processor), lay_out
        self._plans: dict[Hashable, _Plan | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def __call__(self, *, images: list[DevicePicture], **options: Any) -> dict[str, Any]:
        given = [image.pixels for image in images]
        key = (tuple(image.size for image in images), repr(sorted(options.items())))
        plan = self._plans.get(key)
        if plan is not None and self._lay_out is not None:
            rows = [self._lay_out(picture) for picture in plan.resized(given)]
            return {"pixel_values": torch.cat(rows) if len(rows) > 1 else rows[0], **plan.beside}
        own = copy(self._processor)
        own.steps = []
        found = dict(own(images=given, **options, do_rescale=False, do_normalize=False))
        if self._lay_out is not None and key not in self._plans:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[key] = self._plan(images, own.steps, found)
        return found

    def _plan(self, images: Sequence[DevicePicture], steps: Sequence[Any], found: dict[str, Any]) -> _Plan | None:
        """How to do the same again, or None where that is not known."""
        assert self._lay_out is not None
        own = (images[0].height, images[0].width)
        kept = [(size, filter) for shape, size, filter in steps if shape == own]
        if any(shape != size for shape, size, _ in steps if shape != own) or (kept and len(images) > 1):
            return None  # something that was already changed is resized
        beside = {name: value for name, value in found.items() if name != "pixel_values"}
        plan = _Plan(tuple(kept), beside)
        sizes = [size for size, _ in kept] or [(image.height, image.width) for image in images]
        rows = [self._lay_out(torch.empty((3, *size), dtype=torch.uint8, device="meta")) for size in sizes]
        shape, pixels = (sum(map(len, rows)), *rows[0].shape[1:]), found["pixel_values"]
        return plan if pixels.dtype == torch.uint8 and pixels.shape == shape else None


def _with_exact_resize(processor: Any) -> Any:
    """A copy of the processor whose resizing has the CPU's numbers."""
    own = copy(processor)
    own.__class__ = _exact(processor.__class__)
    own.steps = []
    return own


@cache
def _exact(kind: type) -> Any:
    from transformers.image_processing_backends import TorchvisionBackend

    class ExactResize(TorchvisionBackend):  # type: ignore[misc]
        """Stands between a processor's class and torchvision's: what the processor resizes is resized here."""

        steps: list[tuple[Size, Size, int]]  # what was resized, from which size to which, with which filter

        def resize(self, image: Tensor, size: Any, resample: Any = None, antialias: bool = True, **more: Any) -> Tensor:
            name = getattr(resample, "name", resample)
            if image.dtype != torch.uint8 or name not in _EXACT or not antialias:
                raise ValueError("The processor resizes in a way that is not known.")
            own = wanted = (int(image.shape[-2]), int(image.shape[-1]))
            try:
                super().resize(_Shape(torch.empty(image.shape, dtype=torch.uint8, device="meta")), size, resample)
            except _Wanted as found:  # the size that the processor's own rules ask for; nothing, if it is that already
                wanted = found.size
            self.steps.append((own, wanted, _EXACT[name]))
            return resize(image, wanted, _EXACT[name], "torch")

    return type(f"{kind.__name__}OnDevice", (kind, ExactResize), {})


def on_device(adapter: Adapter) -> Adapter | None:
    """The adapter that prepares pictures on the model's device, or None if that gives other numbers."""
    if getattr(adapter.image_processor, "backend", None) != "torchvision" or adapter.value_table is None:
        return None
    other = copy(adapter)
    try:
        other.image_processor = DeviceProcessor(adapter.image_processor, adapter.laid_out)
        # twice, because a size is prepared in another way when it comes again
        same = all(_same(adapter.on_cpu_in_8_bits, other, size) for size in (*_TRIALS, *_TRIALS))
    except Exception:  # whatever a processor of another kind raises, the CPU can prepare its pictures
        return None
    return other if same else None


def _same(host: Adapter, device: Adapter, size: tuple[int, int]) -> bool:
    """Whether both make the same of a picture and of its views."""
    values = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(values).resize(size)
    copied = DevicePicture.of(image, device.device)
    expected, found = host.image_inputs(image), device.image_inputs(copied)
    pairs = [(expected, found)]
    for scale in _SCALES:
        view = host.view_inputs(image, expected[1], scale, "pad")
        pairs.append((view, device.view_inputs(copied, expected[1], scale, "pad")))
    return all(
        one[1] == other[1]
        and one[0].keys() == other[0].keys()
        and all(torch.equal(value.cpu(), other[0][name].cpu()) for name, value in one[0].items())
        for one, other in pairs
    )
