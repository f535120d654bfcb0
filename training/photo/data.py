"""Flickr8k as the training reads it: pictures of one size on the device, captions as token numbers."""

from __future__ import annotations

import io
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .prompts import CAPTION, PROMPTS, prompt_ids

SIDE = 288  # pixels of the stored squares, the model's own canvas
_LIMIT = 15 * 2**20  # bytes of a packed file


def pack(source: Path, out: Path) -> None:
    """Write the Parquet files of Flickr8k as plain arrays, in files that are small enough to be sent around."""
    import pyarrow.parquet as parquet

    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val", "test"):
        tables = [parquet.read_table(file) for file in sorted(source.glob(f"{split}-*.parquet"))]
        rows = [row for table in tables for row in table.to_pylist()]
        files: list[list[dict[str, Any]]] = [[]]
        size = 0
        for row in rows:
            size += len(row["image"]["bytes"])
            if size > _LIMIT:
                files.append([])
                size = len(row["image"]["bytes"])
            files[-1].append(row)
        for number, part in enumerate(files):
            _write(out / f"flickr8k-{split}-{number:02d}.npz", part)


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    pictures = [np.frombuffer(row["image"]["bytes"], np.uint8) for row in rows]
    captions = json.dumps([list(row["captions"]) for row in rows]).encode()
    ends = np.cumsum([len(picture) for picture in pictures])
    np.savez(file, data=np.concatenate(pictures), ends=ends, captions=np.frombuffer(captions, np.uint8))


@dataclass(frozen=True)
class Split:
    pictures: Tensor  # [N, 3, SIDE, SIDE], 8 bits
    captions: list[list[str]]


def read(folder: Path, split: str, most: int | None = None) -> Split:
    """The pictures of a split, squeezed to squares as the model's processor does, and their captions."""
    files, captions = [], []
    for path in sorted(folder.glob(f"flickr8k-{split}-*.npz")):
        stored = np.load(path)
        files += np.split(stored["data"], stored["ends"][:-1])
        captions += json.loads(stored["captions"].tobytes())
    if not files:
        raise SystemExit(
            f"{folder} has no packed files of the {split} split: `python -m training.photo pack` makes them."
        )
    with ThreadPoolExecutor() as pool:
        pictures = list(pool.map(_square, files[:most]))
    return Split(torch.from_numpy(np.stack(pictures)), [[tidy(c) for c in one] for one in captions[:most]])


