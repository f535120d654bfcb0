"""Bulk, compiled and streamed runs give the answers and maps of a single, plain run."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import ercr
from ercr.errors import ImageError, InputError
from ercr.explaining.bulk import few_collections, take_alike
from ercr.explaining.sizes import Sizes
from ercr.explaining.together import mapped, run
from ercr.methods import resolve
from ercr.models.chat import as_messages
from ercr.trace import TraceRequest, trace_samples
from ercr.trace.flow import Flow
from tests.tiny import MAKERS

PROMPT = "What is in the picture?"


def pictures():
    rng = np.random.default_rng(0)
    sizes = ((60, 90), (90, 60), (60, 90), (120, 60), (60, 90))
    return [Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]


def same(one, other):
    assert [t.id for t in one.text_tokens] == [t.id for t in other.text_tokens]
    np.testing.assert_allclose(one.maps, other.maps, atol=2e-6)


@pytest.mark.parametrize("family", MAKERS)
def test_bulk_and_captured_runs_equal_single_ones(family, checkpoint, load):
    plain, captured = load(family), ercr.Explainer.from_pretrained(str(checkpoint(family)), compile=True)
    images = pictures()
    single = [plain.explain(image, PROMPT, max_new_tokens=7) for image in images]
    for explainer in (plain, captured):
        for size in (2, "auto"):
            found = explainer.explain_batch(images, PROMPT, max_new_tokens=7, batch_size=size)
            for one, other in zip(single, found, strict=True):
                same(one, other)
    streamed = plain.stream(images[0], PROMPT, max_new_tokens=7)
    assert [step.id for step in streamed] == [t.id for t in single[0].text_tokens if t.kind == "answer"]
    same(streamed.explanation(), single[0])


# a method that flows, and one that runs batch by batch, for which captured passes are not used
@pytest.mark.parametrize(("method", "compiled"), [("ercr", False), ("ercr", True), ("attention", False)])
def test_prompts_answers_and_lengths_mix_and_answers_that_end_make_room(method, compiled, checkpoint, load):
    """More pictures than slots, prompts of many lengths, some answers given, others ending at different times."""
    plain = load("qwen2_vl")
    explainer = ercr.Explainer.from_pretrained(str(checkpoint("qwen2_vl")), compile=True) if compiled else plain
    jobs = [
        (image, f"{PROMPT}{' Really?' * (number % 3)}", "a dog and a cat" if number % 4 == 1 else None)
        for number, image in enumerate(pictures() * 3)
    ]
    usual = plain.explain(*jobs[0][:2], method="cam", max_new_tokens=9)
    options = {"max_new_tokens": 9, "generation": {"eos_token_id": [usual.text_tokens[-4].id]}, "method": method}
    single = [plain.explain(image, prompt, answer=answer, **options) for image, prompt, answer in jobs]
    assert len({len(one.text_tokens) - len(one.prompt_tokens) for one in single}) > 2
    found = list(explainer.explain_iter(iter(jobs), batch_size=4, **options))
    assert len(found) == len(jobs)
    for one, other in zip(single, found, strict=True):
        same(one, other)


def test_a_pass_holds_samples_of_similar_lengths_and_the_oldest_first():
    rng = np.random.default_rng(0)
    lengths = [int(n) for n in rng.integers(20, 400, 40)]
    waiting = [(at, SimpleNamespace(length=length)) for at, length in enumerate(lengths)]
    order = []
    while waiting:
        oldest = min(at for at, _ in waiting)
        taken = take_alike(waiting, 8, 1.15)
        own = [one.length for _, one in taken]
        assert oldest in [at for at, _ in taken]
        assert len(own) <= 8
        assert max(own) * len(own) <= 1.15 * sum(own)
        order += [at for at, _ in taken]
    assert sorted(order) == list(range(40))


def test_what_cannot_be_read_is_raised_or_kept_in_its_place(load):
    explainer, images = load("llava"), [*pictures()[:2], "no such picture.jpg", pictures()[2]]
    found = list(explainer.explain_iter(images, PROMPT, method="cam", max_new_tokens=3, errors="keep", batch_size=2))
    assert [isinstance(one, ImageError | InputError) for one in found] == [False, False, True, False]
    same(found[3], explainer.explain(images[3], PROMPT, method="cam", max_new_tokens=3))
    with pytest.raises(InputError, match="use explain for one"):
        explainer.explain_iter("photo.jpg")
    with pytest.raises((ImageError, InputError), match="no such picture"):
        list(explainer.explain_iter(images, PROMPT, method="cam", max_new_tokens=3))


def test_a_flow_that_runs_out_of_memory_goes_on_with_fewer_at_once(load, monkeypatch):
    explainer, images = load("qwen2_vl"), pictures() * 2
    jobs = [(image, PROMPT, "a dog" if number % 3 == 1 else None) for number, image in enumerate(images)]
    expected = [explainer.explain(*job[:2], answer=job[2], method="cam", max_new_tokens=4) for job in jobs]
    begin, advance, tried = Flow.begin, Flow.advance, []

    def greedy_for_memory(self, samples):
        tried.append(len(samples))
        if len(samples) > 2:
            raise torch.OutOfMemoryError("no more")
        return begin(self, samples)

    def once(self):
        if len(tried) == 3:  # others have begun by then
            tried.append(0)
            raise torch.OutOfMemoryError("no more")
        return advance(self)

    monkeypatch.setattr(Flow, "begin", greedy_for_memory)
    monkeypatch.setattr(Flow, "advance", once)
    found = explainer.explain_iter(jobs, method="cam", max_new_tokens=4, batch_size=8)
    for one, other in zip(expected, found, strict=True):
        same(one, other)
    assert max(tried) == 8
    assert 0 in tried


def test_items_are_read_a_little_ahead_only(load):
    explainer, read = load("llava"), []

    def endless():
        while True:
            read.append(1)
            yield pictures()[len(read) % 5]

    coming = explainer.explain_iter(endless(), PROMPT, method="cam", max_new_tokens=2, batch_size=2)
    for _ in range(9):
        next(coming)
    coming.close()
    assert len(read) < 30


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl"])
def test_tokens_are_those_of_generate_when_answers_end_at_different_times(family, load):
    explainer, images = load(family), pictures()[:4]
    adapter = explainer.adapter
    long = explainer.explain_batch(images, PROMPT, max_new_tokens=12)
    said = [[t.id for t in e.text_tokens if t.kind == "answer"] for e in long]
    ends = [said[0][3], said[1][7]]  # tokens that some answers reach early, others late or never
    found = explainer.explain_batch(images, PROMPT, max_new_tokens=12, generation={"eos_token_id": ends}, batch_size=4)
    for image, explanation in zip(images, found, strict=True):
        prepared = adapter.prepare(image, as_messages(PROMPT))
        inputs = adapter.collate([prepared], 0)
        whole = adapter.model.generate(**inputs, max_new_tokens=12, do_sample=False, eos_token_id=ends, pad_token_id=0)
        expected = whole[0, len(prepared.input_ids) :].tolist()
        assert [t.id for t in explanation.text_tokens if t.kind == "answer"] == expected


@pytest.mark.parametrize("compiled", [False, True])
def test_suppressed_tokens_are_excluded_as_generate_excludes_them(compiled, checkpoint, load):
    image = pictures()[0]
    usual = [t.id for t in load("llava").explain(image, PROMPT, max_new_tokens=8).text_tokens if t.kind == "answer"]
    explainer = ercr.Explainer.from_pretrained(str(checkpoint("llava")), compile=compiled)
    adapter = explainer.adapter
    adapter.model.generation_config.suppress_tokens = sorted(set(usual[:4]))
    prepared = adapter.prepare(image, as_messages(PROMPT))
    whole = adapter.model.generate(**adapter.collate([prepared], 0), max_new_tokens=8, do_sample=False, pad_token_id=0)
    expected = whole[0, len(prepared.input_ids) :].tolist()
    found = explainer.explain(image, PROMPT, max_new_tokens=8)
    assert [t.id for t in found.text_tokens if t.kind == "answer"] == expected
    assert [step.id for step in explainer.stream(image, PROMPT, max_new_tokens=8)] == expected
    assert not set(expected) & set(usual[:4])


@pytest.mark.parametrize("spec", ["cam", "tam", "ercr", "ercr:context=tam,normalize=joint", "ercr:views=1"])
def test_a_method_on_many_traces_at_once_equals_one_by_one(spec, load):
    method, settings = resolve(spec)
    for family in ("qwen2_vl", "internvl"):
        adapter, image = load(family).adapter, pictures()[0]
        prepared = adapter.prepare(image, as_messages(PROMPT))
        answers = [adapter.encode_answer(text) for text in ("a dog", "two umbrellas near a cat", "it is raining")]
        samples = [TraceRequest(image, prepared, answer) for answer in answers]
        traces = trace_samples(adapter, samples, method.needs(settings), {})
        for trace, (evidence, result) in zip(traces, mapped(method, settings, traces), strict=True):
            alone, refined = run(method, settings, trace)
            torch.testing.assert_close(evidence.maps, alone.maps)
            torch.testing.assert_close(result.maps, refined.maps)
            for name in ("alpha", "beta", "relevance"):
                one, other = getattr(result, name), getattr(refined, name)
                assert (one is None) == (other is None)
                if one is not None:
                    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("family", MAKERS)
def test_8_bit_pixels_are_normalised_to_the_official_numbers(family, load):
    adapter = load(family).adapter
    for image in pictures()[1:4]:
        prepared = [a.prepare(image, as_messages(PROMPT)) for a in (adapter, adapter.on_cpu_in_8_bits)]
        views = [
            a.view(image, p, 0.75, "pad") for a, p in zip((adapter, adapter.on_cpu_in_8_bits), prepared, strict=True)
        ]
        for official, raw in (prepared, views):
            assert raw.pixels["pixel_values"].dtype == torch.uint8
            expected, found = (adapter.pack([one], 0).pixels["pixel_values"] for one in (official, raw))
            assert torch.equal(expected, found)
            assert official.geometry == raw.geometry


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl"])
def test_8_bit_pixels_are_normalised_before_the_models_own_generate(family, load, monkeypatch):
    explainer, images = load(family), pictures()[:3]
    options = {"max_new_tokens": 5, "generation": {"min_new_tokens": 4}}  # which our own greedy loop leaves to generate
    single = [explainer.explain(image, PROMPT, **options) for image in images]
    monkeypatch.setattr(
        type(explainer.adapter), "for_bulk", property(lambda adapter: adapter.on_cpu_in_8_bits)
    )  # as on a GPU
    for one, other in zip(single, explainer.explain_batch(images, PROMPT, batch_size=2, **options), strict=True):
        same(one, other)


def test_out_of_memory_halves_the_batch_and_goes_on(load):
    sizes, sizes_seen = Sizes(8, load("llava").adapter), []

    def run(batch):
        sizes_seen.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("no more")
        return [item * 10 for item in batch]

    assert sizes.run(run, list(range(8))) == [item * 10 for item in range(8)]
    assert sizes_seen[:3] == [8, 4, 2]
    assert sizes.size == 2
    with pytest.raises(torch.OutOfMemoryError):
        sizes.run(lambda batch: run([1, 2, 3]), [1])
    with pytest.raises(InputError, match="batch_size"):
        Sizes(0, load("llava").adapter)


def test_captured_mode_refuses_what_it_cannot_capture(checkpoint):
    with pytest.raises(InputError, match="sdpa"):
        ercr.Explainer.from_pretrained(str(checkpoint("llava")), compile=True, attn_implementation="eager")


def test_passes_grow_from_the_first_on_a_gpu(load, monkeypatch):
    adapter = SimpleNamespace(device=torch.device("cuda"), model=load("llava").adapter.model)
    monkeypatch.setattr(Sizes, "_possible", lambda sizes, length: 128)
    for name, value in (("memory_allocated", 0), ("max_memory_allocated", 2**30), ("memory_reserved", 0)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**35, 2**36))
    sizes, seen = Sizes("auto", adapter), []
    sizes.rows(400)
    for _ in range(5):
        seen.append(sizes.chunk)
        sizes.measured(lambda: None, seen[-1])
    assert seen == [8, 16, 32, 32, 32]  # a quarter of 128 slots at most


def test_collections_leave_alone_what_existed_before():
    seen = [gc.get_freeze_count() > 0 for _ in few_collections(range(2))]
    assert seen == [True, True]
    assert gc.get_freeze_count() == 0
    gc.freeze()  # by somebody else, who goes on
    list(few_collections(range(2)))
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
