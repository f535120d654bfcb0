"""Measures a model folder on scenes it was never trained on and writes the figures as JSON; it trains nothing.

    python -m training.measure --model DIR --sprites carry/sprites.npz --out figures.json

Precision and recall count nouns of greedy captions. The CAM figures read the noun's unembedding rows at the
visual tokens: a map per subword, scaled to 0..1, and for each noun the subword with the best overlap counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
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

from ercr.datasets.scenes.captions import PROMPT, counts, mentions
from ercr.datasets.scenes.compose import compose, pack, visible
from ercr.datasets.scenes.dataset import Scene, finish, plan
from ercr.datasets.scenes.layout import Layout
from ercr.datasets.scenes.nouns import BY_NAME

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
    def caption(self, inputs: dict[str, Tensor]) -> list[str]:
        said = self.model.generate(**inputs, do_sample=False, max_new_tokens=48)
        answers = said[:, inputs["input_ids"].shape[1] :]
        return [text.strip() for text in self.tokenizer.batch_decode(answers, skip_special_tokens=True)]

    @torch.no_grad()
    def states(self, inputs: dict[str, Tensor], grid: tuple[int, int]) -> Tensor:
        """Final, normed states of the visual tokens as they lie in the picture [B, h, w, width]."""
        hidden = self.model.model(**inputs, use_cache=False).last_hidden_state
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

    def figures(self) -> dict[str, float]:
        inside, outside = np.array(self.inside or [0.0]), np.array(self.outside or [0.0])
        return {
            "scenes": self.scenes,
            "noun_precision": round(self.right / max(self.named, 1), 4),
            "noun_recall": round(self.found / max(self.there, 1), 4),
            "captions_with_over_counts": round(self.over / self.scenes, 4),
            "captions_with_absent_nouns": round(self.invented / self.scenes, 4),
            "captions_all_right": round(self.exact / self.scenes, 4),
            "cam_density": round(float(inside.mean() / max(outside.mean(), 1e-9)), 2),
            "cam_density_median": round(float(np.median(inside / np.maximum(outside, 1e-3))), 2),
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


def _overlap(shown: Tensor, truth: Tensor) -> float:
    chosen = shown > otsu(shown.numpy())
    return float((chosen & truth).sum() / (chosen | truth).sum().clamp(min=1))


def draw(seeds: range, bank: Tensor, device: torch.device, chunk: int = 125) -> list[list[Scene]]:
    """The scenes of the seeds in groups of one size, drawn together."""
    groups: dict[tuple[int, int], list[tuple[int, Layout, str]]] = defaultdict(list)
    for seed in seeds:
        layout, caption = plan(seed)
        groups[layout.width, layout.height].append((seed, layout, caption))
    drawn = []
    generator = torch.Generator(device).manual_seed(0)
    for members in groups.values():
        for i in range(0, len(members), chunk):
            some = members[i : i + chunk]
            packed = pack([m[1] for m in some]).to(device)
            pictures, masks = compose(packed, bank, generator), visible(packed, bank)
            drawn.append([finish(*m, p, k) for m, p, k in zip(some, pictures, masks, strict=True)])
    return drawn


def measure(reader: Reader, sprites: Path, style: str, number: int) -> tuple[dict[str, float], list[dict[str, str]]]:
    """All figures of one style, and a few captions beside what the scene's own caption says."""
    bank = load_sprites(sprites, (style,)).to(reader.device)
    tally, examples = Tally(), []
    for scenes in draw(range(number), bank, reader.device):
        inputs, grid = reader.prepare([scene.image for scene in scenes])
        captions, states = reader.caption(inputs), reader.states(inputs, grid)
        for scene, caption, state in zip(scenes, captions, states, strict=True):
            tally.count(caption, scene)
            score_maps(reader, tally, caption, state, scene)
        examples += [{"said": captions[i], "true": scenes[i].caption} for i in range(min(2, len(scenes)))]
    return tally.figures(), examples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--sprites", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--styles", nargs="*", default=[*TRAINED_STYLES, UNSEEN_STYLE])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    reader = Reader(args.model, torch.device(args.device))
    found: dict[str, Any] = {"unseen_style": UNSEEN_STYLE, "styles": {}, "examples": {}}
    for style in args.styles:
        began = time.monotonic()
        found["styles"][style], found["examples"][style] = measure(reader, args.sprites, style, args.scenes)
        print(f"{args.model} {style} ({time.monotonic() - began:.0f} s): {found['styles'][style]}", flush=True)
    trained = [found["styles"][s] for s in args.styles if s != UNSEEN_STYLE]
    if trained:
        found["trained_styles"] = {k: round(float(np.mean([t[k] for t in trained])), 4) for k in trained[0]}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
