"""A loaded model's parts, found by transformers' own accessors, and its vocabulary; it knows nothing of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ercr.errors import InputError
from ercr.models.chat import refuse_surrogates
from ercr.models.decoder import blocks_of, decoder_of, final_norm_of
from ercr.models.inputs import CompiledPasses
from ercr.models.pasting import Colour, mean_colour
from ercr.models.replica import execution_device, hold_hook_lock_while_forking, replica

_ROWS = 8192  # rows of W_U in memory in float32 at once


class ModelParts:
    """A loaded model with its tokenizer and image processor."""

    def __init__(
        self, model: Any, tokenizer: Any, image_processor: Any, chat_template: str | None, video_processor: Any = None
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.video_processor = video_processor  # the official one, or what the checkpoint states for it
        self.chat_template = chat_template
        self.config = model.config
        self.compiled: CompiledPasses | None = None  # if the user asked for compile=True
        self.reads_text: bool | None = None  # whether it reads a prompt without its picture; None until it was tried
        self.packed_passes: CompiledPasses | None = None  # of bulk runs, made when the first needs them
        self.graphs: Any = None  # where small passes of the vision tower are captured, with compile=True
        self.decode = lru_cache(maxsize=2**16)(self._decode)
        hold_hook_lock_while_forking()

    @cached_property
    def language_model(self) -> Any:
        """The decoder, which takes embeddings and ends in the final norm."""
        return decoder_of(self.model)

    @cached_property
    def blocks(self) -> nn.ModuleList:
        return blocks_of(self.language_model)

    @cached_property
    def final_norm(self) -> nn.Module:
        return final_norm_of(self.language_model)

    @property
    def tower(self) -> nn.Module | None:
        """The vision tower, if the family says where it is."""
        found: nn.Module | None = getattr(self.model.model, "vision_tower", None)
        return found

    @cached_property
    def head(self) -> nn.Module:
        """The language head, cached: finding it takes as long as several kernel launches, and every token needs it."""
        head: nn.Module = self.model.get_output_embeddings()
        return head

    @cached_property
    def suppressed_tokens(self) -> Tensor | None:
        """Mask [V] of the tokens that the checkpoint's generation settings forbid (`suppress_tokens`), or None.

        Read once, like the weights, because captured CUDA graphs keep its address.
        """
        listed = getattr(self.model.generation_config, "suppress_tokens", None)
        if not listed:
            return None
        count: int = self.head.weight.shape[0]  # type: ignore[index, assignment]
        return torch.zeros(count, dtype=torch.bool).index_fill(0, torch.tensor(listed), True).to(self.device)

    @property
    def device(self) -> torch.device:
        embedding = self.model.get_input_embeddings()
        device: torch.device = embedding.weight.device
        if device.type != "meta":
            return device
        return execution_device(embedding) or execution_device(self.model) or torch.device("cpu")

    @property
    def mlp_cam_block(self) -> int:
        """The block whose MLP input LLaVA-CAM reads: the published one, or else at 90% of the depth.

        Never the last block: what its MLP does at visual tokens reaches no later position.
        """
        return max(0, min(round(0.9 * len(self.blocks)), len(self.blocks) - 2))

    def unembedding_rows(self, ids: Tensor) -> Tensor:
        """Rows of W_U [len(ids), d] in the model's own precision, also when the head is offloaded."""
        head: Any = self.head
        if head.weight.device.type != "meta":
            return torch.as_tensor(head.weight.index_select(0, ids.to(head.weight.device)))
        from accelerate.utils import align_module_device

        head = replica(head)  # weights are loaded into it and offloaded again
        with align_module_device(head, self.device):
            return torch.as_tensor(head.weight[ids.to(self.device)]).clone()

    @cached_property
    def vocabulary(self) -> int:
        return int(self.config.get_text_config().vocab_size)

    @cached_property
    def plain_tokens(self) -> Tensor:
        """Mask [V] of the tokens that are not special, on the model's device."""
        special = torch.tensor(self.tokenizer.all_special_ids, dtype=torch.long)
        count = 1 + max(self.vocabulary, len(self.tokenizer), *special.tolist())
        plain = torch.ones(count, dtype=torch.bool).index_fill(0, special, False)
        return plain.to(self.device)

    @cached_property
    def letters(self) -> Tensor:
        """How every token is spelt [V, letters], on the model's device; made when it is asked for."""
        from ercr.models.letters import letters

        return letters(self.tokenizer, self.vocabulary).to(self.device)

    @cached_property
    def mean_row(self) -> Tensor:
        """The mean [d] of the rows of W_U of all words, in float32; made when it is asked for."""
        with torch.no_grad():
            parts = torch.split(torch.arange(self.vocabulary, device=self.device), _ROWS)
            total = torch.stack([self.unembedding_rows(ids).float().sum(0) for ids in parts]).sum(0)
        return total / self.vocabulary

    def adjust(self, logits: Tensor) -> Tensor:
        """The head's output as the model's own logits; some families scale or cap them."""
        return logits

    def _decode(self, ids: tuple[int, ...]) -> str:
        """Text of a few tokens, special ones included; `decode` caches it, because the same words come often."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode_answer(self, answer: str) -> Tensor:
        """Token ids of a given answer, as the model would have generated them."""
        refuse_surrogates(answer, "answer")
        return self.answer_ids(self.tokenizer(answer, add_special_tokens=False)["input_ids"])

    def answer_ids(self, ids: Sequence[int]) -> Tensor:
        """Given token ids of an answer as a tensor; ids that the model does not have are refused."""
        if not len(ids):
            raise InputError("The answer to explain is empty: give at least one word.")
        if min(ids) < 0 or max(ids) >= self.vocabulary:
            raise InputError(
                f"An answer's token ids must lie between 0 and {self.vocabulary - 1} for this model, "
                f"not {min(ids) if min(ids) < 0 else max(ids)}."
            )
        return torch.tensor(ids, dtype=torch.long)

    @property
    def image_backend(self) -> str:
        """The library that resizes images; results differ slightly between libraries."""
        return str(getattr(self.image_processor, "backend", "unknown"))

    @property
    def neutral_colour(self) -> Colour:
        """The 8-bit colour nearest to what the image processor turns into zeros."""
        return mean_colour(self.image_processor)
