"""Run on its own, in an environment with lxt 2.1: its relevance for small Llama and Qwen2 text models.

    python lxt_relevance.py FOLDER        writes FOLDER/lxt_llama.safetensors and FOLDER/lxt_qwen2.safetensors

Each file holds a random text model, input embeddings, a few targets, and the relevance of every input embedding by
lxt's AttnLRP and CP-LRP rules. Needs transformers 4.52.4, zennit, lxt and a torchvision that can be imported.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import sys
from pathlib import Path

import torch

library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):  # what a torchvision wheel without compiled operators misses
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import transformers
from safetensors.torch import save_file

LENGTH, TARGETS = 12, ((5, 3), (9, 17), (11, 30))  # sequence, (emitting position, vocabulary index)
SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}


def relevance(family: str, rules: str, weights: dict, embeddings: torch.Tensor) -> torch.Tensor:
    """Relevance [targets, L]: input embeddings times lxt's modified gradients."""
    from lxt.efficient import monkey_patch

    modeling = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    patches = importlib.import_module(f"lxt.efficient.models.{family}")
    monkey_patch(modeling, {"attn": patches.attnLRP, "cp": patches.cp_LRP}[rules])
    kind = {"llama": "Llama", "qwen2": "Qwen2"}[family]
    config = getattr(transformers, f"{kind}Config")(**SHAPE, attn_implementation="eager")
    model = getattr(modeling, f"{kind}ForCausalLM")(config).double().eval()
    model.load_state_dict(weights)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    rows = []
    for position, index in TARGETS:
        start = embeddings.clone().requires_grad_()
        model(inputs_embeds=start, use_cache=False).logits[0, position, index].backward()
        rows.append((start * start.grad).sum(-1)[0].detach())
    return torch.stack(rows)


def main(folder: Path) -> None:
    for family, seed in (("llama", 1), ("qwen2", 2)):
        torch.manual_seed(seed)
        kind = {"llama": "Llama", "qwen2": "Qwen2"}[family]
        model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**SHAPE)).double()
        for parameter in model.parameters():
            parameter.data.normal_(0, 0.25) if parameter.ndim > 1 else parameter.data.add_(
                torch.randn_like(parameter) * 0.1
            )
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        embeddings = torch.randn(1, LENGTH, SHAPE["hidden_size"], dtype=torch.float64)
        arrays = {f"model.{name}": value for name, value in weights.items()}
        arrays["embeddings"] = embeddings
        for rules in ("attn", "cp"):
            # lxt patches classes for good, so each rule set gets a process of its own
            with multiprocessing.get_context("spawn").Pool(1) as fresh:
                arrays[f"relevance.{rules}"] = fresh.apply(relevance, (family, rules, weights, embeddings))
        facts = {"shape": json.dumps(SHAPE), "targets": json.dumps(TARGETS), "transformers": transformers.__version__}
        save_file({k: v.contiguous() for k, v in arrays.items()}, folder / f"lxt_{family}.safetensors", metadata=facts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
