"""`python -m training.photo …`: from Flickr8k and two published networks to the packaged model for photographs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .lens import EDGE
from .reward import UNTOLD


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.photo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("pack", help="write Flickr8k's Parquet files as arrays")
    pack.add_argument("source", type=Path)
    pack.add_argument("out", type=Path)
    words = commands.add_parser("tokenizer", help="write the tokenizer")
    words.add_argument("base", help="SmolLM2-135M-Instruct: a GGUF file, a folder or a hub id")
    words.add_argument("out", type=Path)
    train = commands.add_parser("train", help="train one part; run again with --begin to go on")
    polish = commands.add_parser("polish", help="let a trained model speak, and learn from what it says well")
    export = commands.add_parser("export", help="write the packaged model")
    for command in (train, polish, export):
        command.add_argument("--base", required=True, help="SmolLM2-135M-Instruct: a GGUF file, a folder or a hub id")
        command.add_argument("--tokenizer", required=True, help="folder of the tokenizer")
        command.add_argument("--data", type=Path, required=True, help="folder that `pack` wrote")
    for command, minutes in ((train, 3.9), (polish, 3.2)):
        command.add_argument("--state", type=Path, required=True, help="folder of the trained parts")
        command.add_argument("--minutes", type=float, default=minutes, help="longer trainings learn by heart")
        command.add_argument("--all", action="store_true", help="use the validation split, too, and check nothing")
        command.add_argument("--batch", type=int, default=128)
        command.add_argument("--most", type=int, help="pictures to use, for a trial")
    train.add_argument("--backbone", type=Path, required=True, help="EfficientNet-Lite0's ImageNet weights (.pth)")
    train.add_argument("--begin", type=float, default=0.0, help="share of the whole training before this part")
    train.add_argument("--end", type=float, default=1.0, help="share of it done after this part")
    polish.add_argument("--edge", type=float, default=EDGE, help="class words are readable from this logit on")
    polish.add_argument("--untold", type=float, default=UNTOLD, help="off for every thing that nobody mentions")
    polish.add_argument("--out", type=Path, help="folder to write to, if not to --state")
    export.add_argument(
        "--state",
        type=Path,
        required=True,
        nargs="+",
        help="folders of trained parts; the mean of several is written",
    )
    export.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    {"pack": _pack, "tokenizer": _tokenizer, "train": _train, "polish": _polish, "export": _export}[options.command](
        options
    )


def _pack(options: Any) -> None:
    from .data import pack

    pack(options.source, options.out)


def _tokenizer(options: Any) -> None:
    from .vocabulary import write_tokenizer

    write_tokenizer(options.base, options.out)


def _model(options: Any, captions: Sequence[Sequence[str]]) -> tuple[Any, Any, Any]:
    """The model with a lens for the words of captions, the tokenizer and the language model's configuration."""
    from transformers import AutoTokenizer

    from .base import language_model
    from .model import PhotoModel, words_of_classes
    from .words import silent, vocabulary

    cuda = torch.cuda.is_available()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    words = vocabulary(captions, words_of_classes(), tokenizer, least=12)
    llama = language_model(options.base)
    model = PhotoModel(llama, words, silent(tokenizer, words.values()), torch.bfloat16 if cuda else torch.float32)
    return model.to("cuda" if cuda else "cpu").eval(), tokenizer, llama.config


def _train(options: Any) -> None:
    from .data import Captions, read
    from .learnt import learn
    from .prompts import before_ids
    from .state import load, save
    from .train import Plan, train

    split = read(options.data, "train", options.most)
    model, tokenizer, _ = _model(options, split.captions)
    model.begin(options.backbone, tokenizer)
    if not load(model, options.state):
        learn(model.tower, split.pictures, split.captions)
    split = _whole(options, split)
    plan = Plan(options.minutes, options.begin, options.end, options.batch, seed=round(options.begin * 1000))
    train(model, split, Captions(split.captions, tokenizer), before_ids(tokenizer), plan, _say)
    save(model, options.state)
    _check(options, options.state, model, tokenizer)


def _polish(options: Any) -> None:
    from .data import Captions, read
    from .polish import RATES, polish
    from .prompts import before_ids
    from .state import load, save
    from .train import Plan

    split = read(options.data, "train", options.most)
    model, tokenizer, _ = _model(options, split.captions)
    if not load(model, options.state):
        raise SystemExit(f"{options.state} has no trained state.")
    split = _whole(options, split)
    model.lens.edge = options.edge
    plan = Plan(options.minutes, batch=options.batch, rates=RATES, seed=1)
    captions = Captions(split.captions, tokenizer)
    polish(model, split, captions, before_ids(tokenizer), plan, _say, options.untold)
    out = options.out or options.state
    save(model, out)
    _check(options, out, model, tokenizer)


def _say(text: str) -> None:
    print(text, flush=True)


def _whole(options: Any, split: Any) -> Any:
    from .data import read

    return split.plus(read(options.data, "val", options.most)) if options.all else split


def _check(options: Any, folder: Path, model: Any, tokenizer: Any) -> None:
    """Captions of the validation split, where it was not trained on, beside those of people."""
    from .data import read
    from .prompts import CAPTION, before_ids, prompt_ids
    from .speak import captions

    if options.all:
        return
    checked = read(options.data, "val", options.most)
    prompt, end = prompt_ids(tokenizer, CAPTION), tokenizer.convert_tokens_to_ids("<|im_end|>")
    said = [tokenizer.decode(ids) for ids in captions(model, checked.pictures, before_ids(tokenizer), prompt, end)]
    report = [{"caption": own, "references": theirs} for own, theirs in zip(said, checked.captions, strict=True)]
    (folder / "val.json").write_text(json.dumps(report, indent=1))
    for entry in report[:8]:
        _say(f"{entry['caption']} | {entry['references'][0]}")


def _export(options: Any) -> None:
    from .data import read_captions
    from .export import checked_template, export
    from .sayable import unsayable
    from .state import load

    captions = read_captions(options.data, "train")
    model, tokenizer, config = _model(options, captions)
    if not load(model, *options.state):
        raise SystemExit(f"No trained state in {' or '.join(map(str, options.state))}.")
    if not checked_template(tokenizer):
        raise SystemExit("The chat template does not write what the training showed.")
    export(model, config, tokenizer, options.out, unsayable(captions, tokenizer))


if __name__ == "__main__":
    main()
