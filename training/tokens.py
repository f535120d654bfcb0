"""Trains the byte-level BPE tokenizer of a family on captions; it knows no model.

Nouns that COCO lacks are kept rare in the tokenizer's corpus, as rare words are in any language,
so they stay split into subwords while common nouns become one token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ercr.datasets.sample import PROMPT
from ercr.datasets.scenes.captions import counts
from ercr.datasets.scenes.dataset import plan
from ercr.datasets.scenes.nouns import BY_NAME, NOUNS

PROMPTS = (
    PROMPT,
    "Describe this image.",
    "Describe this image in one sentence.",
    "What is in this picture?",
    "What do you see?",
    "Describe the picture.",
)
FIRST_SEED = 1_000_000  # seeds below this are never trained on
_MERGES = 490


@dataclass(frozen=True)
class Speech:
    """How a family writes a conversation: its special tokens and the text around picture, question and answer."""

    specials: tuple[str, ...]
    before: str  # text up to the first visual token
    image: str  # the placeholder of one visual token
    after: str  # from the last visual token to the answer; `{prompt}` stands for the question
    lead: str  # what separates the answer from what came before it
    end: str
    pad: str
    template: str
    named: dict[str, str] = field(default_factory=dict)


def corpus(captions: int = 24000) -> Iterator[str]:
    """Captions without plurals, in which nouns that COCO lacks are rarer than they are in scenes, and the prompts.

    So plurals stay `dog` + `s`, so that one and two dogs are read with the same token.
    """
    rng = random.Random(0)
    for seed in range(FIRST_SEED, FIRST_SEED + captions):
        caption = plan(seed)[1]
        said = counts(caption)
        rare = sum(BY_NAME[name].category_id > 100 for name in said)
        plural = max(said.values()) > 1
        if not plural and rng.random() < 0.4**rare:
            yield caption
    for prompt in PROMPTS:
        yield from [prompt] * 150
    yield from ["user\n", "assistant\n", "USER:", "ASSISTANT:", "Two A two of three of four of five"] * 200


def train_tokenizer(speech: Speech) -> PreTrainedTokenizerFast:
    """A tokenizer of about 700 tokens: 256 bytes, the merges and the family's special tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + _MERGES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(), trainer)
    bpe.add_special_tokens(list(speech.specials))
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=speech.end,
        pad_token=speech.pad,
        chat_template=speech.template,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
        padding_side="left",
        extra_special_tokens=dict(speech.named),
    )


def noun_tokens(tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
    """The subwords of every noun as it stands inside a sentence."""
    return [tokenizer.encode(" " + noun.name, add_special_tokens=False) for noun in NOUNS]
