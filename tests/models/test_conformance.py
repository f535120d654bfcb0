"""What every adapter must keep: causality, batching, spans, clean models. One sweep over all families."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import ercr
from ercr.errors import ImageError, InputError, ModelStateError, UnsupportedModel
from ercr.models.chat import as_messages
from ercr.trace import Needs, TraceRequest, trace_samples
from tests.conftest import FAMILIES

PROMPT = "Describe this image."
sweep = pytest.mark.parametrize("family", FAMILIES)


@sweep
def test_maps_do_not_depend_on_the_text_behind_the_image(load, picture, family):
    """Fact 1: one prefill per view serves every token."""
    adapter = load(family).adapter
    states = []
    for prompt, answer in (
        (PROMPT, "a dog ."),
        ("What is in the picture? Two umbrellas?", "it is raining near the sofa ."),
    ):
        sample = TraceRequest(picture, adapter.prepare(picture, as_messages(prompt)), adapter.encode_answer(answer))
        states.append(trace_samples(adapter, [sample], Needs(scales=(0.5, 1.0)), {})[0].views)
    for first, second in zip(*states, strict=True):
        assert torch.allclose(first.states, second.states, atol=1e-5)


@sweep
def test_views_equal_the_same_pixels_shown_with_a_full_prompt(load, picture, family):
    adapter = load(family).adapter
    prepared = adapter.prepare(picture, as_messages(PROMPT))
    sample = TraceRequest(picture, prepared, adapter.encode_answer("a dog ."))
    trace = trace_samples(adapter, [sample], Needs(scales=(0.5, 1.0)), {})[0]
    view = adapter.view(picture, prepared, 0.5, "pad")
    longer = view.with_answer(prepared.input_ids[int(prepared.visual[-1]) + 1 :])
    with torch.no_grad():
        out = adapter.model(**adapter.collate([longer], 0), output_hidden_states=True)
    assert torch.allclose(trace.view(0.5).states, out.hidden_states[-1][0, view.visual], atol=1e-5)


@sweep
def test_a_batch_equals_its_samples_one_by_one(load, picture, family):
    explainer = load(family)
    images = [picture, picture.resize((200, 80)), picture.rotate(90, expand=True)]
    prompts = [PROMPT, "What is in the picture? A sofa?", "Describe"]
    together = explainer.explain_batch(images, prompts, max_new_tokens=6, generation={"min_new_tokens": 3})
    for image, prompt, batched in zip(images, prompts, together, strict=True):
        alone = explainer.explain(image, prompt, max_new_tokens=6, generation={"min_new_tokens": 3})
        assert [t.id for t in batched.text_tokens] == [t.id for t in alone.text_tokens]
        np.testing.assert_allclose(batched.maps, alone.maps, atol=2e-4)
    given = explainer.explain_batch(
        images, prompts, answers=["a dog .", "two umbrellas near a sofa", "it"], batch_size=2
    )
    for image, prompt, batched in zip(images, prompts, given, strict=True):
        alone = explainer.explain(image, prompt, answer=batched.text)
        np.testing.assert_allclose(batched.maps, alone.maps, atol=2e-4)


@sweep
def test_a_stream_equals_the_batch_and_can_be_left_early(load, picture, family):
    explainer = load(family)
    options = {"max_new_tokens": 7, "generation": {"min_new_tokens": 5}}
    for method in ("ercr", "tam", "cam", "cam:layer=1"):
        whole = explainer.explain(picture, PROMPT, method=method, **options)
        stream = explainer.stream(picture, PROMPT, method=method, **options)
        steps = list(stream)
        answer = [t for t in whole.text_tokens if t.kind == "answer"]
        assert [s.id for s in steps] == [t.id for t in answer]
        np.testing.assert_allclose([s.map for s in steps], whole.maps[[t.row for t in answer]], atol=2e-5)
        np.testing.assert_allclose(stream.explanation().maps, whole.maps, atol=2e-5)
    for step in explainer.stream(picture, PROMPT, **options):
        assert step.index == 0
        break
    assert not hooks(explainer.adapter.model)


def test_two_streams_at_once_do_not_mix(load, picture):
    explainer = load("qwen2_vl")
    options = {"max_new_tokens": 6, "generation": {"min_new_tokens": 6}}
    images = [picture, picture.resize((200, 60))]
    alone = [explainer.explain(image, PROMPT, **options) for image in images]
    streams = [explainer.stream(image, PROMPT, **options) for image in images]
    for _ in zip(*streams, strict=True):
        explainer.explain(picture, PROMPT, answer="a dog")
    for stream, whole in zip(streams, alone, strict=True):
        np.testing.assert_allclose(stream.explanation().maps, whole.maps, atol=2e-5)


def test_lower_limits_on_pixels_do_not_undo_a_views_factor(load, picture, monkeypatch):
    adapter = load("qwen2_vl").adapter
    limits = {"shortest_edge": 80 * 80, "longest_edge": 160 * 160}
    monkeypatch.setattr(adapter.image_processor, "size", type(adapter.image_processor.size)(**limits))
    anchor = adapter.image_inputs(picture)[1]
    grids = [adapter.view_inputs(picture, anchor, scale, "pad")[1].grid for scale in (0.5, 0.75)]
    assert grids[0] != grids[1]
    assert all(view[0] < anchor.grid[0] and view[1] < anchor.grid[1] for view in grids)


def test_templates_that_want_plain_strings_get_them(load, picture):
    from ercr.models.loading import wrap_model

    adapter = load("llava").adapter
    template = (
        "{% for m in messages %}{% if m['content'] is string %}{{ m['role'] + ': ' + m['content'] }}{% else %}"
        "{% if m['role'] != 'user' %}{{ raise_exception('strings only') }}{% endif %}user: {% for c in m['content'] %}"
        "{{ '<image>' if c['type'] == 'image' else c['text'] }}{% endfor %}{% endif %} {% endfor %}assistant:"
    )
    tokenizer = copy.deepcopy(adapter.tokenizer)
    tokenizer.chat_template = template
    explainer = ercr.Explainer(adapter.model, (tokenizer, adapter.image_processor))
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is it?"}]
    assert explainer.explain(picture, turns, answer="a dog").prompt == "What is it?"
    assert wrap_model(adapter.model, (tokenizer, adapter.image_processor)).chat_template == template


@sweep
def test_generated_and_given_answers_give_the_same_maps(load, picture, family):
    """The states recorded while generating equal those of one pass over the finished answer."""
    explainer = load(family)
    adapter = explainer.adapter
    suppress = {"suppress_tokens": [adapter.image_token_id]}
    spoken = explainer.explain(picture, PROMPT, max_new_tokens=6, generation={"min_new_tokens": 4, **suppress})
    ids = torch.tensor([t.id for t in spoken.text_tokens if t.kind == "answer"])
    prepared = adapter.prepare(picture, as_messages(PROMPT))
    beams = explainer.explain(picture, PROMPT, max_new_tokens=4, generation={"num_beams": 3, **suppress})
    assert len(beams.maps) == len(beams.text_tokens)
    trace = trace_samples(adapter, [TraceRequest(picture, prepared, ids)], Needs(scales=(0.5, 0.75, 1.0)), {})[0]
    rows = slice(0, len(trace.rows))
    method, settings = ercr.methods.resolve("ercr")
    result = method.refine(trace, method.evidence(trace, rows, settings).maps, rows, settings)
    np.testing.assert_allclose(result.maps.numpy(), spoken.maps, atol=2e-4)


@sweep
def test_prompt_tokens_are_the_users_words_and_nothing_else(load, picture, family):
    explainer = load(family)
    tricky = "You are a helpful assistant. assistant user"
    explanation = explainer.explain(picture, tricky, answer="a dog")
    assert explanation.prompt == tricky
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is in the picture?"},
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": [{"type": "text", "text": "And near it?"}]},
    ]
    talk = explainer.explain(picture, turns, answer="a sofa")
    assert [line.strip() for line in talk.prompt.splitlines()] == ["What is in the picture?", "a cat", "And near it?"]
    assert [w.text for w in talk.prompt_words][5:] == ["?", "a", "cat", "And", "near", "it", "?"]
    first_image = int(explainer.adapter.prepare(picture, as_messages(turns)).visual[0])
    assert all(t.position > first_image for t in talk.prompt_tokens)


def hooks(model):
    """Our hooks on the model; transformers keeps some of its own for output_hidden_states."""
    return [
        name
        for name, module in model.named_modules()
        for kind in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        for hook in kind.values()
        if hook.__module__.startswith("ercr")
    ]


def snapshot(model):
    return (
        hooks(model),
        model.training,
        {name: (p.requires_grad, p.dtype) for name, p in model.named_parameters()},
        copy.deepcopy(model.generation_config.to_dict()),
        torch.get_rng_state().sum().item(),
    )


@sweep
def test_the_model_is_left_as_it_was_also_after_an_error(load, picture, family, monkeypatch):
    explainer = load(family)
    model = explainer.adapter.model
    before = snapshot(model)
    explainer.explain(picture, PROMPT, max_new_tokens=3, views="interpolate", layer=1)
    assert snapshot(model) == before
    norm = type(explainer.adapter.final_norm)
    calls = []

    def breaks(self, *args, **kwargs):
        calls.append(1)
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(norm, "forward", breaks)
    for act in (
        lambda: explainer.explain(picture, PROMPT, max_new_tokens=3, layer=1),
        lambda: explainer.explain(picture, PROMPT, answer="a dog", views="interpolate"),
        lambda: list(explainer.stream(picture, PROMPT, max_new_tokens=3)),
    ):
        with pytest.raises(RuntimeError, match="on purpose"):
            act()
    assert len(calls) == 3
    assert snapshot(model) == before


@sweep
def test_vocabulary_wide_logits_are_never_computed_at_visual_positions(load, picture, family):
    explainer = load(family)
    head, rows = explainer.adapter.head, []
    handle = head.register_forward_hook(lambda module, args, out: rows.append(out.shape[:-1].numel()))
    try:
        explanation = explainer.explain(picture, PROMPT, max_new_tokens=4)
    finally:
        handle.remove()
    assert max(rows) <= len(explanation.text_tokens)
    assert max(rows) < explanation.geometry.tokens


def test_a_loaded_model_is_enough_and_a_nameless_one_asks_for_its_processor(checkpoint, picture):
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(checkpoint("qwen2_vl"))
    assert ercr.Explainer(model).explain(picture, PROMPT, answer="a dog").text == "a dog"
    config = copy.deepcopy(model.config)
    config._name_or_path = ""
    with pytest.raises(InputError, match="pass its processor"):
        ercr.Explainer(AutoModelForImageTextToText.from_config(config))


@pytest.mark.parametrize("method", ["ercr", "attention"])
def test_an_image_token_in_an_answer_is_refused_in_one_sentence(load, picture, method):
    with pytest.raises(InputError, match="image token"):
        load("llava").explain(picture, PROMPT, answer="a <image> dog", method=method)


def test_nan_states_are_named(load, picture, monkeypatch):
    explainer = load("llava")
    norm = explainer.adapter.final_norm
    original = type(norm).forward
    monkeypatch.setattr(type(norm), "forward", lambda self, x: original(self, x) * float("nan"))
    with pytest.raises(ModelStateError, match="NaN"):
        explainer.explain(picture, PROMPT, answer="a dog")


def test_other_models_are_refused_with_the_families_named():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=20, n_positions=8))
    with pytest.raises(UnsupportedModel, match=r"InternVL, LLaVA-1.5, Qwen2-VL.*AutoModelForImageTextToText"):
        ercr.Explainer(model, (None, None))


@pytest.mark.parametrize(
    ("prompt", "answer", "says"),
    [
        ("", None, "prompt is empty"),
        ("  \n", None, "prompt is empty"),
        ([], None, "conversation is empty"),
        ([{"role": "user", "content": ""}], None, "no text"),
        ([{"role": "robot", "content": "x"}], None, "role"),
        ([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], None, "end with a user"),
        (
            [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "x"}]}],
            None,
            "2 places without a picture",
        ),
        ("look at <image> here", None, "reads as an image"),
        (PROMPT, "", "answer to explain is empty"),
        (PROMPT, ["a"], "must be text"),
        (5, None, "text or a list of messages"),
        ([{"role": "user", "content": ["hi"]}], None, "content must be text"),
    ],
)
def test_bad_prompts_and_answers_get_one_clear_sentence(load, picture, prompt, answer, says):
    with pytest.raises(InputError, match=says):
        load("llava").explain(picture, prompt, answer=answer)


def test_images_of_extreme_shape_work_or_say_why_not(load):
    from PIL import Image

    dot, ribbon = Image.new("RGB", (1, 1), "red"), Image.new("RGB", (20_000, 50), "blue")
    for family in FAMILIES:
        assert np.isfinite(load(family).explain(dot, PROMPT, answer="a dog").maps).all()
    with pytest.raises(ImageError, match="200:1"):
        load("qwen2_vl").explain(ribbon, PROMPT, answer="a dog")
    assert np.isfinite(load("qwen2_vl").explain(ribbon.resize((1200, 6)), PROMPT, answer="a dog").maps).all()
    for family in ("llava", "internvl"):
        assert np.isfinite(load(family).explain(ribbon, PROMPT, answer="a dog").maps).all()
    # the official padding makes a square of the longer side, so a shorter ribbon is enough here
    assert np.isfinite(load("llava_pad").explain(ribbon.resize((4000, 10)), PROMPT, answer="a dog").maps).all()


def test_a_layer_outside_the_model_is_refused(load, picture):
    with pytest.raises(InputError, match="layer must lie between -4 and 3"):
        load("llava").explain(picture, PROMPT, answer="a dog", layer=9)
    with pytest.raises(InputError, match="layer must lie between -3 and 2"):
        load("llava").explain(picture, PROMPT, answer="a dog", method="attention", layer=9)


def test_options_that_would_mix_answers_up_are_refused(load, picture, monkeypatch):
    explainer = load("llava")
    with pytest.raises(InputError, match="2 prompts and answers"):
        explainer.explain_batch([picture, picture], PROMPT, answers=["a dog"])
    with pytest.raises(InputError, match="num_return_sequences"):
        explainer.explain(picture, PROMPT, generation={"num_return_sequences": 2, "do_sample": True})

    def several_at_once(streamer, input_ids, **options):
        streamer.put(input_ids)
        streamer.put(torch.tensor([5, 6]))

    with monkeypatch.context() as patch:
        patch.setattr(explainer.adapter.model, "generate", several_at_once)
        with pytest.raises(InputError, match="Assisted decoding"):
            list(explainer.stream(picture, PROMPT, generation={"do_sample": True}))
    sampled = {"do_sample": True, "suppress_tokens": [explainer.adapter.image_token_id]}
    both = explainer.explain_all(picture, PROMPT, methods=["cam", "cam:layer=1"], max_new_tokens=5, generation=sampled)
    assert both[0].text == both[1].text


def test_half_precision_models_rank_by_float32_logits(checkpoint, picture):
    explainer = ercr.Explainer.from_pretrained(str(checkpoint("llava")), dtype="bfloat16")
    adapter = explainer.adapter
    prepared = adapter.prepare(picture, as_messages(PROMPT))
    sample = TraceRequest(picture, prepared, adapter.encode_answer("a dog"))
    trace = trace_samples(adapter, [sample], Needs(), {})[0]
    precise = trace.text.emit_states.float() @ adapter.head.weight.float().T
    expected = [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:50] for row in precise.tolist()]
    assert trace.text.top_ids.tolist() == expected


def test_image_tokens_without_a_cell_are_told_by_the_geometry(load, picture):
    """As in LLaVA-NeXT, where every row of cells ends in a token for the line break, in views as well."""
    plain = load("llava").adapter

    class WithBreaks(type(plain)):
        def expand(self, geometry):
            rows, columns = geometry.grid
            return self.image_token * (columns + 1) * rows

        def visual_positions(self, ids, geometry):
            own = (ids == self.image_token_id).nonzero()[:, 0]
            return own.view(geometry.grid[0], -1)[:, :-1].flatten()

    adapter = WithBreaks(plain.model, plain.tokenizer, plain.image_processor, plain.chat_template)
    anchor = adapter.prepare(picture, as_messages(PROMPT))
    for shown in (anchor, adapter.view(picture, anchor, 0.5, "interpolate")):
        rows, columns = shown.geometry.grid
        assert len(shown.visual) == rows * columns
        steps = shown.visual.diff()
        assert set(steps[columns - 1 :: columns].tolist()) <= {2}
        assert int((shown.input_ids == adapter.image_token_id).sum()) == rows * (columns + 1)
