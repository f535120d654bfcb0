"""What is measured of a family's tiny checkpoint: inputs, tokens, probabilities, cells, replays and methods."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter

import ercr
from ercr.errors import ErcrError
from ercr.image.geometry import Geometry
from ercr.methods.registry import methods
from ercr.models.base import Adapter
from ercr.models.chat import as_messages
from ercr.models.generic.owners import OwnValues
from ercr.models.inputs import Prepared
from ercr.models.registry import own_adapter
from ercr.trace import Needs, TraceRequest, trace_samples
from tests.families.registry import Family, save

PROMPT = "What is in the picture? Two umbrellas?"
SIZES = ((130, 90), (61, 127), (300, 180), (640, 427))  # width and height
NEW_TOKENS = 6
_PROBED = 16  # cells that are painted over, per picture


@dataclass
class Checked:
    """What was found for one family; a number is the worst of all pictures."""

    name: str
    title: str
    checkpoint: str
    type: str
    decoder: str
    adapter: str = ""  # own, generic, or none
    reason: str | None = None  # why it has no cells
    inputs: bool | None = None  # equal to the official processor's
    tokens: bool | None = None  # equal to generate's
    probabilities: float | None = None  # largest difference from those of generate
    painted: float | None = None  # share of painted cells whose visual token changed most
    beside_own: float | None = None  # largest distance of the generic centres from the own adapter's, in cells
    half: float | None = None  # the same between the generic centres in bfloat16 and in float32
    replayed: float | None = None  # largest difference of replayed states from recorded ones, over their size
    causal: bool | None = None  # whether visual states are the same whatever text is behind the picture
    mutual: bool | None = None  # whether visual tokens see those behind them
    batches: bool | None = None
    methods: dict[str, str] = field(default_factory=dict)  # "ok", or the sentence why not


class Subject:
    """A family's checkpoint, loaded in all the ways that are compared."""

    def __init__(self, known: Family, folder: Path) -> None:
        from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

        self.known = known
        self.folder = str(save(known, folder))
        self.config = AutoConfig.from_pretrained(self.folder)
        self.model = AutoModelForImageTextToText.from_pretrained(self.folder).eval()
        self.processor = AutoProcessor.from_pretrained(self.folder)

    @cached_property
    def generic(self) -> ercr.Explainer:
        return ercr.Explainer.from_pretrained(self.folder, generic=True)

    @cached_property
    def half(self) -> ercr.Explainer:
        return ercr.Explainer.from_pretrained(self.folder, generic=True, dtype="bfloat16")

    @cached_property
    def own(self) -> ercr.Explainer | None:
        return None if own_adapter(self.config) is None else ercr.Explainer.from_pretrained(self.folder)

    @property
    def explainer(self) -> ercr.Explainer:
        return self.own or self.generic

    def official(self, image: Image.Image) -> dict[str, Any]:
        """What the processor itself makes of the conversation."""
        template = getattr(self.processor, "chat_template", None) or self.processor.tokenizer.chat_template
        if template is None:
            return dict(self.processor(text=self.known.place + PROMPT, images=image, return_tensors="pt"))
        messages = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": PROMPT}]}]
        options = {"tokenize": True, "return_dict": True, "return_tensors": "pt", "add_generation_prompt": True}
        try:
            return dict(self.processor.apply_chat_template(messages, chat_template=template, **options))
        except ValueError:  # some of these do not take the list of pictures that this method makes
            text = self.processor.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            return dict(self.processor(text=text, images=image, return_tensors="pt"))


def check(known: Family) -> Checked:
    """Everything about one family."""
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(known, Path(folder))
        text = subject.config.get_text_config()
        found = Checked(
            known.name, known.title, known.checkpoint, subject.config.model_type, str(getattr(text, "model_type", ""))
        )
        found.adapter = "own" if subject.own is not None else "generic"
        try:
            subject.explainer.adapter.prepare(picture(*SIZES[0]), as_messages(PROMPT))
        except ErcrError as error:
            found.adapter, found.reason = "none", str(error)
        found.methods = _methods(subject)
        if found.adapter != "none":
            _measure(subject, found)
        elif found.methods["occlusion"] == "ok":
            _measure_answers(subject, found, "occlusion:grid=2")
    return found


def _measure(subject: Subject, found: Checked) -> None:
    adapter = subject.explainer.adapter
    found.batches = adapter.batches
    _measure_answers(subject, found, "cam")
    found.painted = float(np.mean([_painted(subject, size) for size in SIZES]))
    found.replayed = _replayed(adapter)
    found.causal = _causal(adapter)
    found.mutual = _mutual(adapter)
    found.half = max(_apart(subject.generic, subject.half, size) for size in SIZES)
    if subject.own is not None:
        found.beside_own = max(_apart(subject.own, subject.generic, size) for size in SIZES)


