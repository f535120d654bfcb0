"""The whole model as a black box: its own answer, and its own logits before given words.

This is all that can be had of models whose visual tokens have no place on the picture. Encoder-decoders read the prompt
in the encoder, so their words are those of the answer alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ercr.models.base import Adapter
from ercr.models.inputs import Prepared


def spoken(own: Adapter, prompt: Prepared, options: dict[str, Any]) -> Tensor:
    """The token ids [T] of the answer that `generate` gives, possibly padded at their end."""
    model, inputs = own.model, own.collate([prompt], 0)
    sequence: Tensor = model.generate(**inputs, **options)
    sequence = getattr(sequence, "sequences", sequence)[0].cpu()
    if has_encoder(model):
        return sequence[1:]  # behind the token that starts the decoder
    length = len(prompt.input_ids)
    return sequence[length:] if torch.equal(sequence[:length], prompt.input_ids) else sequence


def logits_before(own: Adapter, prompts: Sequence[Prepared], answer: Tensor, rows: Tensor) -> Tensor:
    """The model's logits [B, R, V] in float32 that emit the tokens at `rows` of a prompt and the answer behind it."""
    model, length = own.model, len(prompts[0].input_ids)
    if has_encoder(model):
        shifted = torch.cat([answer.new_tensor([_first_of_decoder(model)]), answer[:-1]])
        spoken_before = shifted.expand(len(prompts), -1).to(own.device)
        logits: Tensor = model(**own.collate(prompts, 0), decoder_input_ids=spoken_before, return_dict=True).logits
        return logits[:, (rows - length).to(logits.device)].float()
    at = (rows - 1).clamp(min=0).to(own.device)
    inputs = own.collate([prompt.with_answer(answer) for prompt in prompts], 0)
    given = {name: _continued(value, length, len(answer)) for name, value in inputs.items()}
    if not _wraps_generate(model):
        given = as_generate(model, given)
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        return torch.as_tensor(model(**given, logits_to_keep=at, return_dict=True).logits).float()
    return torch.as_tensor(model(**given, return_dict=True).logits)[:, at].float()


def as_generate(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the first pass of `generate`: positions from the mask, no cache."""
    given = dict(inputs)
    ids = given.pop("input_ids")
    if "position_ids" in inspect.signature(model.forward).parameters:
        given["position_ids"] = model._prepare_position_ids_for_generation(ids, given)
    made = model.prepare_inputs_for_generation(ids, use_cache=False, is_first_iteration=True, **given)
    return {name: value for name, value in made.items() if name not in ("return_dict", "logits_to_keep")}


def _continued(value: Any, length: int, count: int) -> Any:
    """An input with a row for every token of the prompt, such as what it sees of the pictures: answers see the same."""
    if not isinstance(value, Tensor) or value.is_floating_point() or value.ndim < 3 or value.shape[1] != length:
        return value
    return torch.cat([value, value[:, -1:].expand(-1, count, *value.shape[2:])], dim=1)


def has_encoder(model: Any) -> bool:
    """Whether an encoder reads the prompt."""
    return bool(getattr(model.config, "is_encoder_decoder", False))


def _wraps_generate(model: Any) -> bool:
    """Whether `generate` is the class's own, which calls an inner model with positions that this one cannot know."""
    from transformers import GenerationMixin

    return type(model).generate is not GenerationMixin.generate


def _first_of_decoder(model: Any) -> int:
    settings, text = model.generation_config, model.config.get_text_config(decoder=True)
    candidates = (
        settings.decoder_start_token_id,
        getattr(text, "decoder_start_token_id", None),
        settings.bos_token_id,
        getattr(text, "bos_token_id", None),
    )
    return next(int(token) for token in candidates if token is not None)
