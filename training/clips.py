"""Trains the small model for pairs of scenes and for clips, from the model for scenes, and writes it as a model folder.

    python -m training.clips --start zoo/src/ercr_zoo/scenes-qwen2vl --sprites carry/sprites.npz --out DIR --minutes 7

The recipe is that of scenes: the language model alone on symbolic pictures, then the tower apart, then everything.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForImageTextToText, AutoTokenizer

from ercr.datasets.moving import FRAMES

from .clips_batches import ClipsPlanner
from .clips_probe import probe
from .clips_stages import ClipsTrainer
from .clips_tokens import extended_tokenizer, moved_rows
from .families import FAMILIES, Qwen2VL
from .folder import save_folder
from .scenes import TRAINED_STYLES, load_sprites
from .stages import Stage, last_stage, where

STAGES = (Stage("A", 0.25, 1.2e-3, 0.7), Stage("B", 0.15, 1e-3, 0.6), Stage("C", 0.60, 9e-4, 0.01))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path, required=True, help="the model for scenes, whose weights it begins with")
    parser.add_argument("--sprites", type=Path, required=True, help="file made by training.sprites")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--last", action="store_true", help="go on with a model for clips, in the last stage alone")
    parser.add_argument("--compile", action="store_true", help="compile the blocks: half a minute for a faster step")
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device(args.device)
    family = FAMILIES["qwen2vl"]
    assert isinstance(family, Qwen2VL)
    trainer = begin(args.start, family, load_sprites(args.sprites, TRAINED_STYLES), device)
    if args.compile:
        for block in [*trainer.model.model.language_model.layers, *family.blocks(trainer.model)]:
            block.compile(dynamic=True)
    train(args, trainer)
    save(trainer, args.out / "model")


def begin(start: Path, family: Qwen2VL, bank: torch.Tensor, device: torch.device) -> ClipsTrainer:
    """A trainer whose model has the weights of the model for scenes, and rows for the new words."""
    old: Any = AutoModelForImageTextToText.from_pretrained(start, dtype=torch.float32)
    tokenizer = extended_tokenizer(start, family.speech)
    rows = moved_rows(AutoTokenizer.from_pretrained(start), tokenizer, old.get_input_embeddings().weight.detach())
    model = family.build(tokenizer)
    weights = {name: value for name, value in old.state_dict().items() if value.shape == model.state_dict()[name].shape}
    missing = set(model.load_state_dict(weights, strict=False).missing_keys)
    assert missing <= {"model.language_model.embed_tokens.weight", "lm_head.weight"}, missing
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(rows)
    model.tie_weights()
    trainer = ClipsTrainer(family, model.to(device), tokenizer, bank, device)
    trainer.stages = STAGES
    return trainer


def train(args: argparse.Namespace, trainer: ClipsTrainer) -> None:
    """Learns until the time is over, and saves the model after every stage."""
    planner = ClipsPlanner(trainer.tokenizer, trainer.family.speech, args.batch, len(TRAINED_STYLES))
    loader = DataLoader(planner, batch_size=None, num_workers=args.workers, prefetch_factor=4 if args.workers else None)
    began, stage, steps = time.monotonic(), len(STAGES) - 1 if args.last else 0, 0
    for planned in loader:
        progress = (time.monotonic() - began) / 60 / args.minutes
        if progress >= 1:
            break
        progress = last_stage(progress, STAGES) if args.last else progress
        if where(progress, STAGES)[0] != stage:
            report(trainer, planner)
            save(trainer, args.out / "model")
            stage = where(progress, STAGES)[0]
        losses = trainer.advance(planned.to(trainer.device), progress)
        steps += 1
        if steps % 200 == 0 or steps in (1, 20):
            shown = " ".join(f"{name} {value.item():.3f}" for name, value in losses.items())
            used = (time.monotonic() - began) / 60
            print(f"{STAGES[stage].name} step {steps} at {used:.2f} min: {planned.kind} {shown}", flush=True)
    report(trainer, planner)
    print(f"{steps} steps of {args.batch}", flush=True)


def report(trainer: ClipsTrainer, planner: ClipsPlanner) -> None:
    print(f"after {STAGES[trainer.stage].name}: {json.dumps(probe(trainer, planner))}", flush=True)


def save(trainer: ClipsTrainer, folder: Path) -> None:
    """The model folder; of a clip, eight frames are taken whatever its length."""
    save_folder(trainer.family, trainer.model, trainer.tokenizer, folder)
    path = folder / "video_preprocessor_config.json"
    settings = json.loads(path.read_text())
    settings |= {"num_frames": FRAMES, "do_sample_frames": True, "min_frames": 2}
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
