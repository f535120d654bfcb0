"""A trace equals one plain pass over prompt and answer, however the answer was generated."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ercr.errors import InputError
from ercr.models.chat import as_messages
from ercr.models.inputs import Prepared
from ercr.trace import Needs, TraceRequest, record, trace_samples
from ercr.trace.speaking import Said
from ercr.trace.tokens import cut_answer, pad_token

ANSWERS = ["a dog", "a photo of a dog and a cat on a sofa .", "red"]
PROMPTS = ["Describe this image.", "What is in the picture?", "x"]
FAMILY = "llava"


@pytest.fixture(scope="module")
def adapter(load):
    return load(FAMILY, "float64").adapter


@pytest.fixture(scope="module")
def prepared(adapter, picture):
    return [adapter.prepare(picture.rotate(90 * i), as_messages(text)) for i, text in enumerate(PROMPTS)]


def full_pass(adapter, sample):
    """Every layer's states by the model's public flag, and the whole vocabulary's logits."""
    with torch.no_grad():
        out = adapter.model(**adapter.collate([sample], 0), output_hidden_states=True)
    return [states[0] for states in out.hidden_states], out.logits[0]


def agree(adapter, trace, sample, answer, layer=-1, top=50):
    """A trace against the full pass over the same prompt and answer."""
    whole = sample.with_answer(answer)
    layers, logits = full_pass(adapter, whole)
    rows = torch.cat([sample.prompt, torch.arange(len(sample.input_ids), len(whole.input_ids))])
    assert torch.equal(trace.ids, whole.input_ids)
    assert torch.equal(trace.rows, rows)
    assert (trace.input_length, trace.prompts) == (len(sample.input_ids), len(sample.prompt))
    text, ids = trace.text, whole.input_ids[rows]
    assert torch.equal(text.targets, ids)
    specials = set(adapter.tokenizer.all_special_ids)
    assert text.context.tolist() == [int(i) not in specials for i in ids]
    read = [int(at) if at < len(sample.input_ids) else int(at) - 1 for at in rows]
    np.testing.assert_allclose(text.emit_states, layers[-1][rows - 1], atol=1e-9)
    np.testing.assert_allclose(text.read_states, layers[-1][read], atol=1e-9)
    np.testing.assert_allclose(text.unembedding, adapter.head.weight.detach()[ids], atol=0)
    logs = logits[rows - 1].log_softmax(-1)
    np.testing.assert_allclose(text.log_probabilities, logs[range(len(ids)), ids], atol=1e-5)
    expected = logs.sort(dim=-1, descending=True).values[:, :top].exp()
    np.testing.assert_allclose(text.top_probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(logs.gather(1, text.top_ids).exp(), expected, atol=1e-5)
    at = layers[layer] if layer == -1 else adapter.final_norm(layers[layer]).detach()
    np.testing.assert_allclose(trace.anchor.states, at[sample.visual], atol=1e-9)
    assert trace.anchor.scale == 1.0
    assert trace.geometry == sample.geometry
    assert all(bool(flag) for flag in trace.finite.values())


@pytest.mark.parametrize("layer", [-1, 0, 1, -2])
def test_given_answers_of_different_lengths_are_read_in_one_pass(adapter, picture, prepared, layer):
    answers = [adapter.encode_answer(text) for text in ANSWERS]
    samples = [TraceRequest(picture, p, a) for p, a in zip(prepared, answers, strict=True)]
    traces = trace_samples(adapter, samples, Needs(layer=layer, top=7), {})
    for trace, sample, answer in zip(traces, prepared, answers, strict=True):
        agree(adapter, trace, sample, answer, layer, top=7)
        assert trace.inside is None
    assert traces[0].vocabulary == adapter.head.out_features
    assert traces[0].spell(answers[0]) == adapter.tokenizer.tokenize(ANSWERS[0])
    some = torch.tensor([3, 9])
    np.testing.assert_allclose(traces[0].unembed(some).detach(), adapter.head.weight.detach()[some])
    states = torch.randn(2, adapter.head.in_features, dtype=torch.float64)
    assert torch.equal(traces[0].argmax(states), (states @ adapter.head.weight.T).argmax(-1))


GENERATIONS = [
    {},  # greedy, by the library's own loop
    {"min_new_tokens": 2},  # by the model's own generate
    {"num_beams": 3, "min_new_tokens": 3},  # which passes over other positions: the answers are read again
    {"num_beams": 3},
]


@pytest.mark.parametrize("layer", [-1, 1])
@pytest.mark.parametrize("generation", GENERATIONS, ids=str)
def test_states_recorded_while_generating_are_those_of_the_finished_answers(
    adapter, prepared, picture, generation, layer
):
    samples = [TraceRequest(picture, p) for p in prepared]
    options = {"max_new_tokens": 5, "do_sample": False, "suppress_tokens": [adapter.image_token_id], **generation}
    if not generation:
        del options["suppress_tokens"]
    before = hooks(adapter)
    traces = trace_samples(adapter, samples, Needs(layer=layer), options)
    assert hooks(adapter) == before
    for trace, sample in zip(traces, prepared, strict=True):
        answer = trace.ids[trace.input_length :]
        assert 2 <= len(answer) <= 5
        agree(adapter, trace, sample, answer, layer)
    # the words are those of the model's own generate
    inputs = adapter.collate(prepared, 0)
    spoken = adapter.model.generate(**inputs, **options, pad_token_id=0)[:, inputs["input_ids"].shape[1] :]
    for trace, row in zip(traces, spoken, strict=True):
        answer = trace.ids[trace.input_length :]
        assert torch.equal(answer, row[: len(answer)])


@pytest.mark.parametrize(
    ("generation", "again"), [({"min_new_tokens": 2}, 0), ({"num_beams": 3, "min_new_tokens": 3}, 1)]
)
def test_answers_are_read_again_only_if_generate_ran_other_positions(
    adapter, prepared, picture, monkeypatch, generation, again
):
    read, passes = record.read_answers, []
    monkeypatch.setattr(record, "read_answers", lambda *given: passes.append(1) or read(*given))
    options = {"max_new_tokens": 4, "do_sample": False, "suppress_tokens": [adapter.image_token_id], **generation}
    trace_samples(adapter, [TraceRequest(picture, p) for p in prepared], Needs(), options)
    assert len(passes) == again


def hooks(adapter):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in adapter.model.modules())


