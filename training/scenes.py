"""Trains one of the small models from scratch on composed scenes and writes it as a model folder.

    python -m training.scenes --family qwen2vl --sprites carry/sprites.npz --out DIR --minutes 18 --part 9 --resume

A run stops after `--part` minutes; the same command with `--resume` continues it, and
writes the model folder when all `--minutes` are spent.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ercr.datasets.scenes.compose import bank_tensor
from ercr.datasets.scenes.pictograms import PICTOGRAMS

from .batches import Planner
from .checkpoint import load_parts, save_parts
from .families import FAMILIES
from .folder import save_folder
from .probe import probe
from .stages import Trainer, last_stage, where
from .tokens import train_tokenizer

TRAINED_STYLES = ("openmoji", "google", "fluent", "fluent3d", "noto-v1", "emojione", "emojione-v1", "fxemoji")


def load_sprites(path: Path, styles: tuple[str, ...]) -> Tensor:
    """The pictograms of several styles one after another."""
    with np.load(path) as banks:
        if any(len(banks[style]) != len(PICTOGRAMS) for style in styles):
            raise ValueError(f"{path} was packed for another list of nouns: pack it again with training.sprites.")
        return torch.cat([bank_tensor(banks[style]) for style in styles])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=sorted(FAMILIES), required=True)
    parser.add_argument("--sprites", type=Path, required=True, help="file made by training.sprites")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--part", type=float, default=9.0, help="minutes before this run stops and saves")
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="compile the blocks: half a minute for a faster step")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start", type=Path, help="a model folder to go on from, in the last stage alone")
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device(args.device)
    family = FAMILIES[args.family]
    tokenizer = train_tokenizer(family.speech)
    model = family.build(tokenizer).to(device)
    with torch.no_grad():
        model.model.language_model.embed_tokens.weight.normal_(0, 0.05)
    trainer = Trainer(family, model, tokenizer, load_sprites(args.sprites, TRAINED_STYLES), device)
    if args.compile:
        for block in [*model.model.language_model.layers, *family.blocks(model)]:
            block.compile(dynamic=True)
    saved = load_parts(args.out / "checkpoint", device) if args.resume else None
    spent, part = 0.0, 0
    if args.start:
        trainer.take(type(model).from_pretrained(args.start))
    if saved:
        trainer.restore(saved)
        spent, part = saved["spent"], saved["part"] + 1
        torch.manual_seed(part)
    spent = train(args, trainer, tokenizer, spent, part)
    save_parts({**trainer.state(), "spent": spent, "part": part}, args.out / "checkpoint")
    save_folder(family, model, tokenizer, args.out / "model")


def train(args: argparse.Namespace, trainer: Trainer, tokenizer: object, spent: float, part: int) -> float:
    """Learns until the part or the whole is over; returns the minutes spent in all."""
    planner = Planner(tokenizer, trainer.family.speech, args.batch, len(TRAINED_STYLES), part)  # type: ignore[arg-type]
    loader = DataLoader(planner, batch_size=None, num_workers=args.workers, prefetch_factor=4 if args.workers else None)
    began, stop = time.monotonic(), min(args.part, args.minutes - spent)
    steps, stage = 0, where(last_stage(0) if args.start else spent / args.minutes)[0]
    for planned in loader:
        used = (time.monotonic() - began) / 60
        if used >= stop:
            break
        progress = (spent + used) / args.minutes
        progress = last_stage(progress) if args.start else progress
        if where(progress)[0] != stage:
            report(trainer, planner, stage)
            save_folder(trainer.family, trainer.model, planner.tokenizer, args.out / "model")
            stage = where(progress)[0]
        losses = trainer.advance(planned.to(trainer.device), progress)
        steps += 1
        if trainer.step % 250 == 0 or trainer.step in (1, 20):
            shown = " ".join(f"{name} {value.item():.3f}" for name, value in losses.items())
            used = (time.monotonic() - began) / 60
            print(
                f"{args.family} {'ABC'[stage]} step {trainer.step} at {spent + used:.2f} min: {shown}",
                flush=True,
            )
    report(trainer, planner, stage)
    print(f"{args.family}: {steps} steps of {args.batch} in this part", flush=True)
    return spent + (time.monotonic() - began) / 60


def report(trainer: Trainer, planner: Planner, stage: int) -> None:
    """Prints how well the model captions pictures it has not seen, at the end of a stage or part."""
    found = probe(trainer, planner, symbolic=stage == 0)
    print(f"{trainer.family.name} after {'ABC'[stage]}: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
