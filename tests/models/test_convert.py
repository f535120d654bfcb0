"""InternVL 2 and 2.5 rewritten for transformers' own class: weights, prompts, tokenizer, and what can go wrong.

`benchmarks/internvl_original.py` compares with the published code itself; here its names and its order of weights are
made by hand from a model of transformers' class, and its tokenizer is SentencePiece.
"""

import json
import random
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import ercr
from ercr.commands.cli import app
from ercr.errors import CheckpointError, OutputError
from ercr.models.convert import convert
from ercr.models.convert.sentencepiece_bpe import fast_tokenizer

spm = pytest.importorskip("sentencepiece")
REAL = Path(__file__).parents[3] / "shared/data/checkpoints/internvl2-2b"
TOKENS = ["<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]
CORPUS = (
    "a dog sits on the sofa . the dog and the cat are here 狗 在 沙发 上 user assistant system Describe this image . "
)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory) -> Path:
    """A small SentencePiece model of InternLM2's kind: BPE, bytes, text as it is, two pieces of the user's own."""
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "corpus.txt").write_text(f"{CORPUS}\n" * 30, encoding="utf-8")
    spm.SentencePieceTrainer.train(
        **{"input": str(folder / "corpus.txt"), "model_prefix": str(folder / "tokenizer"), "model_type": "bpe"},
        **{"vocab_size": 420, "byte_fallback": True, "normalization_rule_name": "identity", "minloglevel": 2},
        **{"add_dummy_prefix": False, "remove_extra_whitespaces": False, "hard_vocab_limit": False},
        **{"user_defined_symbols": ["[UNUSED_TOKEN_1]", "Ｅ"], "character_coverage": 1.0},
    )
    return folder / "tokenizer.model"


