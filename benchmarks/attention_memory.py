"""Peak memory of attention methods on a long sequence, beside plain prefill.

    python -m benchmarks.attention_memory --out docs/tables/attention-memory.json

Random weights in Qwen2-VL-2B's shape, bfloat16, about 4,000 positions, 16 answer tokens. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ercr.benchmark.rows import allowing, picture
from ercr.benchmark.shapes import random_adapter
from ercr.methods import resolve
from ercr.models.chat import as_messages
from ercr.trace import Needs, TraceRequest, trace_samples


def peak(act: Callable[[], Any]) -> tuple[float, float]:
    """Peak of allocated memory in GiB and seconds of one call."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30, time.perf_counter() - started


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", default="attention,attention_rollout,vl_interpret,architecture_surgery,layer_cam")
    parser.add_argument("--rows", type=int, default=62)
    arguments = parser.parse_args()
    adapter = random_adapter("qwen2-vl-2b", "cuda", torch.bfloat16)
    image = picture((arguments.rows, 64), 28)
    with allowing(adapter, image):
        prepared = adapter.prepare(image, as_messages("Name objects:"))
    answer = torch.randint(1000, 100_000, (16,), generator=torch.Generator().manual_seed(1))
    trace = trace_samples(adapter, [TraceRequest(image, prepared, answer)], Needs(replay=True), {})[0]
    rows = slice(0, len(trace.rows))
    trace.replay._forward()
    base, seconds = peak(trace.replay._forward)
    result = {"device": torch.cuda.get_device_name(), "positions": trace.replay.length, "rows": len(trace.rows)}
    result |= {"prefill": {"gib": round(base, 3), "seconds": round(seconds, 3)}}
    for name in arguments.methods.split(","):
        method, settings = resolve(name)
        gib, seconds = peak(lambda method=method, settings=settings: method.evidence(trace, rows, settings))
        result[name] = {"gib": round(gib, 3), "over_prefill_gib": round(gib - base, 3), "seconds": round(seconds, 3)}
        print(name, result[name], flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
