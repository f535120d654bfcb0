"""Runs one method on many traces of the same geometry at once, with as few kernel launches as for one trace."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.trace import TextRows, Trace

_ENTRIES = 2**26  # entries of the tables of ranks in memory at once
_FEW = 2  # traces that are as fast one by one as vectorised
_OPTIONAL = ("alpha", "beta", "relevance", "size")


def run(method: Method, settings: Settings, trace: Trace) -> tuple[Evidence, Result]:
    """The method on all rows of one trace."""
    rows = slice(0, len(trace.text.targets))
    evidence = method.evidence(trace, rows, settings)
    return evidence, method.refine(trace, evidence.maps, rows, settings)


@torch.no_grad()
def run_all(method: Method, settings: Settings, traces: Sequence[Trace]) -> list[tuple[Evidence, Result]]:
    """The method on every trace. On a GPU, traces of one geometry are computed together if the method allows it.

    A method that can stream reads only tensors, and no row needs a later one. So traces can be padded at their ends
    and vectorised by `torch.vmap`.
    """
    results: dict[int, tuple[Evidence, Result]] = {}
    groups: dict[Hashable, list[int]] = {}
    shared = method.streams(settings) and not method.needs(settings).replay
    for index, trace in enumerate(traces):
        alike = tuple((view.scale, view.geometry) for view in trace.views)
        on_gpu = trace.text.targets.device.type == "cuda"
        groups.setdefault(alike if shared and on_gpu else index, []).append(index)
    for members in groups.values():
        chosen = [traces[index] for index in members]
        many = len(chosen) > _FEW
        found = mapped(method, settings, chosen) if many else [run(method, settings, trace) for trace in chosen]
        results.update(zip(members, found, strict=True))
    return [results[index] for index in range(len(traces))]


def mapped(method: Method, settings: Settings, traces: Sequence[Trace]) -> list[tuple[Evidence, Result]]:
    """The method on traces of one geometry, padded to the longest."""
    lengths = [len(trace.text.targets) for trace in traces]
    names = [field.name for field in fields(TextRows) if field.name != "places"]
    text = {name: _stacked([getattr(trace.text, name) for trace in traces], max(lengths)) for name in names}
    states = [torch.stack(views) for views in zip(*([v.states for v in t.views] for t in traces), strict=True)]
    first = traces[0]

    def one(rows: dict[str, Tensor], shown: list[Tensor]) -> dict[str, dict[str, Tensor]]:
        views = tuple(replace(view, states=state) for view, state in zip(first.views, shown, strict=True))
        evidence, result = run(method, settings, replace(first, text=TextRows(**rows), views=views))
        optional = {name: value for name in _OPTIONAL if (value := getattr(result, name)) is not None}
        return {
            "evidence": {"maps": evidence.maps, **({} if evidence.size is None else {"size": evidence.size})},
            "stages": evidence.stages,
            "result": {"maps": result.maps, **optional},
        }

    at_once = max(1, _ENTRIES // (max(lengths) * first.vocabulary))
    found = torch.vmap(one, chunk_size=at_once)(text, states)
    return [_cut(found, row, length) for row, length in enumerate(lengths)]


def _stacked(rows: Sequence[Tensor], length: int) -> Tensor:
    """Rows [S, ...] of several traces as [B, length, ...], padded with zeros."""
    return torch.stack([F.pad(row, (0, 0) * (row.ndim - 1) + (0, length - len(row))) for row in rows])


def _cut(found: dict[str, dict[str, Tensor]], row: int, length: int) -> tuple[Evidence, Result]:
    """The results of one trace, without its padding."""
    part = {group: {name: value[row, :length] for name, value in tensors.items()} for group, tensors in found.items()}
    result = part["result"]
    result |= {name: result[name][:, :length] for name in ("alpha", "relevance") if name in result}
    evidence = part["evidence"]
    return Evidence(evidence["maps"], part["stages"], evidence.get("size")), Result(**result)