@pytest.mark.parametrize("plain", [True, False])
def test_an_answer_keeps_its_end_token_and_nothing_after_it(adapter, prepared, picture, plain):
    samples = [TraceRequest(picture, p) for p in prepared[:2]]
    options = {"max_new_tokens": 6, "do_sample": False}
    free = [trace.ids[trace.input_length :].tolist() for trace in trace_samples(adapter, samples, Needs(), options)]
    end = free[0][2]
    options |= {"eos_token_id": end} if plain else {"eos_token_id": [end, 1], "renormalize_logits": True}
    for trace, said, sample in zip(trace_samples(adapter, samples, Needs(), options), free, prepared, strict=False):
        stop = said.index(end) + 1 if end in said else len(said)
        answer = trace.ids[trace.input_length :]
        assert answer.tolist() == said[:stop]
        agree(adapter, trace, sample, answer)


@given(st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(0, 5), max_size=2), st.booleans())
def test_answers_are_cut_after_their_first_end_token_or_before_padding(tokens, ends, single):
    given = ends[0] if single and ends else ends or None
    known = ends[:1] if single else ends
    expected = []
    for token in tokens:
        expected.append(token)
        if token in known:
            break
    else:
        while expected and expected[-1] == 0:
            expected.pop()
    assert cut_answer(torch.tensor(tokens, dtype=torch.long), given, 0).tolist() == expected


