"""Models explained by several threads at once: `python -m tests.attacks.threads [--runs 128] [--threads 2]`.

First every packaged model explains pictures by every method in one thread. Then threads do the same in a random order,
on one model or on several, single pictures, batches and streams; a second explainer around the same model takes turns
with the first, some streams are left half-way, and some runs are broken off by an exception in the middle. Every
map must be the single thread's to the bit, and afterwards model, process and results must be as before.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from PIL import Image

import ercr
from ercr.errors import Cancelled
from ercr.trace.cancel import stopped_when

PROMPT = "Describe this image."
EIGHT = ("ercr", "tam", "attention", "grad_rollout", "layer_cam", "llava_cam", "attn_lrp", "architecture_surgery")
Maps = tuple[str, Any]
Task = tuple[int, int, str]  # explainer, picture, method or stream


def state(model: Any) -> tuple[Any, ...]:
    """Everything that a run could leave behind in a model, this thread or the process."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    cuda = torch.backends.cuda
    modules = {
        name: (
            sorted(vars(module)),
            [len(hooks) for key, hooks in vars(module).items() if key.endswith("_hooks")],
            module.training,
            id(vars(module).get("config")),
            vars(module).get("forward"),
            [(key, id(value)) for key, value in module._modules.items()],
        )
        for name, module in model.named_modules()
    }
    tensors = {
        name: (id(t), t.data_ptr(), t.dtype, t.requires_grad, t.grad is None, t._version)
        for name, t in [*model.named_parameters(), *model.named_buffers()]
    }
    process = (
        dict(functions._local_mapping),
        dict(functions._global_mapping),
        (cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(), cuda.mem_efficient_sdp_enabled()),
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )
    return modules, tensors, process, torch.is_grad_enabled(), torch.is_inference_mode_enabled()


class Attack:
    """Explainers and pictures, what one thread says about them, and what went wrong since."""

    def __init__(self, explainers: Sequence[ercr.Explainer], images: Sequence[Image.Image], tokens: int = 6) -> None:
        self.explainers, self.images, self.tokens = explainers, images, tokens
        self.known: dict[Task, Maps] = {}
        self.wrong: Counter[str] = Counter()
        self.errors: list[str] = []
        self._counting = threading.Lock()
        self._left: list[Any] = []  # streams that nobody goes on with

    def explain(self, task: Task) -> Maps:
        explainer, image, method = self.explainers[task[0]], self.images[task[1]], task[2]
        if method.startswith("stream "):
            # a minimum makes greedy decoding the business of `generate`, which streams from a second thread
            generation = {"min_new_tokens": 2} if method.endswith("generate") else None
            name = method.split()[1]
            stream = explainer.stream(image, PROMPT, method=name, max_new_tokens=self.tokens, generation=generation)
            for _ in stream:
                pass
            found = stream.explanation()
        else:
            found = explainer.explain(image, PROMPT, method=method, max_new_tokens=self.tokens)
        return found.text, found.maps

    def learn(self, tasks: Sequence[Task]) -> None:
        """What one thread alone says."""
        for task in tasks:
            self.known[task] = self.explain(task)

    def compare(self, task: Task, when: str) -> None:
        try:
            text, maps = self.explain(task)
        except Exception as error:
            self._count(f"failed {when}", f"{task}: {type(error).__name__}: {error}")
            return
        known, expected = self.known[task]
        if text != known or not np.array_equal(maps, expected):
            self._count(f"wrong {when}", f"{task} {when}: {text!r} instead of {known!r}")

    def disturb(self, task: Task, rng: random.Random) -> None:
        """A run that is given up: a stream left half-way, or any run broken off at one of its blocks."""
        explainer, image = self.explainers[task[0]], self.images[task[1]]
        generation = {"min_new_tokens": 2} if rng.random() < 0.5 else None
        if rng.random() < 0.5:
            stream = iter(explainer.stream(image, PROMPT, max_new_tokens=20, generation=generation))
            next(stream)
            if rng.random() < 0.5:
                self._left.append(stream)  # suspended until the end, as a notebook's cell may leave it
            return
        left = iter(range(rng.randrange(1, 60)))
        try:
            with stopped_when(lambda: next(left, None) is None):
                self.explain(task)
        except Cancelled:
            pass

    def run(self, runs: int, threads: int, seed: int) -> None:
        rng = random.Random(seed)
        tasks = [rng.choice(list(self.known)) for _ in range(runs)]
        start = threading.Barrier(threads)

        def work(part: Sequence[Task], own: random.Random) -> None:
            start.wait()
            for number, task in enumerate(part):
                if number % 8 == 5:
                    self._guard(lambda task=task: self.disturb(task, own), task)
                self.compare(task, "in threads")

        with ThreadPoolExecutor(threads) as pool:
            for number in range(threads):
                pool.submit(work, tasks[number::threads], random.Random(f"{seed} {number}")).add_done_callback(_raised)
        self._left.clear()

    def _guard(self, function: Callable[[], None], task: Task) -> None:
        try:
            function()
        except Exception as error:
            self._count("failed while disturbing", f"{task}: {type(error).__name__}: {error}")

    def _count(self, name: str, sentence: str) -> None:
        with self._counting:
            self.wrong[name] += 1
            self.errors.append(sentence)


