"""Tiny checkpoints of families whose visual tokens have no cells: resamplers, cross-attention, image codes."""

from __future__ import annotations

from typing import Any

import torch

from tests.families.others import CHATML, LLAMA3, rope, square, template_of, text_part, tokenizer_of, tower_part
from tests.families.registry import family

BERT = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "encoder_hidden_size": 64,
}


def _opened(config: Any, word: str) -> Any:
    """A model of `config` whose parameters with `word` in their names, which start at zero, let the image through."""
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if word in name and parameter.numel() == 1:
                parameter.fill_(0.5)
    return model


def _carrying(processor: Any, template: str) -> Any:
    """The processor with a template; its class takes none when it is loaded, so the tokenizer's copy is what stays."""
    processor.chat_template = template
    return processor


@family("Llama 3.2 Vision", "meta-llama/Llama-3.2-11B-Vision-Instruct", cells=False)
def mllama() -> tuple[Any, Any]:
    from transformers import MllamaConfig, MllamaImageProcessor, MllamaProcessor

    template = template_of(LLAMA3, image="<|image|>", start="<|begin_of_text|>")
    words = ["<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"]
    tok = tokenizer_of(words, template, "<|eot_id|>", bos="<|begin_of_text|>")
    tok.add_tokens(["<|image|>"], special_tokens=True)  # the first id behind those the head can say, as published
    config = MllamaConfig(
        text_config=text_part(
            tok,
            vocab_size=len(tok) - 1,
            num_hidden_layers=4,
            cross_attention_layers=[1, 3],
            rope_parameters=rope(5e5),
        ),
        vision_config=tower_part(
            image_size=32,
            attention_heads=4,
            num_hidden_layers=3,
            num_global_layers=2,
            intermediate_layers_indices=[0, 1],
            vision_output_dim=64 * 3,
            max_num_tiles=4,
        ),
        image_token_index=tok.convert_tokens_to_ids("<|image|>"),
    )
    tiles = MllamaImageProcessor(size=square(32), max_image_tiles=4)
    return _opened(config, "gate"), MllamaProcessor(tiles, tok, chat_template=template)


@family("BLIP-2", "Salesforce/blip2-opt-2.7b", name="blip2", cells=False)
def blip2() -> tuple[Any, Any]:
    from transformers import Blip2Config, Blip2Processor, BlipImageProcessor

    # no published template: questions as on the model card; the processor itself puts the image in front
    template = template_of(("{{ {'user': 'Question: ', 'assistant': 'Answer: '}.get(m['role'], '') }}", " "), image="")
    template = template.replace("{% set m = {'role': 'assistant'} %}", "Answer:{% set m = {'role': 'none'} %}")
    tok = tokenizer_of(["<image>"], template, "</s>", bos="<s>")
    config = Blip2Config(
        text_config=text_part(tok, model_type="opt", ffn_dim=96, word_embed_proj_dim=64, max_position_embeddings=512),
        vision_config=tower_part(),
        qformer_config=BERT,
        num_query_tokens=16,
        image_text_hidden_size=32,
        image_token_index=tok.convert_tokens_to_ids("<image>"),
    )
    image = BlipImageProcessor(size=square(24))
    return config, _carrying(Blip2Processor(image, tok, num_query_tokens=16), template)