def settings(pieces: Path) -> dict:
    size = spm.SentencePieceProcessor(model_file=str(pieces)).get_piece_size()
    own = {0: "<unk>", 1: "<s>", 2: "</s>", **{size + i: token for i, token in enumerate(TOKENS)}}
    added = {str(i): {"content": token, "special": True} for i, token in own.items()}
    return {
        **{"added_tokens_decoder": added, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        **{"pad_token": "</s>", "tokenizer_class": "InternLM2Tokenizer"},
    }


@pytest.fixture(scope="module")
def original(pieces, tmp_path_factory) -> Path:
    """A checkpoint as InternVL publishes it, made from random weights of transformers' class."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "tokenizer.model").write_bytes(pieces.read_bytes())
    stated = settings(pieces)
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6}
    config = {
        "model_type": "internvl_chat",
        "vision_config": {**vision, "image_size": 56, "patch_size": 14, "qkv_bias": True, "norm_type": "layer_norm"},
        "llm_config": {
            **{**text, "architectures": ["InternLM2ForCausalLM"], "num_key_value_heads": 2, "rope_theta": 1e6},
            **{"vocab_size": len(stated["added_tokens_decoder"]) + 600, "max_position_embeddings": 256},
            **{"rope_scaling": {"type": "dynamic", "factor": 2.0}, "rms_norm_eps": 1e-5, "bias": False},
        },
        **{"force_image_size": 56, "downsample_ratio": 0.5, "select_layer": -1, "template": "internlm2-chat"},
        **{"dynamic_image_size": True, "min_dynamic_patch": 1, "max_dynamic_patch": 6, "ps_version": "v2"},
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder, config)
    return folder


def write_weights(folder: Path, config: dict) -> None:
    """Weights under InternVL's own names, in two files, beside the model that they came from."""
    from safetensors.torch import save_file
    from transformers import AutoModelForImageTextToText

    from ercr.models.convert import internvl

    torch.manual_seed(3)
    ours = AutoModelForImageTextToText.from_config(internvl.configuration(config, 1, 2)).eval()
    for parameter in ours.parameters():
        parameter.data.normal_(0, 0.2)
    weights = ours.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder.parent / "ours.safetensors")
    first, second = {}, {}
    tower, decoder = "model.vision_tower.", "model.language_model."
    first["vision_model.embeddings.class_embedding"] = weights[tower + "embeddings.cls_token"]
    first["vision_model.embeddings.position_embedding"] = weights[tower + "embeddings.position_embeddings"]
    for kind in ("weight", "bias"):
        patch = weights[f"{tower}embeddings.patch_embeddings.projection.{kind}"]
        first[f"vision_model.embeddings.patch_embedding.{kind}"] = patch
        for place, name in enumerate(("layer_norm", "linear_1", None, "linear_2")):
            if name:
                second[f"mlp1.{place}.{kind}"] = weights[f"model.multi_modal_projector.{name}.{kind}"]
    for i in range(2):
        here, there = f"{tower}encoder.layer.{i}.", f"vision_model.encoder.layers.{i}."
        for kind in ("weight", "bias"):
            parts = [weights[f"{here}attention.{letter}_proj.{kind}"] for letter in "qkv"]
            first[f"{there}attn.qkv.{kind}"] = torch.cat(parts)
            first[f"{there}attn.proj.{kind}"] = weights[f"{here}attention.projection_layer.{kind}"]
            first[f"{there}norm1.{kind}"] = weights[f"{here}layernorm_before.{kind}"]
            first[f"{there}norm2.{kind}"] = weights[f"{here}layernorm_after.{kind}"]
            for layer in ("fc1", "fc2"):
                first[f"{there}mlp.{layer}.{kind}"] = weights[f"{here}mlp.{layer}.{kind}"]
        first[f"{there}ls1"], first[f"{there}ls2"] = weights[here + "lambda_1"], weights[here + "lambda_2"]
        here, there = f"{decoder}layers.{i}.", f"language_model.model.layers.{i}."
        query, key, value = (weights[f"{here}self_attn.{letter}_proj.weight"] for letter in "qkv")
        size, rows = 48 // 6, []
        for group in range(2):  # three query heads, then their key, then their value
            rows += [query[head * size : (head + 1) * size] for head in range(group * 3, group * 3 + 3)]
            rows += [part[group * size : (group + 1) * size] for part in (key, value)]
        second[there + "attention.wqkv.weight"] = torch.cat(rows)
        second[there + "attention.wo.weight"] = weights[here + "self_attn.o_proj.weight"]
        for old, new in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            second[f"{there}feed_forward.{old}.weight"] = weights[f"{here}mlp.{new}.weight"]
        second[there + "attention_norm.weight"] = weights[here + "input_layernorm.weight"]
        second[there + "ffn_norm.weight"] = weights[here + "post_attention_layernorm.weight"]
    second["language_model.model.tok_embeddings.weight"] = weights[decoder + "embed_tokens.weight"]
    second["language_model.model.norm.weight"] = weights[decoder + "norm.weight"]
    second["language_model.output.weight"] = weights["lm_head.weight"]
    names = {}
    for number, part in enumerate((first, second), start=1):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file({key: tensor.contiguous().clone() for key, tensor in part.items()}, folder / name)
        names |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


@pytest.fixture(scope="module")
def converted(original) -> Path:
    return convert(str(original), original.parent / "converted")


def test_every_weight_arrives_at_its_place(original, converted):
    from safetensors.torch import load_file

    wanted = load_file(original.parent / "ours.safetensors")
    adapter = ercr.Explainer.from_pretrained(str(converted)).adapter
    found = adapter.model.state_dict()
    assert wanted.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_the_prompt_is_what_the_original_asks(converted):
    adapter = ercr.Explainer.from_pretrained(str(converted)).adapter
    system = json.loads(json.dumps("你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，"))
    turns = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What?\n"}]}]
    text = adapter.tokenizer.apply_chat_template(
        turns, chat_template=adapter.chat_template, tokenize=False, add_generation_prompt=True
    )
    assert text.startswith(f"<|im_start|>system\n{system}")
    assert text.endswith("<|im_end|><|im_start|>user\n<IMG_CONTEXT>\n What?\n<|im_end|><|im_start|>assistant\n")


