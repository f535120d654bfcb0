"""Run on its own, where torchvision can be found: our inputs against the official processors', tensor for tensor.

Prints one line per case and exits non-zero at the first difference. A torchvision wheel without its compiled
operators is enough: the two it registers at import are declared here first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

try:
    import torchvision
except (ImportError, RuntimeError):
    for name in [n for n in sys.modules if n.startswith("torchvision")]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401

import numpy as np
import transformers
from PIL import Image

from ercr.models.chat import as_messages
from ercr.models.device_pictures import _same, on_device
from ercr.models.loading import wrap_model
from tests import tiny

SIZES = [(130, 90), (64, 200), (33, 33), (301, 77), (90, 260)]
CHATS = [
    "Describe this image.",
    [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a dog"}]},
        {"role": "user", "content": [{"type": "text", "text": "And near it?"}]},
    ],
]


def official(name: str, tok, image_processor):
    """The family's own processor class around the same tokenizer and image processor."""
    template = tok.chat_template
    if name.startswith("qwen"):
        video = transformers.Qwen2VLVideoProcessor(patch_size=4, merge_size=2)
        kind = transformers.Qwen2_5_VLProcessor if "5" in name else transformers.Qwen2VLProcessor
        return kind(image_processor, tok, video, chat_template=template)
    if name.startswith("llava"):
        return transformers.LlavaProcessor(
            image_processor,
            tok,
            patch_size=4,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
            chat_template=template,
        )
    video = transformers.InternVLVideoProcessor()
    return transformers.InternVLProcessor(image_processor, tok, video, image_seq_length=64, chat_template=template)


def check(name: str, backend: str) -> None:
    config, tok, pillow_processor = tiny.MAKERS[name]()
    with tempfile.TemporaryDirectory() as folder:
        pillow_processor.save_pretrained(folder)
        image_processor = transformers.AutoImageProcessor.from_pretrained(folder, backend=backend)
    model = transformers.AutoModelForImageTextToText.from_config(config)
    processor = official(name, tok, image_processor)
    adapter = wrap_model(model, processor)
    assert adapter.image_backend == backend, (adapter.image_backend, backend)
    rng = np.random.default_rng(0)
    for size in SIZES:
        image = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
        for chat in CHATS:
            messages = as_messages(chat)
            ours = adapter.collate([adapter.prepare(image, messages)], 0)
            text = processor.apply_chat_template(messages, add_generation_prompt=True)
            theirs = processor(images=[image], text=[text], return_tensors="pt")
            theirs = {k: v for k, v in theirs.items() if k != "num_patches"}
            assert ours.keys() == theirs.keys(), (name, ours.keys(), theirs.keys())
            for key, value in theirs.items():
                assert torch.equal(ours[key], torch.as_tensor(value)), (name, backend, size, key)
            positions = adapter.position_ids([adapter.prepare(image, messages)], ours["attention_mask"])
            if hasattr(model.model, "get_rope_index"):
                expected, _ = model.model.get_rope_index(
                    ours["input_ids"],
                    ours["mm_token_type_ids"],
                    ours["image_grid_thw"],
                    attention_mask=ours["attention_mask"],
                )
                assert torch.equal(positions, expected), (name, "positions")
    if backend == "torchvision":
        check_on_device(adapter, remembered="pad" not in name)
    print(f"{name} {backend}: equal", flush=True)


def check_on_device(adapter, remembered: bool) -> None:
    """Pictures prepared as on a GPU, by the processor and then from what is known of their size, equal the CPU's.

    A processor that pads before it resizes is asked anew each time.
    """
    other = on_device(adapter)
    assert other is not None, "the processor's pictures cannot be prepared on a device"
    for size in (*SIZES, *SIZES):
        assert _same(adapter.on_cpu_in_8_bits, other, size), size
    known = [plan is not None for plan in other.image_processor._plans.values()]
    assert (sum(known) > len(known) / 2) == remembered, known


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    print("transformers", transformers.__version__, "torch", torch.__version__)
    for family in tiny.MAKERS:
        for kind in ("pil", "torchvision"):
            check(family, kind)