def _measure_answers(subject: Subject, found: Checked, method: str) -> None:
    """Inputs, tokens and probabilities: the part that needs no cells."""
    found.inputs = all(_same_inputs(subject, size) for size in SIZES)
    answers = [_answer(subject, size, method) for size in SIZES]
    found.tokens = all(same for same, _ in answers)
    found.probabilities = max(difference for _, difference in answers)


def picture(width: int, height: int, seed: int = 3) -> Image.Image:
    """Blobs of colour, of any size."""
    noise = np.random.default_rng(seed).integers(0, 255, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(1))


def _same_inputs(subject: Subject, size: tuple[int, int]) -> bool:
    image = picture(*size)
    ours = subject.explainer.adapter.collate([subject.explainer.adapter.prepare(image, as_messages(PROMPT), False)], 0)
    theirs = {name: value for name, value in subject.official(image).items() if name not in ("num_patches", "labels")}
    return ours.keys() == theirs.keys() and all(_close(ours[name], value) for name, value in theirs.items())


def _close(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(_close, ours, theirs))
    theirs = torch.as_tensor(theirs)
    return ours.shape == theirs.shape and bool(torch.equal(ours, theirs.to(ours.dtype)))


def _answer(subject: Subject, size: tuple[int, int], method: str) -> tuple[bool, float]:
    """Whether the explained tokens are those of `generate`, and how far their probabilities are from its own."""
    image = picture(*size)
    # some processors give another precision than the model's, which their examples cast
    inputs = {name: _in_precision(value, subject.model.dtype) for name, value in subject.official(image).items()}
    length = inputs["input_ids"].shape[1]
    with torch.no_grad():
        spoken = subject.model.generate(
            **inputs, max_new_tokens=NEW_TOKENS, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
    expected = spoken.sequences[0, 1 if subject.config.is_encoder_decoder else length :]
    explanation = subject.explainer.explain(image, PROMPT, method=method, max_new_tokens=NEW_TOKENS)
    answer = [token for token in explanation.text_tokens if token.kind == "answer"]
    if [token.id for token in answer] != expected.tolist():
        return False, float("nan")
    plain = torch.cat(spoken.logits).double().softmax(-1).gather(-1, expected[:, None])[:, 0]
    return True, float((plain - torch.tensor([token.probability for token in answer])).abs().max())


def _in_precision(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _painted(subject: Subject, size: tuple[int, int]) -> float:
    adapter = subject.explainer.adapter
    return painted(adapter, picture(*size), lambda image: adapter.prepare(image, as_messages(PROMPT)))


def painted(adapter: Adapter, image: Image.Image, show: Callable[[Image.Image], Prepared]) -> float:
    """Share of cells for which paint in their middle changes their own embedding most.

    The tower's attention passes each position's own value on, as random weights would spread the paint anywhere.
    """
    prepared = show(image)
    before = _embeddings(adapter, prepared)
    geometry = prepared.geometry
    down, across = (axis.centres() for axis in geometry.canvas.axes)
    inside = np.outer((down > 0) & (down < image.height), (across > 0) & (across < image.width))
    cells = np.argwhere(geometry.valid & inside)
    chosen = np.random.default_rng(0).permutation(len(cells))[:_PROBED]
    tall, wide = (
        float(np.diff(line).min()) if len(line) > 1 else side
        for line, side in ((down, image.height), (across, image.width))
    )
    changes = []
    for row, column in cells[chosen]:
        y, x = down[row], across[column]
        pixels = np.array(image)
        top, left = (max(0, int(np.floor(at - side / 4))) for at, side in ((y, tall), (x, wide)))
        bottom, right = (
            max(low + 1, int(np.ceil(at + side / 4))) for low, at, side in ((top, y, tall), (left, x, wide))
        )
        pixels[top:bottom, left:right] = 255 - pixels[top:bottom, left:right]
        after = _embeddings(adapter, show(Image.fromarray(pixels)))
        changes.append(_on_canvas(geometry, (after - before).norm(dim=-1)[prepared.visual]))
    most = torch.stack(changes).flatten(1).argmax(-1)
    expected = torch.tensor([row * geometry.grid[1] + column for row, column in cells[chosen]])
    return float((most == expected).float().mean())


def _on_canvas(geometry: Geometry, values: torch.Tensor) -> torch.Tensor:
    """Numbers of the visual tokens as a map [h, w] of the canvas, without overviews, which see the same again."""
    rows, columns = geometry.layout
    height, width = geometry.panels[0].grid
    canvas = values[: rows * columns * height * width].view(rows, columns, height, width)
    return canvas.transpose(1, 2).reshape(rows * height, columns * width)


@torch.no_grad()
def _embeddings(adapter: Adapter, prepared: Prepared) -> torch.Tensor:
    own = adapter.on_replica()
    with OwnValues():
        return torch.as_tensor(own.decoder_inputs(own.pack([prepared], 0))["inputs_embeds"])[0]


def _replayed(adapter: Adapter) -> float:
    """The largest difference between the states of a replay and those recorded while the model answered."""
    worst = 0.0
    for size in SIZES:
        request = TraceRequest(picture(*size), adapter.prepare(picture(*size), as_messages(PROMPT)))
        options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
        trace = trace_samples(adapter, [request], Needs(replay=True), options)[0]
        states = trace.replay.states()
        for again, recorded in (
            (states[trace.replay.visual], trace.anchor.states),
            (states[trace.replay.emitting], trace.text.emit_states),
        ):
            worst = max(worst, float((again - recorded).abs().max() / recorded.abs().max()))
    return worst


def _causal(adapter: Adapter) -> bool:
    found = []
    for prompt in (PROMPT, "Describe this image."):
        request = TraceRequest(picture(*SIZES[0]), adapter.prepare(picture(*SIZES[0]), as_messages(prompt)))
        answer = adapter.encode_answer("a dog on a sofa .")
        found.append(trace_samples(adapter, [TraceRequest(request.media, request.prepared, answer)], Needs(), {})[0])
    first, second = (trace.anchor.states for trace in found)
    return bool((first - second).abs().max() < 1e-4 * first.abs().max())


@torch.no_grad()
def _mutual(adapter: Adapter) -> bool:
    """Whether the first visual token's state depends on the embedding of the last one."""
    prepared, own = adapter.prepare(picture(*SIZES[0]), as_messages(PROMPT)), adapter.on_replica()
    inputs = own.decoder_inputs(own.pack([prepared], 0))
    first, last = int(prepared.visual.min()), int(prepared.visual.max())
    before = own.read(inputs)[0, first]
    changed = inputs["inputs_embeds"].clone()
    changed[0, last] += changed[0, first]
    after = own.read({**inputs, "inputs_embeds": changed})[0, first]
    return bool((after - before).abs().max() > 1e-4 * before.abs().max())


def _apart(one: ercr.Explainer, other: ercr.Explainer, size: tuple[int, int]) -> float:
    """The largest distance between the centres that two adapters give to the same positions, in cells."""
    image = picture(*size)
    places = []
    for explainer in (one, other):
        prepared = explainer.adapter.prepare(image, as_messages(PROMPT))
        places.append(dict(zip(prepared.visual.tolist(), _centres(prepared.geometry), strict=True)))
    if places[0].keys() != places[1].keys():
        return float("inf")
    return max(
        max(abs(a[0] - b[0]) / a[2], abs(a[1] - b[1]) / a[3])
        for a, b in ((places[0][k], places[1][k]) for k in places[0])
    )


def _centres(geometry: Geometry) -> list[tuple[float, float, float, float]]:
    """y, x, height and width of every visual token's cell, in the geometry's order."""
    found = []
    for panel in geometry.panels:
        (down, across), (rows, columns) = (axis.centres() for axis in panel.axes), panel.grid
        left, top, right, bottom = (float(edge) for edge in panel.edges)
        sizes = ((bottom - top) / rows, (right - left) / columns)
        found += [(float(y), float(x), *sizes) for y in down for x in across]
    return found


def _methods(subject: Subject) -> dict[str, str]:
    image, found = picture(*SIZES[0]), {}
    for name in methods():
        try:
            spec = f"{name}:grid=4" if name == "occlusion" else name
            explanation = subject.explainer.explain(image, PROMPT, method=spec, max_new_tokens=3)
            fine = np.isfinite(explanation.maps).all() and explanation.maps.min() >= 0 and explanation.maps.max() <= 1
            found[name] = "ok" if fine else "maps outside 0..1"
        except ErcrError as error:
            found[name] = str(error)
    return found


def as_data(found: Checked) -> dict[str, Any]:
    """What is kept: numbers with two digits, and of the methods those that do not run."""
    kept = {name: float(f"{value:.1e}") if isinstance(value, float) else value for name, value in asdict(found).items()}
    refused = {name: why for name, why in found.methods.items() if why != "ok"}
    return {**kept, "methods": len(found.methods) - len(refused), "refused": {} if found.reason else refused}
