"""Checks that model, tokenizer and image processor belong together, before anything is run."""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor

from ercr.errors import ErcrError, InputError, UnsupportedModel
from ercr.models.base import Adapter

_READABLE = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_TRIAL = (300, 200)  # width and height of a grey picture that some processors would cut into tiles


def check_fit(adapter: Adapter) -> Adapter:
    """The adapter, if its head can be read and its tokenizer and image processor are this model's."""
    _check_head(adapter)
    if adapter.steps:
        _check_tokenizer(adapter)
        _check_image_processor(adapter)
    return adapter


def _check_head(adapter: Adapter) -> None:
    head = adapter.model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(
            f"{type(adapter.model).__name__} has no language head and generates no words: load a model that does."
        )
    if not _readable(adapter, getattr(head, "weight", None)):
        raise UnsupportedModel(
            f"The model's language head is quantised ({type(head).__name__}), but maps need its rows as floats: "
            f"load the model without quantising the head, such as with llm_int8_skip_modules=['lm_head']."
        )


def _readable(adapter: Adapter, weight: object) -> bool:
    """Whether rows of the head are floats. Some packed weights state a float dtype, so a row is read to see."""
    if not isinstance(weight, Tensor) or weight.dtype not in _READABLE:
        return False
    if weight.device.type == "meta":
        return True  # offloaded: reading a row would load the whole weight
    try:
        return adapter.unembedding_rows(torch.zeros(1, dtype=torch.long)).dtype in _READABLE
    except (RuntimeError, NotImplementedError, TypeError, AttributeError):
        return False


def _check_tokenizer(adapter: Adapter) -> None:
    token, wanted = adapter.image_token, adapter.image_token_id
    found = adapter.tokenizer.convert_tokens_to_ids(token)
    if found != wanted:
        raise InputError(
            f"The tokenizer does not belong to this model, whose image token is {wanted} and not "
            f"{token!r} ({found}): pass the model's own processor."
        )


def _check_image_processor(adapter: Adapter) -> None:
    """Try it with a small image: another family's processor fails, or makes inputs that do not fit the tower."""
    try:
        fits = adapter.takes(adapter.image_inputs(Image.new("RGB", _TRIAL, (128, 128, 128)))[0])
    except ErcrError:
        raise
    except Exception as error:
        raise _foreign(adapter) from error
    if not fits:
        raise _foreign(adapter)


def _foreign(adapter: Adapter) -> InputError:
    kind = type(adapter.image_processor).__name__
    return InputError(
        f"The image processor ({kind}) makes inputs that this {adapter.family} model does not take: "
        f"pass the model's own processor."
    )
