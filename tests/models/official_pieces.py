"""Run on its own, where torchvision can be found: several pictures and clips against the official processors.

Inputs are compared tensor for tensor, positions with the model's own, tokens with those of `generate`. Prints one line
per family and exits non-zero at the first difference.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.families.torchvision_here import make_importable

assert make_importable(), "torchvision is needed"

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.video_utils import VideoMetadata

import ercr
from ercr.explaining.media import asked, load, media
from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.pieces import pieces_of
from tests.explaining.test_several import check_turns, check_ways, drawn
from tests.families.registry import families, save
from tests.models.frames import check_frames

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "internvl3", "qwen3_vl", "llava_onevision")
TEXT = "What changed between them?"
NEW_TOKENS = 5
rng = np.random.default_rng(0)


def picture(width: int, height: int) -> Image.Image:
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def clip(frames: int, width: int, height: int, fps: float = 2.0) -> ercr.Clip:
    return ercr.Clip([picture(width, height) for _ in range(frames)], fps=fps)


def cases() -> dict[str, list[Any]]:
    """What is shown, of odd sizes and lengths."""
    return {
        "two pictures": [picture(130, 90), picture(61, 127)],
        "five pictures": [picture(40 + 23 * i, 150 - 19 * i) for i in range(5)],
        "a clip": [clip(6, 90, 62)],
        "a clip of odd length": [clip(7, 61, 101, fps=3.0)],
        "a clip and a picture": [clip(5, 88, 60, fps=0.7), picture(77, 99)],
        "a picture and a clip": [picture(99, 77), clip(2, 60, 90)],
        "two clips": [clip(4, 64, 64), clip(3, 90, 48, fps=5.0)],
    }


def conversation(shown: list[Any]) -> list[dict[str, Any]]:
    """Three turns, with the first half of what is shown in the first one."""
    half = -(-len(shown) // 2)
    first, second = ([{"type": "video", "video": s} if isinstance(s, ercr.Clip) else {"type": "image", "image": s}
                      for s in part] for part in (shown[:half], shown[half:]))  # fmt: skip
    return [
        {"role": "user", "content": [*first, {"type": "text", "text": "a photo of a dog?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a cat on a sofa"}]},
        {"role": "user", "content": [{"type": "text", "text": "And"}, *second, {"type": "text", "text": TEXT}]},
    ]


def official(processor: Any, messages: list[dict[str, Any]], shown: list[Any]) -> dict[str, Any]:
    """What the processor itself makes of them."""
    images = [medium for medium in shown if isinstance(medium, Image.Image)]
    clips = [medium for medium in shown if isinstance(medium, LoadedClip)]
    template = getattr(processor, "chat_template", None) or processor.tokenizer.chat_template
    text = processor.tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    options: dict[str, Any] = {"images": [images]} if images else {}
    if clips:
        options["videos"] = [np.stack([np.asarray(frame) for frame in one.frames]) for one in clips]
        options["video_metadata"] = [
            VideoMetadata(total_num_frames=c.facts.frames, fps=c.facts.fps, frames_indices=list(c.indices))
            for c in clips
        ]
        options["do_sample_frames"] = False
    data = dict(processor(text=[text], return_tensors="pt", **options))
    return {name: value for name, value in data.items() if name not in ("num_patches", "video_metadata")}


def equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    theirs = torch.as_tensor(theirs)
    return ours.shape == theirs.shape and bool(torch.equal(ours, theirs.to(ours.dtype)))


def check(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = str(save(families()[name], Path(folder)))
        model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
        processor = transformers.AutoProcessor.from_pretrained(checkpoint)
        explainer = ercr.Explainer.from_pretrained(checkpoint)
        probe = ercr.Explainer.from_pretrained(checkpoint, generic=True)
    beside = check_places(explainer.adapter, probe.adapter)
    painted = [check_frames(one.adapter) for one in (explainer, probe)]
    print(f"{name}: cells within {beside:.4f} of a cell of the probe's; {painted} of painted cells changed most")
    assert min(painted) >= 0.8
    if explainer.adapter.steps is False:  # families with an adapter of their own are in the suite
        check_turns(explainer, drawn())
        check_ways(explainer, drawn())
    for title, shown in cases().items():
        for prompt in (TEXT, conversation(shown)):
            if name in ("llava_onevision", "internvl3") and title == "two clips":
                continue  # their processors take clips of one length only
            compare(f"{name}: {title}", explainer, model, processor, shown, prompt)
    print(f"{name} {explainer.adapter.family}: equal", flush=True)


def check_places(own: Any, probe: Any) -> float:
    """The largest distance between an adapter's cells and the probe's, in cells; slices and order are the same.

    The probe is the generic adapter: it shows the processor charts and reads off which picture, frame, row and column
    each number comes from.
    """
    beside = 0.0
    for title, shown in cases().items():
        if own.family in ("InternVL", "generic") and title == "two clips":
            continue
        wanted = asked(shown, TEXT)
        loaded = media(load(wanted.sources, own.sample_frames))
        ours, read = (adapter.prepare(loaded, wanted.messages) for adapter in (own, probe))
        assert torch.equal(ours.input_ids, read.input_ids), title
        pairs = zip(pieces_of(ours.geometry), pieces_of(read.geometry), strict=True)
        for at, (mine, found) in enumerate(pairs):
            if mine.clip:  # the tiles of a picture may be listed in another order
                assert torch.equal(of_piece(ours, at), of_piece(read, at)), title
            assert mine.times == found.times, title
            assert mine.shape == found.shape, title
            sides = zip(mine.geometry.canvas.centres, found.geometry.canvas.centres, mine.geometry.size, strict=True)
            beside = max(beside, *(float(np.abs(a - b).max()) * len(a) / size for a, b, size in sides))
    assert beside < 0.05, beside
    return beside


def of_piece(prepared: Any, at: int) -> torch.Tensor:
    """The positions of a piece's visual tokens."""
    return torch.split(prepared.visual, [piece.tokens for piece in pieces_of(prepared.geometry)])[at]