def _raised(future: Any) -> None:
    if future.exception() is not None:
        print(f"A thread broke off: {future.exception()!r}", file=sys.stderr)


def attack(
    explainers: Sequence[ercr.Explainer],
    images: Sequence[Image.Image],
    methods: Sequence[str],
    runs: int,
    threads: int = 2,
    seed: int = 0,
    tokens: int = 6,
) -> Attack:
    """Learn, run in threads, look at what is left behind, and run in one thread again."""
    made = Attack(explainers, images, tokens)
    streams = ("stream ercr", "stream cam generate")
    tasks = [
        (e, i, method) for e in range(len(explainers)) for i in range(len(images)) for method in (*methods, *streams)
    ]
    models = {id(explainer.adapter.model): explainer.adapter.model for explainer in explainers}.values()
    before = [state(model) for model in models]
    made.learn(tasks)
    made.run(runs, threads, seed)
    for old, model in zip(before, models, strict=True):
        for part, was, now in zip(
            ("modules", "tensors", "process", "grad", "inference"), old, state(model), strict=True
        ):
            if was != now:
                made.wrong["left behind"] += 1
                made.errors.append(f"left behind in {part}")
    if threading.active_count() > 1:
        made.errors += [f"{t.name} still runs" for t in threading.enumerate() if t.name == "ercr-generate"]
    for task in random.Random(seed).sample(tasks, min(len(tasks), runs // 2)):
        made.compare(task, "afterwards")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="all methods, not eight")
    options = parser.parse_args()
    from ercr.datasets.scenes.dataset import scene

    torch.set_num_threads(1)
    names = ("scenes-qwen2vl", "scenes-llava", "scenes-internvl")
    explainers = [ercr.Explainer.from_pretrained(name) for name in names]
    first = explainers[0]
    adapter = first.adapter  # a second explainer around one of the models
    explainers.append(ercr.Explainer(adapter.model, (adapter.tokenizer, adapter.image_processor)))
    images = [scene(5).image, scene(6).image.resize((300, 200))]
    methods = tuple(ercr.methods.methods()) if options.all else EIGHT
    made = attack(explainers, images, methods, options.runs, options.threads, options.seed)
    print(*made.errors[:20], sep="\n")
    print(
        f"{options.runs} runs in {options.threads} threads over {len(names)} models and {len(methods)} methods: "
        f"{made.wrong['wrong in threads']} wrong, {made.wrong['failed in threads']} failed, "
        f"{made.wrong['wrong afterwards'] + made.wrong['failed afterwards']} wrong afterwards, "
        f"{made.wrong['left behind']} left behind, {made.wrong['failed while disturbing']} failed while disturbing"
    )
    return int(bool(made.wrong or made.errors))


if __name__ == "__main__":
    sys.exit(main())
