"""Copies the results of runs and methods from the device and makes explanations of them; never runs a model."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ercr.errors import ModelStateError
from ercr.explanation import Candidate, Explanation, Token
from ercr.image.clips import LoadedClip
from ercr.image.gallery import Gallery, Shown
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.models.base import Adapter
from ercr.models.chat import Message
from ercr.trace import Trace
from ercr.trace.greedy import Generation
from ercr.version import __version__
from ercr.words.calibration import Calibration
from ercr.words.contrast import Alternatives
from ercr.words.grounding import WITHOUT, Signals
from ercr.words.pieces import pieces

_CANDIDATES = 5
Tensors = dict[str, dict[str, Tensor]]
Array = NDArray[Any]
Arrays = dict[str, dict[str, Array]]


@dataclass(frozen=True)
class Candidates:
    """Tokens [R, C] that could have stood for each of the answer's, with maps [R, C, h, w] and strengths [R, C]."""

    ids: Tensor
    maps: Tensor
    strength: Tensor


def strengths(evidence: Evidence, result: Result) -> Tensor:
    """The highest value of each map [R] before it was stretched, in the method's unit."""
    peaks = result.maps.flatten(1).amax(-1)
    for size in (result.size, evidence.size):
        peaks = peaks if size is None else peaks * size.to(peaks)
    return peaks


@dataclass(frozen=True)
class Measured:
    """What tells seen words from guessed ones: numbers [R] of the answer's tokens by name, and their calibration."""

    values: dict[str, Tensor]
    calibration: Calibration


@dataclass(frozen=True)
class Explained:
    """One sample explained by one method, still on the device."""

    image: Shown
    trace: Trace
    method: Method
    settings: Settings
    options: Generation | None  # of generation; None if the answer was given
    evidence: Evidence
    result: Result
    candidates: Candidates | None = None
    signals: Measured | None = None
    prepared_on: str = "cpu"  # the kind of device that resized the image
    conversation: tuple[Message, ...] = ()  # what was said before, where it is more than one prompt

    def tensors(self) -> Tensors:
        """All tensors that an explanation needs, in groups."""
        text, result = self.trace.text, self.result
        optional = {
            "alpha": result.alpha,
            "beta": result.beta,
            "relevance": result.relevance,
            "scale": self.evidence.size,
        }
        return {
            "result": {
                "maps": result.maps,
                "strength": strengths(self.evidence, self.result),
                **{name: value for name, value in optional.items() if value is not None},
            },
            "stages": {"evidence": self.evidence.maps, **self.evidence.stages},
            "text": {
                "context": text.context,
                "top_ids": text.top_ids[:, :_CANDIDATES],
                "top": text.top_probabilities[:, :_CANDIDATES],
                "own": text.log_probabilities,
            },
            "finite": self.trace.finite,
            "instead": {} if self.candidates is None else vars(self.candidates),
            "signals": {} if self.signals is None else self.signals.values,
        }


def describe(adapter: Adapter, name: str, revision: str | None, jobs: Sequence[Explained]) -> list[Explanation]:
    """The explanations of a batch; all tensors are copied together, so that the device is waited for once."""
    return [
        _explanation(adapter, name, revision, job, arrays)
        for job, arrays in zip(jobs, fetch([job.tensors() for job in jobs]), strict=True)
    ]


def fetch(jobs: Sequence[Tensors]) -> list[Arrays]:
    """Tensors as NumPy arrays, floats as float32; one copy per device and dtype."""
    # by id, because methods that share a run share tensors; `jobs` keeps all of them alive
    wanted = {id(tensor): tensor.detach() for job in jobs for group in job.values() for tensor in group.values()}
    bundles: dict[Any, list[int]] = {}
    for key, tensor in wanted.items():
        bundles.setdefault((tensor.device, tensor.is_floating_point() or tensor.dtype), []).append(key)
    arrays: dict[int, Array] = {}
    for (_, kind), keys in bundles.items():
        precision = torch.float32 if kind is True else kind
        flat = torch.cat([wanted[key].to(precision).flatten() for key in keys]).cpu()
        parts = np.split(flat.numpy(), np.cumsum([wanted[key].numel() for key in keys[:-1]]))
        for key, part in zip(keys, parts, strict=True):
            arrays[key] = part.reshape(tuple(wanted[key].shape)).copy()  # so that the bundle can be freed
    return [
        {name: {key: arrays[id(tensor)] for key, tensor in group.items()} for name, group in job.items()}
        for job in jobs
    ]