def compare(title: str, explainer: ercr.Explainer, model: Any, processor: Any, shown: list[Any], prompt: Any) -> None:
    adapter = explainer.adapter
    wanted = asked(shown if isinstance(prompt, str) else None, prompt)
    loaded = media(load(wanted.sources, adapter.sample_frames))
    prepared = adapter.prepare(loaded, wanted.messages)
    ours, theirs = adapter.collate([prepared], 0), official(processor, wanted.messages, list(loaded))
    assert ours.keys() == theirs.keys(), (title, ours.keys(), theirs.keys())
    for key, value in theirs.items():
        assert equal(ours[key], value), (title, key)
    if adapter.steps and hasattr(model.model, "get_rope_index"):
        names = ("image_grid_thw", "video_grid_thw", "second_per_grid_ts", "attention_mask")
        grids = {key: theirs[key] for key in names if key in theirs}
        expected, delta = model.model.get_rope_index(theirs["input_ids"], theirs["mm_token_type_ids"], **grids)
        batch = adapter.pack([prepared], 0)
        assert torch.equal(batch.positions, expected), (title, "positions")
        following = theirs["input_ids"].shape[1] + delta
        assert torch.equal(batch.next_positions, following), (title, "position of the next token")
    elif hasattr(model.model, "get_rope_index"):
        names = ("image_grid_thw", "video_grid_thw", "attention_mask")
        grids = {key: theirs[key] for key in names if key in theirs}
        expected, _ = model.model.get_rope_index(theirs["input_ids"], theirs["mm_token_type_ids"], **grids)
        used = adapter.decoder_inputs(adapter.pack([prepared], 0))["position_ids"]
        assert torch.equal(used[-3:], expected), (title, "positions")
    with torch.no_grad():
        spoken = model.generate(**theirs, max_new_tokens=NEW_TOKENS, do_sample=False)
    given = (shown, prompt) if isinstance(prompt, str) else (prompt,)
    explanation = explainer.explain(*given, method="cam", max_new_tokens=NEW_TOKENS)
    said = [token.id for token in explanation.text_tokens if token.kind == "answer"]
    assert said == spoken[0, theirs["input_ids"].shape[1] :].tolist(), (title, "tokens")
    words = "".join(token.text for token in explanation.prompt_tokens)
    texts = [TEXT] if isinstance(prompt, str) else ["a photo of a dog?", "a cat on a sofa", "And", TEXT]
    assert all(text in words for text in texts), (title, words)
    assert len(words) <= sum(map(len, texts)) + 2, (title, words)


def check_without_torchvision(name: str) -> None:
    """A clip from the pictures of its frames: the same inputs up to how the two libraries resize."""
    with tempfile.TemporaryDirectory() as folder:
        adapter = ercr.Explainer.from_pretrained(str(save(families()[name], Path(folder)))).adapter
    for title, shown in cases().items():
        wanted = asked(shown, TEXT)
        loaded = media(load(wanted.sources, adapter.sample_frames))
        theirs = adapter.prepare(loaded, wanted.messages)
        official, adapter.video_processor = (
            adapter.video_processor,
            SimpleNamespace(**adapter.video_processor.to_dict()),
        )
        ours = adapter.prepare(loaded, wanted.messages)
        adapter.video_processor = official
        assert torch.equal(ours.input_ids, theirs.input_ids), (name, title)
        assert ours.geometry == theirs.geometry, (name, title)
        for key, value in theirs.pixels.items():
            beside = (ours.pixels[key].double() - value.double()).abs().mean()
            assert beside < (0.02 if value.is_floating_point() else 1e-9), (name, title, key, float(beside))
    print(f"{name} without torchvision: equal", flush=True)


def check_sampling() -> None:
    """The frames that our families take are those of the official video processors' rules."""
    from ercr.models.families.internvl import InternVL
    from ercr.models.families.qwen2_vl import Qwen2VL

    rules = {Qwen2VL: transformers.Qwen2VLVideoProcessor(), InternVL: transformers.InternVLVideoProcessor()}
    for kind, rule in rules.items():
        adapter = kind.__new__(kind)
        adapter.video_processor, adapter.image_processor = rule, SimpleNamespace(temporal_patch_size=2)
        for frames, rate in ((9, 25.0), (60, 29.97), (1000, 24.0), (90_000, 25.0)):
            facts, video = Facts(frames, rate, (8, 8)), VideoMetadata(total_num_frames=frames, fps=rate)
            for wish in ({"fps": 2.0}, {"fps": 5.0}, {"num_frames": 8}):
                if int(frames / rate * wish.get("fps", 1e9)) < 1:
                    continue
                expected = [int(i) for i in rule.sample_frames(video, **wish)]
                found = list(adapter.sample_frames(facts, wish.get("fps"), wish.get("num_frames")))
                assert found == expected, (kind, frames, rate, wish)
    print("sampling: equal", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("transformers", transformers.__version__, "torch", torch.__version__)
    for family in sys.argv[1:] or FAMILIES:
        check(family)
        if family in ("qwen2_vl", "qwen2_5_vl", "internvl3"):
            check_without_torchvision(family)
    check_sampling()