def test_padding_is_the_tokenizers_then_the_models_then_an_end_token():
    def named(tokenizer=None, generation=None, config=None, ends=None):
        return SimpleNamespace(
            tokenizer=SimpleNamespace(pad_token_id=tokenizer),
            model=SimpleNamespace(generation_config=SimpleNamespace(pad_token_id=generation, eos_token_id=ends)),
            config=SimpleNamespace(pad_token_id=config),
        )

    assert pad_token(named(0, 4, 5, 6)) == 0
    assert pad_token(named(None, 4, 5, 6)) == 4
    assert pad_token(named(None, None, 5, 6)) == 5
    assert pad_token(named(ends=[7, 8])) == 7
    assert pad_token(named(ends=6)) == 6
    assert pad_token(named()) == 0


@pytest.mark.parametrize("family", [FAMILY, "qwen2_vl", "internvl"])
def test_views_of_all_scales_share_a_pass_where_they_fit_and_are_the_same_otherwise(load, picture, monkeypatch, family):
    adapter = load(family, "float64").adapter
    pictures = [picture, picture.rotate(90)]
    samples = [TraceRequest(image, adapter.prepare(image, as_messages("x")), torch.tensor([20])) for image in pictures]
    passes, read = [], type(adapter).read

    def counted(self, inputs, *rest):
        passes.append(len(inputs["inputs_embeds"]))
        return read(self, inputs, *rest)

    monkeypatch.setattr(type(adapter), "read", counted)
    found = []
    for together in (record._MAX_SHARED_TOKENS, 0):
        monkeypatch.setattr(record, "_MAX_SHARED_TOKENS", together)
        passes.clear()
        traces = trace_samples(adapter, samples, Needs(scales=(0.75, 1.0, 0.5)), {})
        found.append([view for trace in traces for view in trace.views])
        shared = together and family != "internvl"  # whose views differ in their number of tiles
        if family != "internvl":
            assert passes == ([2, 4] if shared else [2, 2, 2])
    assert [view.scale for view in found[0]] == [1.0, 0.5, 0.75] * 2
    for one, other in zip(*found, strict=True):
        assert one.geometry == other.geometry
        np.testing.assert_allclose(one.states, other.states, atol=1e-9)
    for sample, views in zip(samples, (found[0][:3], found[0][3:]), strict=True):
        for view in views[1:]:
            shown = adapter.view(sample.media, sample.prepared, view.scale, "pad")
            tail = sample.prepared.input_ids[int(sample.prepared.visual[-1]) + 1 :]
            with adapter.view_context("pad"):
                layers, _ = full_pass(adapter, shown.with_answer(tail))
            assert view.geometry == shown.geometry
            np.testing.assert_allclose(view.states, layers[-1][shown.visual], atol=1e-9)


def test_views_fit_into_a_pass_by_their_padded_length_and_the_shape_of_their_pictures(monkeypatch):
    def view(length, side=4):
        return Prepared(torch.zeros(length), {"pixel_values": torch.zeros(1, 3, side, side)}, None, None, None)

    monkeypatch.setattr(record, "_MAX_SHARED_TOKENS", 40)
    monkeypatch.setattr(record, "_MAX_PACKED_TOKENS", 27)
    assert record._fit_together([[view(10), view(3)], [view(10), view(3)]], packed=False)
    assert not record._fit_together([[view(10), view(3)], [view(11), view(3)]], packed=False)
    assert record._fit_together([[view(10), view(3)], [view(11), view(3)]], packed=True)
    assert not record._fit_together([[view(10), view(3)], [view(12), view(3)]], packed=True)
    for packed in (False, True):
        assert not record._fit_together([[view(4)], [view(4, 5)]], packed)
        assert not record._fit_together([], packed)
        assert not record._fit_together([[]], packed)