@family("Idefics 2", "HuggingFaceM4/idefics2-8b", cells=False)
def idefics2() -> tuple[Any, Any]:
    from transformers import Idefics2Config, Idefics2ImageProcessor, Idefics2Processor

    template = template_of(("{{ m['role'].capitalize() }}:", "<end_of_utterance>\n"))
    tok = tokenizer_of(
        ["<end_of_utterance>"],
        template,
        "</s>",
        bos="<s>",
        image_token="<image>",
        image_boundary_token="<fake_token_around_image>",
    )
    config = Idefics2Config(
        text_config=text_part(tok, model_type="mistral", sliding_window=4096, rope_parameters=rope(1e4)),
        vision_config=tower_part(image_size=56),
        perceiver_config={
            "hidden_size": 64,
            "resampler_n_latents": 8,
            "resampler_depth": 2,
            "resampler_n_heads": 4,
            "resampler_head_dim": 16,
            "num_key_value_heads": 2,
        },
        image_token_id=tok.image_token_id,
    )
    image = Idefics2ImageProcessor(
        size={"shortest_edge": 24, "longest_edge": 56},
        do_image_splitting=True,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return config, Idefics2Processor(image, tok, image_seq_len=8, chat_template=template)


@family("Florence-2", "florence-community/Florence-2-base", cells=False)
def florence2() -> tuple[Any, Any]:
    from transformers import CLIPImageProcessor, Florence2Config, Florence2Processor

    # no template is published: a prompt is a task or free text; the processor itself puts the image in front
    tok = tokenizer_of([], None, "</s>", bos="<s>", image_token="<image>")
    config = Florence2Config(
        text_config={
            "model_type": "bart",
            "vocab_size": len(tok),
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "max_position_embeddings": 512,
            "bos_token_id": tok.bos_token_id,
            "eos_token_id": tok.eos_token_id,
            "pad_token_id": tok.pad_token_id,
            "decoder_start_token_id": tok.eos_token_id,
            "forced_eos_token_id": tok.eos_token_id,
        },
        vision_config={
            "depths": [1, 1, 2, 1],
            "embed_dim": [16, 32, 32, 64],
            "num_heads": [2, 2, 4, 4],
            "num_groups": [2, 2, 4, 4],
            "window_size": 4,
            "projection_dim": 64,
            "max_temporal_embeddings": 4,
            "max_position_embeddings": 8,
        },
        image_token_id=tok.image_token_id,
    )
    # a side of 128 gives 4 x 4 places of 32 pixels, behind one token of their mean
    image = CLIPImageProcessor(size=square(128), do_center_crop=False, image_seq_length=17)
    return config, Florence2Processor(image, tok)


@family("Chameleon", "facebook/chameleon-7b", cells=False, place="<image>")
def chameleon() -> tuple[Any, Any]:
    from transformers import ChameleonConfig, ChameleonImageProcessor, ChameleonProcessor

    # no template is published: the image stands in the text
    codes = ["IMGIMG" + "".join(chr(ord("A") + int(d)) for d in str(i)) + "Z" for i in range(32)]
    tok = tokenizer_of(
        ["<reserved08706>", *codes],
        None,
        "</s>",
        bos="<s>",
        image_token="<image>",
        boi_token="<racm3:break>",
        eoi_token="<eoss>",
    )
    tok.sep_token = "<reserved08706>"
    config = ChameleonConfig(
        **text_part(tok, num_key_value_heads=4, rope_parameters=rope(1e4)),
        vq_config={
            "embed_dim": 16,
            "num_embeddings": 32,
            "latent_channels": 16,
            "resolution": 32,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 2],
            "num_res_blocks": 1,
        },
        vocabulary_map=tok.get_vocab(),
    )
    image = ChameleonImageProcessor(size={"shortest_edge": 32}, crop_size=square(32))
    return config, ChameleonProcessor(image, tok, image_seq_length=64)


@family("InstructBLIP", "Salesforce/instructblip-vicuna-7b", cells=False)
def instructblip() -> tuple[Any, Any]:
    from transformers import BlipImageProcessor, InstructBlipConfig, InstructBlipProcessor

    # no template is published: a prompt is free text; the processor itself puts the image in front
    tok = tokenizer_of(["<image>"], None, "</s>", bos="<s>")
    words = tokenizer_of([], None, "[SEP]", bos="[CLS]")  # the resampler reads the prompt too, in its own ids
    config = InstructBlipConfig(
        text_config=text_part(tok, model_type="llama", num_key_value_heads=4, rope_parameters=rope(1e4)),
        vision_config=tower_part(),
        qformer_config={**BERT, "vocab_size": len(words)},
        num_query_tokens=16,
        image_token_index=tok.convert_tokens_to_ids("<image>"),
    )
    image = BlipImageProcessor(size=square(24))
    return config, InstructBlipProcessor(image, tok, words, num_query_tokens=16)


@family("Aria", "rhymes-ai/Aria", cells=False)
def aria() -> tuple[Any, Any]:
    from transformers import AriaConfig, AriaImageProcessor, AriaProcessor

    template = template_of(CHATML, image="<fim_prefix><|img|><fim_suffix>")
    tok = tokenizer_of(["<|im_start|>", "<fim_prefix>", "<fim_suffix>"], template, "<|im_end|>", image_token="<|img|>")
    config = AriaConfig(
        text_config=text_part(
            tok,
            num_key_value_heads=4,
            moe_num_experts=8,
            moe_topk=2,
            moe_num_shared_experts=2,
            rope_parameters=rope(5e6),
        ),
        # the processor always asks for 980 pixels, so the patches are large instead: 14 x 14 of them become 16 tokens
        vision_config=tower_part(model_type="idefics3_vision", image_size=980, patch_size=70),
        projector_patch_to_query_dict={49: 8, 196: 16},
        image_token_index=tok.image_token_id,
    )
    processor = AriaProcessor(AriaImageProcessor(), tok, chat_template=template, size_conversion={490: 8, 980: 16})
    return config, processor


@family("Kosmos-2", "microsoft/kosmos-2-patch14-224", cells=False)
def kosmos2() -> tuple[Any, Any]:
    from transformers import CLIPImageProcessor, Kosmos2Config, Kosmos2Processor

    # no template is published: a prompt is the beginning of a text; the processor itself puts the image in front
    tok = tokenizer_of(["<unk>"], None, "</s>", bos="<s>")
    tok.unk_token = "<unk>"  # the 64 ids behind it stand for the image
    image = CLIPImageProcessor(size={"shortest_edge": 24}, crop_size=square(24), use_square_size=True)
    processor = Kosmos2Processor(image, tok, num_patch_index_tokens=16)
    config = Kosmos2Config(
        text_config={
            "vocab_size": len(tok),
            "embed_dim": 64,
            "layers": 3,
            "ffn_dim": 96,
            "attention_heads": 4,
            "max_position_embeddings": 512,
            "bos_token_id": tok.bos_token_id,
            "eos_token_id": tok.eos_token_id,
            "pad_token_id": tok.pad_token_id,
        },
        vision_config=tower_part(),
        latent_query_num=64,
    )
    return config, processor


