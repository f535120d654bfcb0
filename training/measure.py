"""Measures a model folder on scenes it was never trained on and writes the scores as JSON; it trains nothing.

    python -m training.measure --model DIR [DIR ...] --sprites carry/sprites.npz --out docs/models/figures.json

Every model describes the same scenes, first in the trained styles, which take turns from seed to seed, then in the
unseen one. Precision and recall count nouns of greedy captions. The CAM scores read the noun's unembedding rows at
the visual tokens: a map per subword, scaled to 0..1. For each noun the subword with the best overlap counts, as it does
in the published Obj-IoU; the density of whole words takes the maximum over all subwords instead, and chooses nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoTokenizer
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from ercr.datasets.sample import PROMPT
from ercr.datasets.scenes.captions import counts, mentions
from ercr.datasets.scenes.compose import MOST, compose, pack, visible
from ercr.datasets.scenes.dataset import Scene, finish, plan
from ercr.datasets.scenes.layout import Layout
from ercr.datasets.scenes.nouns import BY_NAME
from ercr.datasets.scenes.pictograms import PICTOGRAMS

from .scenes import TRAINED_STYLES, load_sprites

UNSEEN_STYLE = "twitter"


class Reader:
    """A model folder, read with the Auto classes alone."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.device = device
        self.model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).to(device).eval()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.pictures: Any = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self.kind = self.model.config.model_type
        parts = [{"type": "image"}, {"type": "text", "text": PROMPT}]
        chat = [{"role": "user", "content": parts}]
        self.prompt: str = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)

    def prepare(self, images: list[Image.Image]) -> tuple[dict[str, Tensor], tuple[int, int]]:
        """Model inputs of pictures of one size, and the token grid of the picture."""
        pixels = dict(self.pictures(images=images, return_tensors="pt"))
        config = self.model.config
        if self.kind == "qwen2_vl":
            _, height, width = pixels["image_grid_thw"][0].tolist()
            grid = (height // 2, width // 2)
            shown = "<|image_pad|>" * (grid[0] * grid[1])
            text = self.prompt.replace("<|image_pad|>", shown)
        elif self.kind == "llava":
            side = config.vision_config.image_size // config.vision_config.patch_size
            grid = (side, side)
            text = self.prompt.replace("<image>", "<image>" * side * side)
        else:
            tiles = len(pixels["pixel_values"]) // len(images)
            pixels.pop("num_patches")
            side = round(config.image_seq_length**0.5)
            grid = self._tile_grid(images[0], tiles, side)
            shown = "<img>" + "<IMG_CONTEXT>" * (config.image_seq_length * tiles) + "</img>"
            text = self.prompt.replace("<IMG_CONTEXT>", shown)
        ids = self.tokenizer([text] * len(images), return_tensors="pt", add_special_tokens=False)["input_ids"]
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **pixels}
        if self.kind == "qwen2_vl":
            inputs["mm_token_type_ids"] = (ids == config.image_token_id).int()
        return {key: value.to(self.device) for key, value in inputs.items()}, grid

    def _tile_grid(self, image: Image.Image, tiles: int, side: int) -> tuple[int, int]:
        from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

        size = self.pictures.size
        limits = (self.pictures.min_patches, self.pictures.max_patches)
        columns, rows = get_optimal_tiled_canvas((image.height, image.width), (size["height"], size["width"]), *limits)
        assert tiles in (rows * columns, rows * columns + 1)
        return rows * side, columns * side

    @torch.no_grad()
    def read(self, inputs: dict[str, Tensor], grid: tuple[int, int]) -> tuple[list[str], Tensor]:
        """Greedy captions, and the final normed states of the visual tokens as they lie in the picture [B, h, w, D]."""
        passes: list[Tensor] = []
        decoder = self.model.model.language_model
        hook = decoder.register_forward_hook(lambda _module, _given, out: passes.append(out.last_hidden_state))
        try:
            said = self.model.generate(**inputs, do_sample=False, max_new_tokens=48)
        finally:
            hook.remove()
        answers = said[:, inputs["input_ids"].shape[1] :]
        captions = [text.strip() for text in self.tokenizer.batch_decode(answers, skip_special_tokens=True)]
        return captions, self._lay_out(passes[0], inputs, grid)

    def _lay_out(self, hidden: Tensor, inputs: dict[str, Tensor], grid: tuple[int, int]) -> Tensor:
        """The visual tokens' states, taken from the pass over the prompt, in the order of the picture's grid."""
        token = getattr(self.model.config, "image_token_id", None) or self.model.config.image_token_index
        count = len(hidden)
        visual = hidden[inputs["input_ids"] == token].reshape(count, -1, hidden.shape[-1])
        height, width = grid
        if self.kind != "internvl":
            return visual.reshape(count, height, width, -1)
        side = round(self.model.config.image_seq_length**0.5)
        tiles = visual[:, : height * width].reshape(count, height // side, width // side, side, side, -1)
        return tiles.permute(0, 1, 3, 2, 4, 5).reshape(count, height, width, -1)


def otsu(values: NDArray[np.uint8]) -> int:
    """OpenCV's Otsu threshold: the first grey level that separates best."""
    histogram = np.bincount(values.ravel(), minlength=256) / values.size
    below = histogram.cumsum()
    sums = (histogram * np.arange(256)).cumsum()
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (sums[-1] * below - sums) ** 2 / (below * (1 - below))
    spread[(below < 1.2e-7) | (below > 1 - 1.2e-7)] = 0
    return int(np.nan_to_num(spread).argmax())


@dataclass
class Tally:
    """Sums over scenes, and the figures they give."""

    scenes: int = 0
    right: int = 0
    named: int = 0
    there: int = 0
    found: int = 0
    over: int = 0
    invented: int = 0
    exact: int = 0
    overlap: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    word_inside: list[float] = field(default_factory=list)
    word_outside: list[float] = field(default_factory=list)

    def count(self, caption: str, scene: Scene) -> None:
        truth: dict[str, int] = defaultdict(int)
        for thing in scene.objects:
            truth[thing.name] += 1
        said = counts(caption)
        self.scenes += 1
        self.right += sum(name in truth for name in said)
        self.named += len(said)
        self.there += len(truth)
        self.found += sum(name in said for name in truth)
        self.over += any(said[name] > truth[name] for name in truth)
        self.invented += any(name not in truth for name in said)
        self.exact += said == truth

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def figures(self) -> dict[str, float]:
        inside, outside = np.array(self.inside or [0.0]), np.array(self.outside or [0.0])
        words = sum(self.word_inside) / max(sum(self.word_outside), 1e-9)
        return {
            "scenes": self.scenes,
            "noun_precision": round(self.right / max(self.named, 1), 4),
            "noun_recall": round(self.found / max(self.there, 1), 4),
            "captions_with_over_counts": round(self.over / self.scenes, 4),
            "captions_with_absent_nouns": round(self.invented / self.scenes, 4),
            "captions_all_right": round(self.exact / self.scenes, 4),
            "cam_density": round(float(inside.mean() / max(outside.mean(), 1e-9)), 2),
            "cam_density_median": round(float(np.median(inside / np.maximum(outside, 1e-3))), 2),
            "cam_density_of_whole_words": round(words, 2),
            "cam_obj_iou": round(float(np.mean(self.overlap or [0.0])) * 100, 2),
            "nouns_scored": len(self.overlap),
        }


def score_maps(reader: Reader, tally: Tally, caption: str, states: Tensor, scene: Scene) -> None:
    """Adds overlap and density of every rightly named noun of one caption."""
    coded = reader.tokenizer(caption, return_offsets_mapping=True, add_special_tokens=False)
    present = {thing.name for thing in scene.objects}
    rows = reader.model.get_output_embeddings().weight
    for mention in {m.name: m for m in mentions(caption) if m.name in present}.values():
        spans = zip(coded["input_ids"], coded["offset_mapping"], strict=True)
        ids = [i for i, (start, end) in spans if start < mention.end and end > mention.start]
        truth = torch.from_numpy(scene.labels == BY_NAME[mention.name].category_id)
        if not truth.any():
            continue
        maps = (states @ rows[torch.tensor(ids, device=rows.device)].T).clamp(min=0).permute(2, 0, 1).float().cpu()
        low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
        maps = (maps - low) / (high - low).clamp(min=1e-8)
        small = (maps * 255).to(torch.uint8).float()
        large = F.interpolate(small[:, None], truth.shape, mode="bilinear", align_corners=False)[:, 0].round()
        best = max((_overlap(one.to(torch.uint8), truth), i) for i, one in enumerate(large))
        tally.overlap.append(best[0])
        tally.inside.append(float(large[best[1]][truth].mean()) / 255)
        tally.outside.append(float(large[best[1]][~truth].mean()) / 255)
        word = large.amax(0) / 255
        tally.word_inside.append(float(word[truth].mean()))
        tally.word_outside.append(float(word[~truth].mean()))


def _overlap(shown: Tensor, truth: Tensor) -> float:
    chosen = shown > otsu(shown.numpy())
    return float((chosen & truth).sum() / (chosen | truth).sum().clamp(min=1))


def draw(seeds: range, bank: Tensor, styles: int, device: torch.device, chunk: int = 125) -> Iterator[list[Scene]]:
    """The scenes of the seeds in groups of one size, drawn together; seed s shows style `s % styles` of the bank."""
    groups: dict[tuple[int, int], list[tuple[int, Layout, str]]] = defaultdict(list)
    for seed in seeds:
        layout, caption = plan(seed)
        groups[layout.width, layout.height].append((seed, layout, caption))
    generator = torch.Generator(device).manual_seed(0)
    for members in groups.values():
        for i in range(0, len(members), chunk):
            some = members[i : i + chunk]
            packed = pack([m[1] for m in some], [[m[0] % styles] * MOST for m in some], len(PICTOGRAMS)).to(device)
            pictures, masks = compose(packed, bank, generator), visible(packed, bank)
            yield [finish(*m, p, k) for m, p, k in zip(some, pictures, masks, strict=True)]


def measure(reader: Reader, sprites: Path, styles: tuple[str, ...], number: int) -> dict[str, Any]:
    """All figures over scenes shared out among the styles, the same by style, and captions, right and wrong."""
    bank = load_sprites(sprites, styles).to(reader.device)
    tallies = {style: Tally() for style in styles}
    right, wrong = [], []
    for scenes in draw(range(number), bank, len(styles), reader.device):
        inputs, grid = reader.prepare([scene.image for scene in scenes])
        captions, states = reader.read(inputs, grid)
        for scene, caption, state in zip(scenes, captions, states, strict=True):
            style = styles[scene.seed % len(styles)]
            tallies[style].count(caption, scene)
            score_maps(reader, tallies[style], caption, state, scene)
            example = {"seed": scene.seed, "style": style, "said": caption, "true": scene.caption}
            (right if counts(caption) == counts(scene.caption) else wrong).append(example)
    return {
        **sum(tallies.values(), Tally()).figures(),
        "by_style": {style: tally.figures() for style, tally in tallies.items()},
        "examples": {"right": right[:3], "wrong": wrong[:6]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, nargs="+", required=True)
    parser.add_argument("--sprites", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--scenes", type=int, default=1000, help="scenes in trained styles, and again in the unseen one"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for folder in args.model:
        reader = Reader(folder, torch.device(args.device))
        parameters = sum(p.numel() for p in reader.model.parameters())
        found[folder.name] = {"parameters": parameters}
        for name, styles in (("trained_styles", TRAINED_STYLES), ("unseen_style", (UNSEEN_STYLE,))):
            began = time.monotonic()
            found[folder.name][name] = figures = measure(reader, args.sprites, styles, args.scenes)
            shown = {key: value for key, value in figures.items() if not isinstance(value, dict)}
            print(f"{folder.name} {name} ({time.monotonic() - began:.0f} s): {shown}", flush=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