def test_a_converted_checkpoint_explains(converted):
    explainer = ercr.Explainer.from_pretrained(str(converted))
    image = torch.rand(3, 90, 140)
    explanation = explainer.explain(image, "Describe this image.", max_new_tokens=3)
    assert explanation.maps.shape[1:] == explanation.geometry.grid
    assert explanation.text == explainer.adapter.tokenizer.decode(
        [token.id for token in explanation.tokens if token.kind == "answer"], skip_special_tokens=True
    )


def strings(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    known = [
        *CORPUS.split(" "),
        *TOKENS,
        "[UNUSED_TOKEN_1]",
        "Ｅ",
        "  ",
        "   ",
        "\n",
        "▁",
        "é",
        "<0x41>",
        "aaaa",
        " , ",
        "\0",
    ]

    def part() -> str:
        return (
            draw.choice(known) if draw.random() < 0.7 else chr(draw.choice([draw.randrange(32, 1500), 0x1F600, 0x4E2D]))
        )

    return ["".join(part() for _ in range(draw.randint(1, 9))) for _ in range(count)]


def agree_with_sentencepiece(model: Path, count: int) -> None:
    """The fast tokenizer against SentencePiece itself, on texts without the tokens that are added to it."""
    reference = spm.SentencePieceProcessor(model_file=str(model))
    fast = fast_tokenizer(model, {}, None)
    for text in strings(count, 5):
        assert fast.encode(text).ids == reference.encode(text), text


def test_texts_are_split_as_sentencepiece_splits_them(pieces):
    agree_with_sentencepiece(pieces, 1500)


@pytest.mark.skipif(not REAL.is_dir(), reason="the files of a real checkpoint are not here")
@pytest.mark.slow
def test_the_real_tokenizer_is_split_the_same_way():
    agree_with_sentencepiece(REAL / "tokenizer.model", 3000)


def test_a_stopped_conversion_goes_on_and_another_one_is_refused(original, tmp_path):
    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if 0 < done < total:
            raise Stopped

    with pytest.raises(Stopped):
        convert(str(original), tmp_path / "new", progress=stop)
    assert not (tmp_path / "new/config.json").exists()
    kept = (tmp_path / "new/model-00001-of-00002.safetensors").stat().st_mtime_ns
    convert(str(original), tmp_path / "new")
    assert (tmp_path / "new/model-00001-of-00002.safetensors").stat().st_mtime_ns == kept
    assert (tmp_path / "new/config.json").exists()
    with pytest.raises(OutputError, match="not empty"):
        convert(str(original), tmp_path / "new")


def test_a_checkpoint_with_remote_code_names_the_command(original):
    with pytest.raises(CheckpointError, match=r"ercr convert .* --out FOLDER"):
        ercr.Explainer.from_pretrained(str(original))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ps_version": "v1"}, "version 1"),
        ({"template": "phi3-chat"}, "template 'phi3-chat'"),
        ({"llm_config": {"architectures": ["Phi3ForCausalLM"]}}, "decoder Phi3ForCausalLM"),
        ({"model_type": "llava"}, "'llava' need no conversion"),
        ({"vision_config": {"hidden_size": 30, "image_size": 56, "patch_size": 14}}, "does not describe a valid model"),
        ({"force_image_size": 112}, "do not fit"),
    ],
)
def test_what_cannot_be_converted_is_said_in_one_sentence(original, tmp_path, change, said):
    folder = tmp_path / "other"
    folder.mkdir()
    for file in original.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "config.json").unlink()
    config = json.loads((original / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    result = CliRunner().invoke(app, ["convert", str(folder), "--out", str(tmp_path / "out")], standalone_mode=False)
    assert isinstance(result.exception, CheckpointError)
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "out/config.json").exists()