@pytest.mark.parametrize("answer", [None, "a dog"])
def test_a_second_pass_uses_the_recorded_embeddings_and_gives_the_same_states(adapter, prepared, picture, answer):
    given = None if answer is None else adapter.encode_answer(answer)
    samples = [TraceRequest(picture, p, given) for p in prepared]
    needs = Needs(replay=True)
    for trace in trace_samples(adapter, samples, needs, {"max_new_tokens": 4, "do_sample": False}):
        states = trace.replay.states()
        np.testing.assert_allclose(states[trace.rows - 1], trace.text.emit_states, atol=1e-9)
        assert len(states) in (len(trace.ids), len(trace.ids) - 1)


def test_an_answer_with_an_image_token_is_refused(adapter, prepared, picture):
    answer = torch.tensor([5, adapter.image_token_id])
    with pytest.raises(InputError, match="image token"):
        trace_samples(adapter, [TraceRequest(picture, prepared[0], answer)], Needs(), {})


def test_errors_name_the_states_that_are_not_finite(adapter, prepared, picture, monkeypatch):
    weight = adapter.final_norm.weight.detach().clone()
    try:
        with torch.no_grad():
            adapter.final_norm.weight.fill_(torch.nan)
        trace = trace_samples(adapter, [TraceRequest(picture, prepared[0], torch.tensor([5]))], Needs((0.5, 1.0)), {})[
            0
        ]
    finally:
        with torch.no_grad():
            adapter.final_norm.weight.copy_(weight)
    assert {where: bool(fine) for where, fine in trace.finite.items()} == {
        "visual (scale 1)": False, "visual (scale 0.5)": False, "text": False,
    }  # fmt: skip


def test_compiled_passes_are_used_where_the_last_layer_is_read(adapter, prepared, picture, monkeypatch):
    """Its tokens and states are used directly; other layers need hooks."""
    asked = []

    class Captured:
        packs = True

        def speaking(self, rows, limit, ends):
            asked.append((rows, limit, ends))
            return self

        def begin(self, batch, names):
            answers = torch.tensor([5, 6, 2]), torch.tensor([7])
            states = torch.arange(2.0 * (batch.ids.shape[1] + 3) * 64, dtype=torch.float64).view(2, -1, 64)
            self.said = [
                Said(name, answer, states[name, batch.offsets[name] :][: lengths[name] + len(answer) - 1])
                for name, answer in zip(names, answers, strict=True)
            ]

        def advance(self):
            return [self.said.pop()]  # one after the other, the last one first

        def done(self, speaking):
            asked.append("done")

        def forward(self, batch):
            asked.append("forward")
            return torch.zeros(*batch.ids.shape, 64, dtype=torch.float64)

    lengths = [len(p.input_ids) for p in prepared[:2]]
    monkeypatch.setattr(adapter, "compiled", Captured(), raising=False)
    samples = [TraceRequest(picture, p) for p in prepared[:2]]
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": [2]}
    traces = trace_samples(adapter, samples, Needs(scales=(0.5, 1.0)), options)
    assert asked == [(2, 4, [2]), "done", "forward"]
    assert [trace.ids[trace.input_length :].tolist() for trace in traces] == [[5, 6, 2], [7]]
    longest = max(len(p.input_ids) for p in prepared[:2])
    for row, (trace, sample) in enumerate(zip(traces, prepared, strict=False)):
        first = (row * (longest + 3) + longest - len(sample.input_ids)) * 64.0
        assert trace.text.emit_states[:, 0].tolist() == [first + 64.0 * (int(at) - 1) for at in trace.rows]
        assert trace.anchor.states[:, 0].tolist() == [first + 64.0 * int(at) for at in sample.visual]
        assert (trace.views[1].states == 0).all()
    asked.clear()
    trace_samples(adapter, samples, Needs(layer=1), options)
    trace_samples(adapter, samples[:1], Needs(scales=(0.5, 1.0), kind="interpolate", layer=1), options)
    assert asked == []
