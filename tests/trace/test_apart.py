"""Runs do not disturb each other, the model or the process: in threads, after interrupts, in forks, in any mode."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import ercr
from ercr.models.replica import replica
from tests.attacks.interrupts import interrupted
from tests.attacks.threads import attack, state
from tests.models.own_words import Checker, pictures, wrong

GRADIENTS = ("grad_rollout", "attn_lrp", "llava_cam")


def test_every_method_in_two_threads_gives_what_one_thread_gives(load, picture):
    explainers = [load("qwen2_vl"), load("llava")]
    adapter = explainers[0].adapter
    explainers.append(ercr.Explainer(adapter.model, (adapter.tokenizer, adapter.image_processor)))
    made = attack(explainers, [picture], tuple(ercr.methods.methods()), runs=48, tokens=3)
    assert made.errors == []
    assert not made.wrong


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "llava", "internvl"])
def test_half_precision_says_what_generate_says_alone_streamed_and_in_batches(checkpoint, family):
    explainer = ercr.Explainer.from_pretrained(str(checkpoint(family)), dtype="bfloat16")
    checker, images = Checker(explainer, 8), pictures(8, None)[4:]
    alone = [checker.one(image, maps=False) for image in images]
    checker.together(images, alone)
    assert checker.counts["answers"] == checker.counts["in batches"] == 4
    assert wrong(checker.counts) == 0, checker.counts


@pytest.mark.parametrize("method", ["ercr", "attention", "attn_lrp"])
def test_an_interrupt_at_any_moment_leaves_model_and_process_as_they_were(load, picture, method):
    explainer = load("qwen2_vl")

    def explain():
        return explainer.explain(picture, method=method, max_new_tokens=2).maps

    expected, before = explain(), state(explainer.adapter.model)
    assert interrupted(explain, 12, seed=1) > 6
    assert state(explainer.adapter.model) == before
    np.testing.assert_array_equal(explain(), expected)


@pytest.mark.parametrize("method", ["ercr", *GRADIENTS])
def test_inference_mode_around_it_changes_nothing(load, checkpoint, picture, method):
    expected = load("llava").explain(picture, method=method, max_new_tokens=3).maps
    with torch.inference_mode():
        loaded = ercr.Explainer.from_pretrained(str(checkpoint("llava")), dtype="float32")  # weights of that mode, too
        for explainer in (load("llava"), loaded):
            np.testing.assert_array_equal(explainer.explain(picture, method=method, max_new_tokens=3).maps, expected)
            assert torch.is_inference_mode_enabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_forked_while_another_thread_explains_can_explain(load, picture):
    explainer, stop = load("llava"), threading.Event()
    expected = explainer.explain(picture, max_new_tokens=3).maps

    def explain():
        while not stop.is_set():
            explainer.explain(picture, max_new_tokens=3)

    thread = threading.Thread(target=explain)
    thread.start()
    try:
        children = []
        for _ in range(3):
            child = os.fork()
            if not child:
                same = np.array_equal(explainer.explain(picture, max_new_tokens=3).maps, expected)
                os._exit(0 if same else 1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    finally:
        stop.set()
        thread.join()


def test_a_replica_shares_weights_and_nothing_else(load):
    model = load("internvl").adapter.model
    before, own = state(model), replica(model)
    assert all(p is q for p, q in zip(model.parameters(), own.parameters(), strict=True))
    assert not {id(m) for m in model.modules()} & {id(m) for m in own.modules()}
    for module in own.modules():
        module.register_forward_hook(lambda *_: None)
    assert state(model) == before


def test_a_replica_runs_through_its_own_offloading_hooks():
    hooks = pytest.importorskip("accelerate.hooks")
    layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    x = torch.ones(1, 2)
    expected = layers(x)
    for module in layers.modules():
        hooks.add_hook_to_module(module, hooks.AlignDevicesHook("cpu", io_same_device=True))
    own, seen = replica(layers), []
    own[1].register_forward_hook(lambda module, args, out: seen.append(module))
    assert torch.equal(own(x), expected)
    assert seen == [own[1]]
    assert own[1].forward.args[0] is own[1]


def test_attention_is_looked_up_as_before(load, picture):
    explainer = load("llava")
    before = dict(ALL_ATTENTION_FUNCTIONS)
    explainer.explain(picture, method="attention_rollout", max_new_tokens=2)
    assert dict(ALL_ATTENTION_FUNCTIONS) == before