@family("Emu3", "Emu3-community/Emu3-Chat-hf", cells=False)
def emu3() -> tuple[Any, Any]:
    from tokenizers.processors import TemplateProcessing
    from transformers import Emu3Config, Emu3ImageProcessor, Emu3Processor

    turn = ("{{ {'user': 'USER: ', 'assistant': 'ASSISTANT:'}.get(m['role'], '') }}", " ")
    template = template_of(turn)
    codes = [f"<|visual token {i:06d}|>" for i in range(32)]
    tok = tokenizer_of(
        ["<|extra_200|>", *codes],
        template,
        "<|extra_204|>",
        bos="<|extra_203|>",
        image_token="<image>",
        boi_token="<|image start|>",
        eoi_token="<|image end|>",
        image_wrapper_token="<|image token|>",
        eof_token="<|extra_201|>",
    )
    tok.backend_tokenizer.post_processor = TemplateProcessing(single="$A")  # the processor puts the first word in front
    config = Emu3Config(
        text_config=text_part(tok, rope_parameters=rope(1e6)),
        vq_config={
            "codebook_size": 32,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "hidden_size": 32,
        },
        vocabulary_map=tok.get_vocab(),
    )
    image = Emu3ImageProcessor(min_pixels=32 * 32, max_pixels=64 * 64)
    return config, Emu3Processor(image, tok, chat_template=template)


@family("IDEFICS", "HuggingFaceM4/idefics-9b-instruct", cells=False)
def idefics() -> tuple[Any, Any]:
    from transformers import IdeficsConfig, IdeficsImageProcessor, IdeficsProcessor

    # no published template: turns as on the model card; the processor itself puts the image in front
    template = template_of(("{{ m['role'].capitalize() }}: ", "<end_of_utterance>\n"), image="")
    tok = tokenizer_of(["<end_of_utterance>"], template, "</s>", bos="<s>")
    base = len(tok)  # the words of images have embeddings of their own, behind those of the text
    tok.add_tokens(["<fake_token_around_image>", "<image>"], special_tokens=True)
    config = IdeficsConfig(
        **text_part(tok, vocab_size=base, num_hidden_layers=4, num_key_value_heads=4),
        additional_vocab_size=2,
        cross_layer_interval=2,
        qk_layer_norms=True,
        use_resampler=True,
        vision_config={
            "embed_dim": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 24,
            "patch_size": 4,
        },
        perceiver_config={
            "use_resampler": True,
            "resampler_n_latents": 8,
            "resampler_depth": 2,
            "resampler_n_heads": 4,
            "resampler_head_dim": 16,
            "qk_layer_norms_perceiver": True,
        },
    )
    image = IdeficsImageProcessor(image_size=24)
    return _opened(config, "alpha"), _carrying(IdeficsProcessor(image, tok), template)


@family("BLIP", "Salesforce/blip-image-captioning-base", cells=False)
def blip() -> tuple[Any, Any]:
    from tokenizers.processors import TemplateProcessing
    from transformers import BlipConfig, BlipImageProcessor, BlipProcessor

    # no template is published: a prompt is the beginning of a caption
    tok = tokenizer_of(["[DEC]"], None, "[SEP]", bos="[CLS]")
    ends = [(word, tok.convert_tokens_to_ids(word)) for word in ("[CLS]", "[SEP]")]
    tok.backend_tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    config = BlipConfig(
        text_config={
            **BERT,
            "vocab_size": len(tok),
            "projection_dim": 64,
            "bos_token_id": tok.convert_tokens_to_ids("[DEC]"),
            "eos_token_id": tok.eos_token_id,
            "sep_token_id": tok.eos_token_id,
            "pad_token_id": tok.pad_token_id,
        },
        vision_config=tower_part(projection_dim=32),
        projection_dim=32,
        image_text_hidden_size=32,
    )
    return config, BlipProcessor(BlipImageProcessor(size=square(24)), tok)


@family("Pix2Struct", "google/pix2struct-textcaps-base", cells=False)
def pix2struct() -> tuple[Any, Any]:
    from transformers import Pix2StructConfig, Pix2StructImageProcessor, Pix2StructProcessor

    # no template is published: a prompt is the beginning of a caption, which goes to the decoder
    tok = tokenizer_of([], None, "</s>")
    sizes = {"hidden_size": 64, "d_kv": 16, "d_ff": 96}
    config = Pix2StructConfig(
        text_config={
            **sizes,
            "vocab_size": len(tok),
            "num_layers": 2,
            "num_heads": 4,
            "pad_token_id": tok.pad_token_id,
            "eos_token_id": tok.eos_token_id,
            "decoder_start_token_id": tok.pad_token_id,
        },
        vision_config={
            **sizes,
            "patch_embed_hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "seq_len": 256,
        },
    )
    # the processor always asks for 2048 patches of each picture, so they are small ones
    return config, Pix2StructProcessor(Pix2StructImageProcessor(patch_size=square(4)), tok)
