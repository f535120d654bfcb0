"""Methods that use the replay, against the model's own outputs, plain NumPy and reference packages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ercr
from ercr.models.chat import as_messages
from ercr.trace import Needs, TraceRequest, trace_samples
from tests.conftest import FAMILIES
from tests.models.test_conformance import snapshot

PROMPT, ANSWER = "Describe this image.", "a dog and two umbrellas"
INSIDE = sorted(name for name, method in ercr.methods.methods().items() if method.needs(method.settings()).replay)


@pytest.fixture(scope="module")
def inside(checkpoint, picture):
    """Per family: a float64 model with eager attention, its own attentions, states and gradients, and our trace."""
    made = {}

    def make(family):
        if family not in made:
            made[family] = Case(checkpoint(family), picture)
        return made[family]

    return make


class Case:
    def __init__(self, folder, picture):
        self.explainer = ercr.Explainer.from_pretrained(str(folder), dtype="float64", attn_implementation="eager")
        self.adapter = self.explainer.adapter
        prepared = self.adapter.prepare(picture, as_messages(PROMPT))
        answer = self.adapter.encode_answer(ANSWER)
        self.trace = trace_samples(self.adapter, [TraceRequest(picture, prepared, answer)], Needs(replay=True), {})[0]
        self.rows = slice(0, len(self.trace.rows))
        self.visual, self.emitting = self.trace.replay.visual.numpy(), self.trace.replay.emitting.numpy()
        full = prepared.with_answer(answer)
        first = self.adapter.blocks[0].register_forward_pre_hook(
            lambda m, a, k: ((a[0].requires_grad_(), *a[1:]), k) if a else None, with_kwargs=True
        )
        with torch.enable_grad():
            out = self.adapter.model(
                **self.adapter.collate([full], 0), output_attentions=True, output_hidden_states=True
            )
            first.remove()
            self.logits = out.logits[0][self.trace.replay.emitting, self.trace.ids[self.trace.rows]]
            self.attentions = [a[0].detach().numpy() for a in out.attentions]
            self.states = [h[0].detach().numpy() for h in out.hidden_states]
            # one backward pass per token: slow and plain
            self.gradients = [
                [g[0].numpy() for g in torch.autograd.grad(y, out.attentions, retain_graph=True)] for y in self.logits
            ]

    def values(self, method, **switches):
        chosen, settings = ercr.methods.resolve(method, **switches)
        with torch.no_grad():
            return chosen.evidence(self.trace, self.rows, settings).stages["raw"].flatten(1).numpy()

    def as_map(self, values):
        return self.trace.geometry.stitch(torch.from_numpy(np.asarray(values)).float()).flatten(1).numpy()


families = pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl_single", "internvl35"])


@families
def test_recomputed_attention_rows_equal_the_models_own(inside, family):
    case = inside(family)
    replay = case.trace.replay
    everywhere = torch.arange(replay.length)
    for layer, block in replay.attentions(range(replay.depth)).items():
        np.testing.assert_allclose(block.probabilities(everywhere).numpy(), case.attentions[layer], atol=1e-6)
    expected = case.attentions[-1].mean(0)[case.emitting][:, case.visual]
    np.testing.assert_allclose(case.values("attention"), case.as_map(expected), atol=1e-6)
    expected = case.attentions[0].mean(0)[case.emitting][:, case.visual]
    np.testing.assert_allclose(case.values("attention", layer=0), case.as_map(expected), atol=1e-6)


@families
def test_rollouts_and_relevancy_equal_plain_matrix_products(inside, family):
    case = inside(family)
    length = case.attentions[0].shape[-1]
    eye = np.eye(length)
    rollout = eye
    for attention in case.attentions:
        mixed = attention.mean(0) + eye
        rollout = mixed / mixed.sum(-1, keepdims=True) @ rollout
    expected = rollout[case.emitting][:, case.visual]
    np.testing.assert_allclose(case.values("attention_rollout"), case.as_map(expected), atol=1e-6)

    weighted, relevant = [], []
    for row, gradients in zip(case.emitting, case.gradients, strict=True):
        product, relevancy = eye, eye
        for attention, gradient in zip(case.attentions, gradients, strict=True):
            flow = np.maximum((attention * gradient).mean(0), 0)
            flat = flow.ravel()
            flat[np.argsort(flat, kind="stable")[: int(flat.size * 0.9)]] = 0
            mixed = (flow + eye) / 2
            product = mixed / mixed.sum(-1, keepdims=True) @ product
            relevancy = relevancy + np.maximum(attention * gradient, 0).mean(0) @ relevancy
        weighted.append(product[row, case.visual])
        gained = (relevancy - eye)[row]
        relevant.append(gained[case.visual] / gained.sum() if gained.sum() > 0 else gained[case.visual])
    np.testing.assert_allclose(case.values("grad_rollout"), case.as_map(weighted), atol=1e-6)
    np.testing.assert_allclose(case.values("lvlm_interpret"), case.as_map(relevant), atol=1e-6)


@families
def test_similarity_and_surgery_equal_plain_numpy(inside, family):
    case = inside(family)
    states = case.states[-1]
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    own = case.trace.rows.numpy()
    np.testing.assert_allclose(case.values("vl_interpret"), case.as_map(unit[own] @ unit[case.visual].T), atol=1e-5)

    adapter = case.adapter
    stream = case.states[0].copy()  # fewer than six blocks: the second path starts at the embeddings
    for layer, block in enumerate(adapter.blocks):
        with torch.no_grad():
            normed = block.input_layernorm(torch.from_numpy(case.states[layer]))
            value = block.self_attn.v_proj(normed).numpy()
        config = adapter.config.get_text_config()
        groups, heads = config.num_key_value_heads, config.num_attention_heads
        width = value.shape[-1] // groups
        out = np.zeros((len(stream), heads * width))
        for head in range(heads):
            v = value[:, (head // (heads // groups)) * width :][:, :width]
            scores = np.where(np.tri(len(v), dtype=bool), v @ v.T / np.sqrt(width), -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head * width : (head + 1) * width] = weights / weights.sum(-1, keepdims=True) @ v
        stream = stream + out @ block.self_attn.o_proj.weight.detach().numpy().T
    with torch.no_grad():
        final = adapter.final_norm(torch.from_numpy(stream)).numpy()[case.visual]
    rows = adapter.head.weight.detach().numpy()[case.trace.ids[case.trace.rows]]
    expected = np.clip(rows @ final.T, 0, None)
    np.testing.assert_allclose(case.values("architecture_surgery"), case.as_map(expected), atol=2e-5)


@families
def test_tapped_gradients_equal_a_plain_backward_pass(inside, family):
    case = inside(family)
    replay, adapter = case.trace.replay, case.adapter
    places = {"attention": (-1, "input_layernorm"), "mlp": (adapter.mlp_cam_block, "post_attention_layernorm")}
    for place, (layer, name) in places.items():
        kept = []
        entry = adapter.blocks[0].register_forward_pre_hook(
            lambda m, a, k: ((a[0].requires_grad_(), *a[1:]), k), with_kwargs=True
        )
        tap = getattr(adapter.blocks[layer], name).register_forward_hook(lambda m, a, out, kept=kept: kept.append(out))
        with torch.enable_grad():
            final = adapter.model(**adapter.collate([replay._sample], 0)).logits[0]
            chosen = final[replay.emitting, case.trace.ids[case.trace.rows]]
            expected = [torch.autograd.grad(y, kept[0], retain_graph=True)[0][0, replay.visual] for y in chosen]
        entry.remove()
        tap.remove()
        activations, gradients = replay.tapped_gradients(layer, place, case.rows)
        np.testing.assert_allclose(activations.numpy(), kept[0][0, replay.visual].detach().numpy(), atol=1e-5)
        np.testing.assert_allclose(gradients.numpy(), torch.stack(expected).numpy(), atol=1e-5)


def test_the_last_blocks_output_has_no_gradient_at_visual_tokens_but_its_norm_has(inside):
    """Fact 2: hooking the last block's output, as image models are hooked, gives exactly zero."""
    case = inside("llava")
    kept = []
    block = case.adapter.blocks[-1]
    handle = block.register_forward_hook(lambda m, a, out: kept.append(out.detach().requires_grad_()) or kept[0])
    try:
        with torch.enable_grad():
            replay = case.trace.replay
            full = case.adapter.collate([replay._sample], 0)
            logits = case.adapter.model(**full).logits[0, replay.emitting[-1]]
            naive = torch.autograd.grad(logits.max(), kept[0])[0][0, replay.visual]
    finally:
        handle.remove()
    assert naive.abs().max() == 0
    _, ours = case.trace.replay.tapped_gradients(-1, "attention", case.rows)
    assert ours[-1].abs().max() > 0


