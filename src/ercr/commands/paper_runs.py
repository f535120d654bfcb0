"""Measures the paper's tables: which evaluations each table needs, and one call that runs and reports them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from ercr.errors import InputError, nearest
from ercr.methods.specs import ABLATION, NAMES
from ercr.report.build import TABLES, build
from ercr.report.cells import slug
from ercr.report.document import Report
from ercr.report.sections.efficiency import FILE, MEASURED
from ercr.version import __version__

ALL = "all"
PICTURES, TOKENS = 3, 32  # number of pictures that methods are timed on, and the length of the answers
SCENES = "scenes:100"  # the default dataset: drawn scenes, which the packaged models for scenes can describe


@dataclass(frozen=True)
class Job:
    """One evaluation of every model on every dataset."""

    methods: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    subword: str = "max"

    @property
    def suffix(self) -> str:
        """The part of the folder's name that distinguishes this job from others of the same table."""
        names = [f"subword-{self.subword}"] if self.subword != "max" else []
        return "-".join([*names, *sorted(self.options)])


_THREE = ("cam", "tam", "ercr")
_SPANS = ("0.25/0.625/1", "0.75/0.875/1", "0.5/0.875/1.25", "0.5/1/1.5")
# the evaluations that each table needs
JOBS: dict[str, tuple[Job, ...]] = {
    "baselines": (Job(tuple(NAMES)),),
    "generalization": (Job(_THREE),),
    "ablation": (Job(tuple(spec for _, spec in ABLATION.values())),),
    "subword": tuple(Job(("tam", "ercr"), subword=rule) for rule in ("max", "mean", "first")),
    "suppression": (Job(("ercr",), {"suppression": True}),),
    "faithfulness": (Job(_THREE, {"faithfulness": "curve"}),),
    "efficiency": (),  # timed, not evaluated
    "views": (Job(("ercr", *(f"ercr:views={count}" for count in (1, 2, 4, 5)))),),
    "scales": (Job(("ercr", *(f"ercr:scales={span}" for span in _SPANS))),),
}


def jobs(table: str, protocol: str = "tam") -> list[Job]:
    """The evaluations of a table, or of all; those with the same options are joined.

    Under the preset `tam`, the method TAM is that of its public code, too.
    """
    known = [*TABLES, ALL]
    if table not in known:
        raise InputError(f"There is no table {table!r}; there are {', '.join(known)}.{nearest(table, known)}")
    wanted = [job for name in (JOBS if table == ALL else [table]) for job in JOBS[name]]
    joined: dict[str, Job] = {}
    for job in wanted:
        before = joined.get(job.suffix, Job((), job.options, job.subword))
        methods = [_public(method, protocol) for method in job.methods]
        joined[job.suffix] = Job(tuple(dict.fromkeys([*before.methods, *methods])), job.options, job.subword)
    return list(joined.values())


def _public(method: str, protocol: str) -> str:
    from ercr.metrics.protocol import Protocol

    return "tam:compat=on" if method == "tam" and Protocol.parse(protocol).base == "tam" else method


def reproduce(
    table: str,
    models: Sequence[str] = (),
    data: Sequence[str] = (),
    out: str | Path = "reproduction",
    *,
    protocol: str = "tam",
    runs: Callable[[str, Callable[..., Any]], Any] = lambda what, call: call(),
    **options: Any,
) -> Report:
    """Run the evaluations of a table into `out/runs` and report them; finished ones are kept.

    `runs(text, call)` gets every evaluation with a description and must run `call`; it may show progress.
    The other options go to `ercr.evaluate.evaluate`.
    """
    from ercr.evaluate import evaluate

    loaded: dict[str, Any] = {}
    work = list(plan(table, models, data, Path(out), protocol))
    for model, dataset, job, folder in work:
        rules = f"{protocol},subword={job.subword}" if job.subword != "max" else protocol
        given = {"protocol": rules, **job.options, **options}
        call = partial(evaluate, _model(model, folder, loaded, options), dataset, list(job.methods), folder, **given)
        runs(f"{model} on {dataset}, protocol {rules}: {', '.join(job.methods)}", call)
    folders = [folder for *_, folder in work]
    for model in (
        dict.fromkeys(models or _default_models(table, [*data, SCENES][0])) if table in ("efficiency", ALL) else ()
    ):
        folders.append(Path(out) / "runs" / f"efficiency-{slug(Path(model).name)}")
        if not (folders[-1] / FILE).exists():
            explainer, pictures = _load(model, loaded, options), min(options.get("limit") or PICTURES, PICTURES)
            runs(f"{model}: timing methods", _timer(explainer, [*data, SCENES][0], folders[-1], pictures))
    return build(folders, only=None if table == ALL else {table})


