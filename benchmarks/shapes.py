"""Models of random weights in the shape of real ones, for measuring time and memory without a download."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ercr.image.geometry import Geometry, Panel
from ercr.models.base import Adapter, Prepared
from ercr.models.loading import wrap_model

_IMAGE, _START, _END = 151655, 151652, 151653
_QWEN_2B = {
    "text_config": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6},
        "tie_word_embeddings": True,
    },
    "vision_config": {
        "depth": 32,
        "embed_dim": 1280,
        "hidden_size": 1536,
        "num_heads": 16,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "mlp_ratio": 4,
    },
    "tie_word_embeddings": True,
    "image_token_id": _IMAGE,
    "vision_start_token_id": _START,
    "vision_end_token_id": _END,
}


def qwen2_vl_2b(device: str, dtype: torch.dtype) -> Adapter:
    """Qwen2-VL-2B's shape behind its adapter; the tokenizer only answers what a pass needs."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            torch.manual_seed(0)
            model = Qwen2VLForConditionalGeneration(Qwen2VLConfig(**_QWEN_2B)).eval()
    finally:
        torch.set_default_dtype(before)
    model.tie_weights()
    model.generation_config.pad_token_id = 151643
    model.generation_config.eos_token_id = None
    tokenizer = SimpleNamespace(all_special_ids=[151643, 151644, 151645], pad_token_id=151643, chat_template=None)
    processor: Any = SimpleNamespace(patch_size=14, merge_size=2, backend="none")
    return wrap_model(model, (tokenizer, processor))


def prompt(grid: tuple[int, int], before: int = 15, after: int = 15) -> Prepared:
    """A prompt around an image of `grid` cells: random words, random pixels."""
    cells = grid[0] * grid[1]
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(1000, 100_000, (before + after + 2,), generator=generator)
    ids = torch.cat(
        [words[:before], torch.tensor([_START]), torch.full((cells,), _IMAGE), torch.tensor([_END]), words[before:]]
    )
    pixels = {
        "pixel_values": torch.randn(cells * 4, 3 * 2 * 14 * 14, generator=generator),
        "image_grid_thw": torch.tensor([[1, grid[0] * 2, grid[1] * 2]]),
    }
    size = (grid[0] * 28, grid[1] * 28)
    geometry = Geometry(size, (Panel(grid, (0.0, 0.0, float(size[1]), float(size[0]))),))
    visual = torch.arange(before + 1, before + 1 + cells)
    return Prepared(ids, pixels, geometry, visual, torch.arange(before + cells + 2, len(ids)))
