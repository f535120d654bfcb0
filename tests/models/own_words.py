"""What is explained is what the model's own `generate` says: `python -m tests.models.own_words [--count 200]`.

Pictures of many sizes (drawn scenes, photographs where they are at hand) through every packaged model, in bfloat16 and
float32. Per answer: the tokens and the states behind them must be those of `generate`, to the bit, in a single run and
in a stream; `tam(compat=True)` must give the public code's maps as re-enacted in the tests. In batches, answers must be
those of `generate` for the same batch; how often that says something else than alone is counted beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import ercr
from ercr.explaining.decoding import decoding
from ercr.models.chat import as_messages
from ercr.trace import Needs, TraceRequest, trace_samples
from ercr.trace.greedy import end_tokens
from ercr.trace.tokens import cut_answer, pad_token

SCENES = ("scenes-qwen2vl", "scenes-llava", "scenes-internvl")
PHOTOGRAPHS = Path(__file__).parents[3] / "shared/data/coco2014/image"
SIZES = ((224, 224), (320, 240), (240, 320), (448, 300), (180, 400), (97, 131), (640, 427), (56, 56))
PROMPT = "Describe this image."
BATCH = 4


def pictures(count: int, folder: Path | None, shift: int = 0) -> list[Image.Image]:
    """Photographs, or drawn scenes, at sizes that come in turn; each size comes `BATCH` times in a row."""
    from ercr.datasets.scenes.dataset import scene

    found = sorted(folder.glob("*.jpg")) if folder is not None and folder.is_dir() else []
    made = []
    for number in range(count):
        image = Image.open(found[number % len(found)]).convert("RGB") if found else scene(number + shift).image
        made.append(image.resize(SIZES[number // BATCH % len(SIZES)], Image.Resampling.BICUBIC))
    return made


class Checker:
    """One model in one precision; `counts` says what was compared and `wrong` what differed."""

    def __init__(self, explainer: ercr.Explainer, limit: int, steps: bool = True) -> None:
        self.explainer, self.adapter, self.steps = explainer, explainer.adapter, steps
        self.options = decoding(limit, None)
        self.counts: Counter[str] = Counter()

    @torch.no_grad()
    def generate(self, samples: list[TraceRequest], **more: Any) -> Any:
        inputs = self.adapter.collate([sample.prepared for sample in samples], pad_token(self.adapter))
        return self.adapter.model.generate(**inputs, **self.options, **more)

    def answers(self, sequences: torch.Tensor, length: int) -> list[list[int]]:
        ends = end_tokens(self.adapter, self.options)
        return [cut_answer(row[length:].cpu(), ends, pad_token(self.adapter)).tolist() for row in sequences]

    def one(self, image: Image.Image, maps: bool) -> list[int]:
        """A single run and a stream beside `generate`; its answer."""
        sample = TraceRequest(image, self.adapter.prepare(image, as_messages(PROMPT)))
        out = self.generate([sample], output_hidden_states=True, return_dict_in_generate=True)
        states = [step[-1] for step in out.hidden_states]
        said = out.sequences[0, len(sample.prepared.input_ids) :].tolist()
        trace = trace_samples(self.adapter, [sample], Needs(top=1), self.options)[0]
        self.counts["answers"] += 1
        self.counts["other words"] += trace.ids[trace.input_length :].tolist() != said
        own, theirs = trace.text.emit_states[trace.prompts :], torch.cat([step[0, -1:] for step in states])
        self.counts["other states"] += not torch.equal(own, theirs)
        if self.steps:
            stream = [step.id for step in self.explainer.stream(image, PROMPT, method="cam", generation=self.options)]
            self.counts["other streams"] += stream != said
        if maps:
            self._maps(image, sample, out.sequences[0].cpu(), states)
        return said

    def _maps(self, image: Image.Image, sample: TraceRequest, ids: torch.Tensor, states: list[torch.Tensor]) -> None:
        from tests.methods.test_methods import public_tam

        if len(sample.prepared.geometry.panels) > 1:  # the public code knows no tiles
            return
        with torch.no_grad():
            logits = torch.cat([self.adapter.head(step)[0] for step in states]).float().cpu().numpy()
        expected = public_tam(self.explainer, sample.prepared, ids, logits)
        found = self.explainer.explain(image, PROMPT, method="tam", compat=True, generation=self.options)
        ours = np.round(found.maps[len(sample.prepared.prompt) :] * 255).astype(np.uint8)
        differ = len(ours) != len(expected) or (ours != expected).any((1, 2))
        self.counts["maps"] += len(expected)
        self.counts["other maps"] += int(np.sum(differ))

    def together(self, images: list[Image.Image], alone: list[list[int]]) -> None:
        """A bulk run of pictures of one size beside `generate` for the same batch."""
        samples = [TraceRequest(image, self.adapter.prepare(image, as_messages(PROMPT))) for image in images]
        said = self.answers(self.generate(samples), len(samples[0].prepared.input_ids))
        bulk = self.explainer.explain_batch(images, PROMPT, method="cam", generation=self.options, batch_size=BATCH)
        ours = [[token.id for token in e.text_tokens if token.kind == "answer"] for e in bulk]
        self.counts["in batches"] += len(said)
        self.counts["other words in batches"] += sum(a != b for a, b in zip(ours, said, strict=True))
        self.counts["said otherwise by generate in a batch"] += sum(a != b for a, b in zip(said, alone, strict=True))


def check(explainer: ercr.Explainer, images: list[Image.Image], limit: int, maps: int) -> Counter[str]:
    """Every picture alone and in its batch; the public code's maps for the first `maps` of each size."""
    checker, alone = Checker(explainer, limit), []
    for number, image in enumerate(images):
        alone.append(checker.one(image, number % BATCH < maps))
    for start in range(0, len(images), BATCH):
        checker.together(images[start : start + BATCH], alone[start : start + BATCH])
    return checker.counts


def wrong(counts: Counter[str]) -> int:
    return sum(number for name, number in counts.items() if name.startswith("other"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="answers per precision, over all models")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--models", nargs="+", help="packaged models; without it all that are at hand")
    options = parser.parse_args()
    from ercr.zoo import photo_model

    photo = photo_model()
    models = options.models or [*SCENES, *([photo] if photo else [])]
    each, failed = -(-options.count // len(models)), 0
    for dtype in options.dtypes:
        for at, name in enumerate(models):
            began = time.monotonic()
            explainer = ercr.Explainer.from_pretrained(name, dtype=dtype, device_map=options.device)
            shown = pictures(each, PHOTOGRAPHS if name == photo else None, 1000 * at)
            counts = check(explainer, shown, options.tokens, maps=1)
            failed += wrong(counts)
            print(f"{name} {dtype} ({time.monotonic() - began:.0f} s): {dict(counts)}", flush=True)
    print(f"{failed} differ")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