def plan(
    table: str, models: Sequence[str], data: Sequence[str], out: Path, protocol: str
) -> Iterator[tuple[str, str, Job, Path]]:
    """Model, dataset, job and folder of every evaluation."""
    seen: Counter[str] = Counter()
    datasets = list(dict.fromkeys(data or (SCENES,)))
    for model in dict.fromkeys(models or [name for dataset in datasets for name in _default_models(table, dataset)]):
        for dataset in datasets if models else [d for d in datasets if model in _default_models(table, d)]:
            for job in jobs(table, protocol):
                parts = (table, Path(model).name, dataset.partition(":")[0], job.suffix)
                name = "-".join(slug(part) for part in parts if part)
                seen[name] += 1  # two datasets of one kind, or two models with the same last part of their names
                yield model, dataset, job, out / "runs" / (name if seen[name] == 1 else f"{name}-{seen[name]}")


def _default_models(table: str, dataset: str) -> list[str]:
    """The default model for the dataset; tables that compare models use all packaged models for drawn scenes."""
    from ercr.zoo import DEFAULT, scene_models
    from ercr.zoo.defaults import model_for_dataset

    default = model_for_dataset(dataset).name
    return scene_models() if default == DEFAULT and table in ("generalization", ALL) else [default]


def _model(name: str, folder: Path, loaded: dict[str, Any], options: dict[str, Any]) -> Any:
    """The model, loaded once for all evaluations; only its name if the run is complete or workers load it."""
    from ercr.evaluate import Run

    if options.get("engine") == "ray" or Run(folder).complete:
        return name
    return _load(name, loaded, options)


def _load(name: str, loaded: dict[str, Any], options: dict[str, Any]) -> Any:
    if name not in loaded:
        from ercr.evaluate.plan import Plan
        from ercr.evaluate.worker import load_explainer

        chosen = {key: options[key] for key in ("revision", "device", "dtype") if options.get(key) is not None}
        loaded.clear()  # one large model at a time
        loaded[name] = load_explainer(Plan(name, SCENES, ("ercr",), **chosen))
    return loaded[name]


def _timer(explainer: Any, dataset: str, folder: Path, pictures: int) -> Callable[..., Any]:
    """`time_methods` as a call that ignores the progress callbacks of an evaluation."""
    return lambda **_: time_methods(explainer, dataset, folder, pictures)


def time_methods(explainer: Any, dataset: str, folder: Path, pictures: int = PICTURES) -> Path:
    """Time the efficiency table's rows on the first pictures of a dataset into a `benchmark.json`."""
    from ercr.benchmark.rows import TABLE, Bench, table
    from ercr.datasets.registry import open_dataset
    from ercr.files.folders import make_results_folder
    from ercr.files.writing import write_atomic

    samples = open_dataset(dataset)[:pictures]
    pictures_only = [sample.image for sample in samples if not isinstance(sample.image, tuple)]
    measured = [table(Bench(explainer, image, TOKENS), ["tam"]) for image in pictures_only]
    specs = {**TABLE, "tam": "tam"}
    rows: list[dict[str, Any]] = []
    for name in measured[0]:
        found: dict[str, list[Any]] = {key: [one[name].get(key) for one in measured] for key in MEASURED}
        means = {key: fmean(map(float, values)) for key, values in found.items() if None not in values}
        rows.append({**({"method": specs[name]} if name in specs else {"name": name}), **means})
    model = explainer.adapter.model
    content = {
        "format": 1,
        "ercr": __version__,
        "model": explainer.name,
        "device": _device(explainer.adapter.device),
        "dtype": str(model.dtype).removeprefix("torch."),
        "dataset": dataset,
        "samples": len(samples),
        "new_tokens": TOKENS,
        "rows": rows,
    }
    make_results_folder(folder, [FILE], FILE)
    write_atomic(folder / FILE, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    return folder


def _device(device: Any) -> str:
    """A short description of the device."""
    import platform

    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