def _explanation(adapter: Adapter, name: str, revision: str | None, job: Explained, arrays: Arrays) -> Explanation:
    job.trace.check({where: bool(fine) for where, fine in arrays["finite"].items()})
    refuse_overflow(job.method.name, *(values for group in arrays.values() for values in group.values()))
    measured = job.signals
    return Explanation(
        image=job.image,
        geometry=job.trace.geometry,
        text_tokens=tuple(_tokens(adapter, job.trace, arrays["text"])),
        provenance=_provenance(adapter, name, revision, job),
        stages=arrays["stages"],
        alternatives=_alternatives(adapter, job.trace.prompts, arrays["instead"]),
        signals=None if measured is None else Signals(job.trace.prompts, arrays["signals"], measured.calibration),
        **arrays["result"],
    )


def _alternatives(adapter: Adapter, first: int, arrays: dict[str, Array]) -> Alternatives | None:
    if not arrays:
        return None
    texts = tuple(tuple(adapter.decode((int(token),)) for token in row) for row in arrays["ids"])
    return Alternatives(first, arrays["ids"], texts, arrays["maps"], arrays["strength"])


def refuse_overflow(method: str, *found: Array) -> None:
    """Refuse NaN and infinity, because finite states may overflow in a method; -inf is allowed as the log of 0."""
    if any(np.isnan(values).any() or np.isposinf(values).any() for values in found if values.dtype.kind == "f"):
        raise ModelStateError(
            f"The maps of {method!r} contain NaN or infinity, because the model's numbers are too large for float32: "
            f"check that the checkpoint is complete, or use another method."
        )


def _tokens(adapter: Adapter, trace: Trace, arrays: dict[str, Array]) -> Iterator[Token]:
    positions = trace.rows.tolist()
    ids = trace.ids[trace.rows].tolist()
    texts = [text for part in _runs(positions) for text in pieces(adapter.decode, ids[part])]
    probabilities = np.exp(arrays["own"]).tolist()
    special = (~arrays["context"]).tolist()
    rows = zip(positions, arrays["top_ids"].tolist(), arrays["top"].tolist(), strict=True)
    for row, (position, top_ids, top) in enumerate(rows):
        yield Token(
            text=texts[row],
            id=ids[row],
            row=row,
            position=position,
            kind="prompt" if row < trace.prompts else "answer",
            special=special[row],
            probability=probabilities[row],
            candidates=tuple(Candidate(adapter.decode((i,)), i, p) for i, p in zip(top_ids, top, strict=True)),
        )


def _provenance(adapter: Adapter, name: str, revision: str | None, job: Explained) -> dict[str, Any]:
    import transformers

    model = adapter.model
    return {
        "model": name,
        "revision": revision,
        "family": adapter.family,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": adapter.device.type,
        "attention": getattr(model.config, "_attn_implementation", None),
        "image_backend": adapter.image_backend,
        "image_device": job.prepared_on,
        "method": job.method.name,
        "unit": job.method.unit,
        "settings": asdict(job.settings),
        **({} if job.signals is None else {"grounding": _grounds(job.signals)}),
        "generation": None if job.options is None else {k: v for k, v in job.options.items() if _plain(v)},
        "answer": "generated" if job.options is not None else "given",
        "image": _shown(job.image),
        **({"conversation": list(job.conversation)} if job.conversation else {}),
        "versions": {
            "ercr": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }


def _grounds(signals: Measured) -> dict[str, Any]:
    """The calibration, and what stood instead of the picture."""
    kinds = [name.removeprefix(WITHOUT) for name in signals.values if name.startswith(WITHOUT)]
    return {"calibration": signals.calibration.name, "without": kinds}


def _shown(image: Shown) -> dict[str, Any]:
    """Hash and size of a picture; of several pieces the hash of all, and what each of them is."""
    if not isinstance(image, Gallery):
        return {"sha256": image.sha256(), "size": list(image.size)}
    pieces = []
    for item in image.items:
        data: dict[str, Any] = {"sha256": item.sha256(), "size": list(item.size)}
        if isinstance(item, LoadedClip):
            data |= {"frames": list(item.indices), "of": item.facts.frames, "fps": item.facts.fps}
        pieces.append(data)
    return {"sha256": image.sha256(), "pieces": pieces}


def _runs(positions: Sequence[int]) -> list[slice]:
    """Ranges of consecutive positions, because messages and the answer are decoded separately."""
    starts = [i for i in range(len(positions)) if i == 0 or positions[i] != positions[i - 1] + 1]
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], len(positions)], strict=True)]


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
