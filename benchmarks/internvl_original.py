"""InternVL 2 and 2.5 after `ercr convert`, compared with the published code.

Two steps, because the published code needs an older transformers (4.52.4, with einops, sentencepiece, protobuf):

    python -m benchmarks.internvl_original make --code InternVL/internvl_chat --tokenizer FOLDER --out MADE
    python -m benchmarks.internvl_original compare MADE

The first makes small checkpoints with random weights by the original classes (an InternLM2 and a Qwen2 decoder) and
records what they compute, what `chat` asks, and how the original tokenizer splits and joins 10,000 random strings. The
second converts them and prints how far the results are apart.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import types
from pathlib import Path
from typing import Any

QUESTIONS = (
    "What is this?",
    "  Describe the picture in detail.\nUse two sentences.",
    "图片里有什么？",
    "<box> or </box>?",
)
STRINGS = 10_000
_SCRIPTS = (0x20, 0x7E), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F)
_MORE = (0xE00, 0xE7F), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x1F300, 0x1F6FF)
_CONTROL = (0, 0x1F), (0x2000, 0x206F)
_PIECES = (
    "the a and Describe image picture of 图片 描述 我们 可以 服务器 foo_bar() for(int i=0;i<10;i++) "
    "<|im_start|> <|im_end|> <img> </img> <IMG_CONTEXT> [UNUSED_TOKEN_3] Ｅ <s> </s> aaaa aaaaaaa ababab ====== ---- "
    "\t\t \n\n ▁ ▁▁ é naïve <0x41>"
).split(" ")


def random_strings(count: int = STRINGS, seed: int = 7) -> list[str]:
    """Strings of many scripts, with the tokenizer's own tokens and runs of spaces between them."""
    draw = random.Random(seed)

    def part() -> str:
        kind = draw.random()
        if kind < 0.45:
            return draw.choice(_PIECES)
        if kind < 0.6:
            return " " * draw.randint(1, 5)
        low, high = draw.choice([*_SCRIPTS, *_MORE, *_CONTROL])
        return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 12)))

    return [draw.choice(["", " "]).join(part() for _ in range(draw.randint(1, 8))) for _ in range(count)]


def make(code: Path, tokenizer: Path, out: Path) -> None:
    """Checkpoints by the original classes, and what they say."""
    _stand_ins()
    sys.path.insert(0, str(code))
    for decoder in ("internlm2", "qwen2"):
        _make_one(decoder, tokenizer, out / decoder)


def _stand_ins() -> None:
    """The published modules import packages that these tests of the forward pass do not need."""
    import torch
    import transformers  # noqa: F401 - it looks for the real packages when it is imported

    for name in ("timm", "timm.models", "timm.models.layers", "peft"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["timm.models.layers"].DropPath = torch.nn.Identity  # type: ignore[attr-defined]
    for name in ("LoraConfig", "get_peft_model"):
        setattr(sys.modules["peft"], name, None)


def _make_one(decoder: str, tokenizer_folder: Path, out: Path) -> None:
    import torch
    from internvl.model.internvl_chat import InternVLChatConfig, InternVLChatModel
    from safetensors.torch import save_file

    torch.manual_seed(0)
    out.mkdir(parents=True)
    tokenizer = _internlm2_tokenizer(tokenizer_folder, out) if decoder == "internlm2" else _qwen_tokenizer(out)
    vision = {
        **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"image_size": 56, "patch_size": 14, "qkv_bias": True, "qk_normalization": False, "norm_type": "layer_norm"},
        **{"use_flash_attn": False, "drop_path_rate": 0.0, "architectures": ["InternVisionModel"]},
    }
    text = {
        **{"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6},
        **{"num_key_value_heads": 2, "vocab_size": len(tokenizer) + 3, "max_position_embeddings": 512},
        **{"rms_norm_eps": 1e-5, "rope_theta": 1000000, "tie_word_embeddings": False, "hidden_act": "silu"},
    }
    if decoder == "internlm2":
        text |= {"architectures": ["InternLM2ForCausalLM"], "bias": False, "attn_implementation": "eager"}
        text |= {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "model_type": "internlm2"}
    else:
        text |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    settings = {
        **{"vision_config": vision, "llm_config": text, "force_image_size": 56, "downsample_ratio": 0.5},
        **{"select_layer": -1, "template": "internlm2-chat" if decoder == "internlm2" else "internvl2_5"},
        **{"dynamic_image_size": True, "use_thumbnail": True, "ps_version": "v2"},
        **{"min_dynamic_patch": 1, "max_dynamic_patch": 12},
    }
    model = InternVLChatModel(InternVLChatConfig(**settings), use_flash_attn=False).eval().float()
    for parameter in model.parameters():  # layer scales and norms begin as constants, which would hide a wrong place
        parameter.data.normal_(0, 0.3)
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps({**settings, "model_type": "internvl_chat", "torch_dtype": "float32"}))
    (out / "recorded.json").write_text(json.dumps(_recorded(model, tokenizer, out, decoder)))