def _square(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    picture = Image.open(io.BytesIO(data.tobytes())).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(picture).transpose(2, 0, 1)


def tidy(caption: str) -> str:
    """A caption as a sentence: "a dog runs , fast ." becomes "A dog runs, fast."."""
    text = re.sub(r"\s+([,;])", r"\1", " ".join(caption.split())).rstrip(" .")
    return text[:1].upper() + text[1:] + "."


# words that name nothing one could point at
_EMPTY = frozenset(
    "a an the and or of in on at to with is are by for from his her its their while as it that this into "
    "through over up down out near front two three four one some other another each him them who be being has "
    "have off against along around behind between during there something someone several many very together "
    "onto about next top what where they she he looks looking stands standing walks walking sits sitting runs "
    "running through background".split()
)


def vocabulary(
    captions: Sequence[Sequence[str]], classes: Sequence[Sequence[str]], tokenizer: Any, least: int
) -> dict[str, int]:
    """Words that should be readable in the picture, with the token each begins with; sorted, so that runs agree."""
    count = Counter(word for group in captions for word in set(words_of(group)))
    chosen = {word for word, n in count.items() if n >= least and len(word) > 2 and word not in _EMPTY}
    chosen |= {word for own in classes for word in own}
    return {word: tokenizer(" " + word, add_special_tokens=False).input_ids[0] for word in sorted(chosen)}


def silent(tokenizer: Any) -> list[int]:
    """Tokens that should be readable nowhere: those of words that name nothing, and of punctuation."""
    texts = [form for word in sorted(_EMPTY) for form in (f" {word}", word.capitalize())] + [".", ","]
    return sorted({tokenizer(text, add_special_tokens=False).input_ids[0] for text in texts})


def words_of(captions: Sequence[str]) -> list[str]:
    return [word for caption in captions for word in re.findall("[a-z]+", caption.lower())]


# what people wear: captions dwell on it, and a model that learns to does so whether it sees it or not
_WORN = frozenset(
    "wearing wears dressed shirt shirts tshirt jacket jackets jeans suit suits coat coats hat hats dress dresses cap "
    "caps shorts pants sweater sweaters clothes clothing outfit outfits swimsuit helmet helmets uniform uniforms vest "
    "vests bikini trunks costume costumes shoes boots glasses sunglasses gear goggles scarf skirt hoodie sweatshirt "
    "wetsuit tie backpack attire jersey jerseys robe".split()
)


_LENGTH, _CLOTHES = 0.03, 0.1  # what a word more, and a word about clothes, take from a caption's plainness
_FALL = 2.0  # each caption comes so many times less often than the one before


def plainest_first(captions: Sequence[str]) -> list[str]:
    """The captions of one picture: first those that are short, say what the others say, and leave clothes alone."""
    words = [words_of([caption]) for caption in captions]
    told = Counter(word for own in words for word in set(own))

    def plainness(own: list[str]) -> float:
        named = [word for word in own if word not in _EMPTY]
        agreed = sum(told[word] - 1 for word in named) / max(1, len(named) * (len(captions) - 1))
        return agreed - _LENGTH * len(own) - _CLOTHES * sum(word in _WORN for word in own)

    order = sorted(range(len(captions)), key=lambda i: -plainness(words[i]))
    return [captions[i] for i in order]


_PEOPLE = frozenset(
    "person people man men woman women boy boys girl girls child children kid kids lady ladies guy guys baby toddler "
    "crowd group couple team family friends someone player players rider riders biker bikers cyclist cyclists skier "
    "surfer skateboarder snowboarder climber swimmer dancer runner hiker racer motorcyclist policeman fireman "
    "firefighter male female football baseball basketball soccer".split()
)
_DOGS = frozenset("dog dogs puppy puppies".split())


def told_by(captions: Sequence[str]) -> set[str]:
    """Words that captions give away: theirs, in singular and plural, and that whoever they name is a person."""
    words = set(words_of(captions))
    people = {"person", "people"} if words & _PEOPLE else set()
    return people | {form for word in words for form in (word, f"{word}s", word.removesuffix("s"))}


def rarity(captions: Sequence[str]) -> int:
    """What a picture shows: 0 people, as most of Flickr8k does, 1 dogs without people, 2 neither."""
    words = set(words_of(captions))
    return 0 if words & _PEOPLE else 1 if words & _DOGS else 2


@dataclass(frozen=True)
class Text:
    """Captions behind their prompts, padded on the right."""

    ids: Tensor  # [B, T]
    labels: Tensor  # [B, L]: the caption's tokens and its end
    start: Tensor  # [B]: where in `ids` the caption begins


class Captions:
    """Draws captions as token numbers; every batch has the same length, as captured steps need."""

    def __init__(self, captions: Sequence[Sequence[str]], tokenizer: Any, longest: int = 28) -> None:
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.prompts = [prompt_ids(tokenizer, prompt) for prompt in PROMPTS]
        self.tokenizer, self.longest, self.pad = tokenizer, longest, end
        self.ids = [[self.encode(caption) for caption in plainest_first(group)] for group in captions]
        self.length = longest + max(len(ids) for ids in self.prompts)

    def encode(self, caption: str) -> list[int]:
        return [*self.tokenizer(caption, add_special_tokens=False).input_ids[: self.longest - 1], self.pad]

    def draw(self, groups: Sequence[Sequence[list[int]]], chance: random.Random) -> Text:
        """One caption of each group, behind a prompt; the prompt the model is measured with comes most often."""
        weights = [3 if prompt == CAPTION else 1 for prompt in PROMPTS]
        ids, labels, start = [], [], []
        for group in groups:
            prompt = chance.choices(self.prompts, weights)[0]
            caption = chance.choices(group, [_FALL**-i for i in range(len(group))])[0]
            labels.append(caption + [-100] * (self.longest - len(caption)))
            ids.append((prompt + caption + [self.pad] * self.length)[: self.length])
            start.append(len(prompt))
        return Text(torch.tensor(ids), torch.tensor(labels), torch.tensor(start))