@families
@pytest.mark.parametrize("rule", ["attn", "cp"])
def test_relevance_rules_keep_the_forward_pass_and_conserve_relevance(inside, family, rule):
    case = inside(family)
    replay = case.trace.replay
    plain = replay.states()
    from ercr.trace.lrp import apply_rule

    own = case.adapter.on_replica()
    apply_rule(own, rule)
    with torch.no_grad():
        ruled = own.read(own.decoder_inputs(own.pack([replay._sample], 0)))[0]
    np.testing.assert_allclose(ruled.numpy(), plain.numpy(), atol=1e-5)
    if (
        rule == "cp" and family == "llava"
    ):  # no biases: everything is linear once weights, norms and gates are constants
        replay_visual = replay.visual
        try:
            replay.visual = torch.arange(replay.length)
            total = replay.relevance(rule, case.rows).sum(-1)
        finally:
            replay.visual = replay_visual
        np.testing.assert_allclose(total.numpy(), case.logits.detach().numpy(), rtol=0.01)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", INSIDE)
def test_the_model_is_left_as_it_was_also_when_a_method_raises(load, picture, family, method, monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    explainer = load(family)
    model = explainer.adapter.model

    def state():
        forwards = [name for name, module in model.named_modules() if "forward" in vars(module)]
        grads = [name for name, p in model.named_parameters() if p.grad is not None]
        return snapshot(model), forwards, grads, dict(ALL_ATTENTION_FUNCTIONS._local_mapping), torch.is_grad_enabled()

    before = state()
    explainer.explain(picture, PROMPT, answer=ANSWER, method=method)
    assert state() == before
    head = type(explainer.adapter.blocks[-1].self_attn)
    original, calls = head.forward, []

    def breaks(self, *args, **kwargs):
        calls.append(1)
        if len(calls) > len(explainer.adapter.blocks):
            raise RuntimeError("broken on purpose")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(head, "forward", breaks)
    with pytest.raises(RuntimeError, match="on purpose"):
        explainer.explain(picture, PROMPT, answer=ANSWER, method=method)
    assert state() == before


@pytest.mark.parametrize("method", INSIDE)
def test_batches_turns_and_generated_answers_work(load, picture, method):
    explainer = load("internvl_single")
    both = explainer.explain_batch(
        [picture, picture.resize((60, 90))], PROMPT, answers=[ANSWER, "a cat"], method=method
    )
    alone = explainer.explain(picture, PROMPT, answer=ANSWER, method=method)
    np.testing.assert_allclose(both[0].maps, alone.maps, atol=1e-4)
    turns = [
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": "a dog"},
        {"role": "user", "content": "And near it?"},
    ]
    talk = explainer.explain(picture, turns, method=method, max_new_tokens=3)
    assert np.isfinite(talk.maps).all()
    with pytest.raises(ercr.ErcrError, match="cannot stream"):
        explainer.stream(picture, PROMPT, method=method)


def test_a_sliding_window_hides_what_lies_before_it():
    from ercr.trace.attention import Attention

    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(4, 9, 8, generator=generator), torch.randn(2, 9, 8, generator=generator)
    rows = Attention(None, query, key, key, 0.3, window=3).probabilities(torch.tensor([1, 7]))
    assert (rows[:, 0, 2:] == 0).all()
    assert (rows[:, 1, :5] == 0).all()
    assert (rows[:, 1, 5:8] > 0).all()
    assert torch.allclose(rows.sum(-1), torch.ones(4, 2))


def test_few_rows_at_a_time_give_the_same(inside, monkeypatch):
    from ercr.trace import attention, replay

    case = inside("qwen2_vl")
    names = ("attention", "attention_rollout", "architecture_surgery", "grad_rollout", "attn_lrp", "layer_cam")
    whole = {name: case.values(name) for name in names}
    monkeypatch.setattr(attention, "_CHUNK_ENTRIES", 4 * 200 * 7)
    monkeypatch.setattr(replay, "_BACKWARD_BYTES", 1)
    for name in names:
        np.testing.assert_allclose(case.values(name), whole[name], atol=1e-6)