def _recorded(model: Any, tokenizer: Any, out: Path, decoder: str) -> dict[str, Any]:
    import torch
    from safetensors.torch import save_file

    asked: list[list[int]] = []

    def listen(pixel_values: Any, input_ids: Any, **_: Any) -> Any:
        asked.append(input_ids[0].tolist())
        return torch.tensor([[1]])

    tiles, history = torch.randn(3, 3, 56, 56), None
    model.generate = listen
    for question in QUESTIONS:
        model.chat(tokenizer, tiles, question, {})
    _, history = model.chat(tokenizer, tiles, QUESTIONS[0], {}, return_history=True)
    model.chat(tokenizer, tiles, QUESTIONS[2], {}, history=[(history[0][0], "A dog. ")])
    ids = torch.tensor([asked[0]])
    with torch.no_grad():
        logits = model(tiles, ids, torch.ones_like(ids), image_flags=torch.ones(3, 1), return_dict=True).logits
    save_file({"tiles": tiles, "ids": ids, "logits": logits.contiguous()}, out / "states.st")
    split = []
    if decoder == "internlm2":
        for text in random_strings():
            numbers = tokenizer(text)["input_ids"]
            split.append([numbers, tokenizer.decode(numbers, skip_special_tokens=True)])
    return {"asked": asked, "split": split}


def _internlm2_tokenizer(folder: Path, out: Path) -> Any:
    from internvl.model.internlm2.tokenization_internlm2 import InternLM2Tokenizer

    for name in ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        shutil.copy(folder / name, out / name)
    return InternLM2Tokenizer.from_pretrained(str(out))


def _qwen_tokenizer(out: Path) -> Any:
    """A byte-level BPE of Qwen's kind over few merges, with InternVL's tokens."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    vocabulary = {piece: i for i, piece in enumerate(sorted(ByteLevel.alphabet()))}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    vocabulary |= {a + b: len(vocabulary) + i for i, (a, b) in enumerate(merges)}
    (out / "vocab.json").write_text(json.dumps(vocabulary))
    (out / "merges.txt").write_text("\n".join(f"{a} {b}" for a, b in merges) + "\n")
    made = Qwen2Tokenizer(str(out / "vocab.json"), str(out / "merges.txt"))
    tokens = "<|endoftext|> <|im_start|> <|im_end|> <|video_pad|> <img> </img> <IMG_CONTEXT> <box> </box>".split()
    made.add_special_tokens({"additional_special_tokens": tokens})
    made.save_pretrained(str(out))
    return Qwen2Tokenizer.from_pretrained(str(out))


def compare(made: Path) -> dict[str, Any]:
    """How far the converted checkpoints are from what the originals said."""
    from safetensors.torch import load_file

    import ercr
    from ercr.models.chat import Placeholder, as_messages, render_chat
    from ercr.models.convert import convert

    found: dict[str, Any] = {}
    for folder in sorted(path for path in made.iterdir() if (path / "recorded.json").is_file()):
        target = folder.with_name(f"{folder.name}-converted")
        if not (target / "config.json").is_file():
            convert(str(folder), target)
        adapter = ercr.Explainer.from_pretrained(str(target), dtype="float32").adapter
        recorded = json.loads((folder / "recorded.json").read_text())
        states = load_file(folder / "states.st")
        out = adapter.model(input_ids=states["ids"], pixel_values=states["tiles"]).logits.detach()
        visual = adapter.image_token * int((states["ids"] == adapter.image_token_id).sum())
        places = [Placeholder(adapter.image_token, f"<img>{visual}</img>")]
        turns = [as_messages(question) for question in QUESTIONS]
        turns.append(turns[0])
        talk = [*turns[0], {"role": "assistant", "content": "A dog. "}, {"role": "user", "content": QUESTIONS[2]}]
        turns.append(as_messages(talk))
        chats = [render_chat(adapter.tokenizer, adapter.chat_template, turn, places).ids.tolist() for turn in turns]
        strings = random_strings() if recorded["split"] else []
        numbers = [adapter.tokenizer(text)["input_ids"] for text in strings]
        joined = [adapter.tokenizer.decode(ids, skip_special_tokens=True) for ids, _ in recorded["split"]]
        found[folder.name] = {
            "largest difference of logits": float((out - states["logits"]).abs().max()),
            "largest logit": float(states["logits"].abs().max()),
            "prompts": len(chats),
            "prompts that differ": sum(a != b for a, b in zip(chats, recorded["asked"], strict=True)),
            "strings": len(strings),
            "strings split otherwise": sum(a != b[0] for a, b in zip(numbers, recorded["split"], strict=True)),
            "strings joined otherwise": sum(a != b[1] for a, b in zip(joined, recorded["split"], strict=True)),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    making = steps.add_parser("make")
    making.add_argument("--code", type=Path, required=True)
    making.add_argument("--tokenizer", type=Path, required=True)
    making.add_argument("--out", type=Path, required=True)
    steps.add_parser("compare").add_argument("made", type=Path)
    given = parser.parse_args()
    if given.step == "make":
        make(given.code, given.tokenizer, given.out)
    else:
        print(json.dumps(compare(given.made), indent=2))


if __name__ == "__main__":
    main()
