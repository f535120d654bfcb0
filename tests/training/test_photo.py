"""The recipe of the model for photographs: its decoder, its steps, what it exports, and what teaches it to name."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from training.photo import learnt
from training.photo import train as training
from training.photo.augment import normalise
from training.photo.data import Captions, Split
from training.photo.decoder import Decoder
from training.photo.erased import filling, left_over
from training.photo.export import BASE, checked_template, export
from training.photo.invented import evidence, invent
from training.photo.lens import Lens
from training.photo.model import PhotoModel, class_words, words_of_classes
from training.photo.polish import Spoken
from training.photo.prompts import CAPTION, before_ids, prompt_ids
from training.photo.reward import Cider, Reward
from training.photo.sayable import unsayable
from training.photo.speak import captions
from training.photo.state import load, save
from training.photo.words import learnt_words, plainest_first, shows, silent, told_by, undressed, vocabulary, words_of

import ercr
from tests import photo_parts

SIDE = 64
PLAN = training.Plan(minutes=1, batch=8)


@pytest.mark.parametrize("updated", [False, True])
def test_the_decoder_computes_what_transformers_computes(updated: bool) -> None:
    llama = photo_parts.llama(photo_parts.tokenizer())
    decoder = Decoder(llama, 4, torch.float32)
    merged = copy.deepcopy(llama)
    if updated:
        for value in decoder.outer.values():
            torch.nn.init.normal_(value, std=0.1)
        merge(merged, decoder)
    x = torch.randn(2, 11, 64)
    with torch.no_grad():
        expected = merged.model(inputs_embeds=x).last_hidden_state
        torch.testing.assert_close(decoder(x), expected, atol=2e-5, rtol=1e-5)
        apart = (llama.model(inputs_embeds=x).last_hidden_state - expected).abs().max()
    assert bool(apart > 0.01) is updated


def merge(llama: torch.nn.Module, decoder: Decoder) -> None:
    """Add 2 B A to the weights of a Llama; heads: 4 of queries, 2 of keys and of values, each 16 wide."""
    for i, layer in enumerate(llama.model.layers):
        change = {kind: (2 * decoder.outer[kind][i] @ decoder.inner[kind][i]).detach() for kind in decoder.inner}
        attention, mlp = layer.self_attn, layer.mlp
        attention.q_proj.weight.data += change["qkv"][:64]
        attention.k_proj.weight.data += change["qkv"][64:96]
        attention.v_proj.weight.data += change["qkv"][96:]
        attention.o_proj.weight.data += change["out"]
        mlp.gate_proj.weight.data += change["up"][:96]
        mlp.up_proj.weight.data += change["up"][96:]
        mlp.down_proj.weight.data += change["down"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A model before its first step, beside a few noisy pictures."""
    place = tmp_path_factory.mktemp("photo")
    torch.save(photo_parts.published().state_dict(), place / "lite0.pth")
    tok = photo_parts.tokenizer()
    llama = photo_parts.llama(tok)
    llama.save_pretrained(place / "base")
    told = [["A dog and a cat."], ["Two umbrellas near the sofa."], ["It is raining."]]
    split = Split(torch.randint(0, 256, (3, 3, SIDE, SIDE), dtype=torch.uint8), told)

    def fresh() -> PhotoModel:
        torch.manual_seed(5)
        words = vocabulary(told, words_of_classes(), tok, least=1)
        model = PhotoModel(llama, words, silent(tok, words.values()), torch.float32).eval()
        model.begin(place / "lite0.pth", tok)
        model.tower.config.image_size = SIDE
        return model

    return SimpleNamespace(place=place, tok=tok, llama=llama, split=split, fresh=fresh)


def two_steps(made: SimpleNamespace, model: PhotoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 30.0, 60.0])
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(training, "SIZES", (64, 96))
    monkeypatch.setattr(training, "_POOL", 20)
    plan = training.Plan(minutes=1, batch=6)
    said: list[str] = []
    training.train(model, made.split, Captions(made.split.captions, made.tok), before_ids(made.tok), plan, said.append)
    assert said[-1] == "2 steps in 1 min"


def test_steps_change_what_is_trained_and_nothing_else_and_a_state_can_be_taken_up(
    made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, untouched = made.fresh(), made.fresh()
    two_steps(made, model, monkeypatch)
    trained = re.compile(r"tower\.(neck|middle_norm|top_norm)|linear_[12]|decoder\.(inner|outer)")
    before = dict(untouched.named_parameters()) | dict(untouched.named_buffers())
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        assert torch.isfinite(value.float()).all()
        assert torch.equal(value, before[name]) is (trained.match(name) is None), name
    assert not load(untouched, tmp_path)
    save(model, tmp_path)
    assert load(untouched, tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, untouched.state_dict()[name]), name


def test_the_mean_of_several_states_can_be_taken_up(made: SimpleNamespace, tmp_path: Path) -> None:
    model = made.fresh()
    for folder, value in (("one", 1.0), ("two", 4.0)):
        torch.nn.init.constant_(model.linear_1.weight, value)
        save(model, tmp_path / folder)
    assert load(model, tmp_path / "one", tmp_path / "two")
    assert torch.equal(model.linear_1.weight, torch.full_like(model.linear_1.weight, 2.5))
    assert not load(model, tmp_path / "one", tmp_path / "none")


def test_the_exported_model_says_what_the_training_says(made: SimpleNamespace, tmp_path: Path) -> None:
    model = made.fresh()
    with torch.no_grad():
        for value in model.decoder.outer.values():
            value.normal_(0, 0.05)
        model.linear_1.weight[:, : model.tower.config.neck_size].normal_(0, 0.05)
        for value in model.state_dict().values():
            value.copy_(value.half() if value.dim() > 1 else value)  # as the folder keeps them
    base = BASE | {"hub": str(made.place / "base"), "package": "no_such_package"}
    export(model, made.llama.config, made.tok, tmp_path, [], base)
    assert checked_template(made.tok)
    prompt, end = prompt_ids(made.tok, CAPTION), made.tok.convert_tokens_to_ids("<|im_end|>")
    expected = captions(model, made.split.pictures, before_ids(made.tok), prompt, end, longest=12)
    assert len({tuple(ids) for ids in expected}) > 1  # the pictures matter
    explainer = ercr.Explainer.from_pretrained(str(tmp_path), dtype="float32")
    for picture, ids in zip(made.split.pictures, expected, strict=True):
        shown = Image.fromarray(picture.permute(1, 2, 0).numpy())
        told = explainer.explain(shown, CAPTION, method="cam", max_new_tokens=12)
        assert [token.id for token in told.text_tokens if token.kind == "answer"] == ids
    assert json.loads((tmp_path / "base.json").read_text())["scale"] == 2


def test_only_tokens_of_the_trainings_sentences_may_be_said(made: SimpleNamespace) -> None:
    kept = set(range(len(made.tok))) - set(unsayable([["A quokka, sleeping."]], made.tok))
    said = made.tok(["A quokka, sleeping.", "A close up of a zebra.", " accordion"], add_special_tokens=False).input_ids
    assert {made.tok.eos_token_id, *(token for ids in said for token in ids)} <= kept
    assert made.tok.convert_tokens_to_ids("<image>") not in kept


def test_captions_come_first_that_are_short_agreed_upon_and_silent_about_clothes() -> None:
    captions = [
        "A man in a blue shirt and jeans throws a ball.",
        "A sculpture of an angel.",
        "A man throws a ball.",
        "A tall man with some friends throws a ball over the fence of a garden on a sunny day.",
        "A man throws a red ball.",
    ]
    found = plainest_first(captions)
    assert sorted(found) == sorted(captions)
    assert set(found[:2]) == {captions[2], captions[4]}
    assert found.index(captions[0]) > 1


def test_what_captions_give_away_and_how_rare_it_is() -> None:
    assert {"boy", "boys", "dogs", "person", "people"} <= told_by(["A boy and his dog."])
    assert "person" not in told_by(["A dog runs."])
    found = [shows([text]) for text in ("A boy and his dog.", "Two dogs.", "A boat.")]
    assert found == ["people", "dogs", "neither"]


def test_captions_lose_what_people_wear_and_nothing_else() -> None:
    assert undressed("A man in a blue shirt and black jeans throws a ball.") == "A man throws a ball."
    assert undressed("A girl wearing a pink dress, a dog in the snow.") == "A girl, a dog in the snow."
    assert undressed("A dog in a field.") == "A dog in a field."


def test_a_picture_that_loses_its_people_is_told_of_by_what_stays() -> None:
    captions = ["A man sits on a bench.", "A person on a bench in the snow.", "A man in the snow.", "A man's bike."]
    assert left_over(captions) == "A bench and some snow."
    assert left_over(["A man.", "A man on a bike.", "A bike."]) is None


def test_cells_of_people_are_filled_with_cells_that_show_nobody() -> None:
    torch.manual_seed(0)
    people = torch.full((40, 36), -1.0)
    people[:, 10:16] = 9.0
    people[-1] = 9.0  # people everywhere
    without = torch.arange(40) >= 20
    source = filling(people, without)
    shown = people.gather(1, source)
    assert (shown[20:-1] < 0).all()  # the people are gone
    assert (shown[:20] == people[:20]).all()  # and stay where they should
    same = source == torch.arange(36)
    assert same[:20, 10:16].all()
    assert 0 < 1 - same[:20].float().mean() < 0.4  # but a patch beside them is filled now and then


def test_a_class_beside_imagenets_is_learnt_from_captions_of_whole_pictures(
    made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A red square stands for people; the classifier finds it, where it is, with logits of the usual size."""
    torch.manual_seed(0)
    pictures = torch.randint(60, 120, (48, 3, SIDE, SIDE), dtype=torch.uint8)
    for i in range(24):
        pictures[i, :, 8:40, 32:64] = torch.tensor([250, 10, 10], dtype=torch.uint8)[:, None, None]
    captions = [["A man.", "A man on a bike."] if i < 24 else ["A dog.", "A dog in a field."] for i in range(48)]
    monkeypatch.setattr(learnt, "_STEPS", 40)
    monkeypatch.setattr(learnt, "SIZES", (SIDE,))
    monkeypatch.setattr(learnt, "augment", lambda some, size: normalise(some.float()))
    tower = made.fresh().tower
    before = tower.classifier.weight[:1000].clone()
    learnt.learn(tower, pictures, captions)
    assert torch.equal(tower.classifier.weight[:1000], before)
    with torch.no_grad():
        people = tower.classifier(tower.maps(normalise(pictures.float()))[1])[..., 1000]
    best = people.amax(1)
    assert best[:24].min() > best[24:].max()
    assert best[:24].median() == pytest.approx(12, abs=0.01)
    assert best[24:].median() == pytest.approx(1, abs=0.01)


def test_features_of_invented_samples_have_people_only_where_the_sample_has(made: SimpleNamespace) -> None:
    split = Split(made.split.pictures, [["A man."], ["A boat."], ["Two girls."]])
    draw = training.Batches(made.fresh(), split, Captions(split.captions, made.tok), before_ids(made.tok), PLAN)
    assert draw.places == {True: [0, 2], False: [1]}
    keep = torch.cat([draw(SIDE)[-1] for _ in range(20)])
    assert 0.1 < (keep == 0).float().mean() < 0.7
    assert keep.max() <= 2


def test_invented_captions_name_their_classes_behind_the_right_article() -> None:
    words, chance = class_words(), random.Random(0)
    for _ in range(500):
        one = invent(words, chance)
        learnt = [number - 1000 for number in one.classes if number >= 1000]
        assert learnt == [i for i, (_, own) in enumerate(learnt_words()) if own & set(words_of([one.caption]))]
        known = [number for number in one.classes if number < 1000]
        assert len(one.classes) <= 3
        if len(known) == 3:  # a plate of several things
            assert "food" in one.caption
            continue
        assert 1 <= len(known) <= 2
        names = [words[number].removesuffix("y") for number in known]  # "strawberry" becomes "strawberries"
        assert all(re.search(rf"\b{name}", one.caption.lower()) for name in names), one
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]|\{", one.caption), one
        assert one.caption[0].isupper()
        assert one.caption.endswith(".")


def test_invented_evidence_is_one_spot_of_each_class() -> None:
    torch.manual_seed(0)
    grid, number = 12, 40
    classes = torch.tensor([[7, -1], [3, 30]] * 8)
    logits = evidence(classes, grid, number, 5)
    assert logits.shape == (16, grid * grid, number)
    cells = torch.cartesian_prod(torch.arange(grid), torch.arange(grid)).float()
    for row, own in zip(logits, classes.tolist(), strict=True):
        present = [one for one in own if one >= 0]
        others = [one for one in range(number) if one not in present]
        for one in present:
            best = int(row[:, one].argmax())
            assert row[best, one] > row[:, others].max()
            away = (cells - cells[best]).norm(dim=1)
            assert row[away <= 1, one].mean() > row[away > 6, one].mean() + 5
        assert row[:, others].mean(0).max() < 2  # -1 stands for no class, not for the first or last


def lens_losses(place: int | None, said: list[str], logits: torch.Tensor | None = None) -> tuple[float, float, float]:
    """Losses where cells 0 and 1 of nine spell the token `place`; a dog is the only class, token 7 names nothing."""
    lens = Lens({"cat": 2, "dog": 4, "sky": 6}, [["dog"]], torch.eye(8), [7])
    states = torch.zeros(1, 9, 8)
    if place is not None:
        states[0, :2, place] = 16
    seen = torch.full((1, 9, 1), 2.0) if logits is None else logits
    captions, named, quiet = lens(states, lens.labels([said]), seen, torch.ones(1), torch.ones(1))
    return float(captions), float(named), float(quiet)


def test_the_lens_wants_said_words_somewhere_unsaid_ones_nowhere_and_leaves_classes_alone() -> None:
    silent = lens_losses(None, ["sky"])[0]
    assert lens_losses(6, ["sky"])[0] < silent - 1
    assert lens_losses(2, ["sky"])[0] > silent + 1
    assert lens_losses(4, ["sky"])[0] == silent  # a dog that no caption mentions
    assert lens_losses(4, ["sky", "dog"])[0] < lens_losses(None, ["sky", "dog"])[0] - 1


def test_words_that_name_nothing_should_be_readable_nowhere() -> None:
    silence = lens_losses(None, [])[2]
    assert lens_losses(7, [])[2] > silence + 1
    assert lens_losses(4, [])[2] == silence


def test_the_word_of_a_class_is_wanted_where_the_classifier_sees_the_class() -> None:
    here = torch.full((1, 9, 1), 2.0)
    here[0, :2] = 20
    right, nowhere = (lens_losses(place, [], here)[1] for place in (4, None))
    elsewhere = lens_losses(4, [], here.flip(1))[1]
    assert right < nowhere < elsewhere


def test_captions_are_worth_what_the_reference_implementation_says() -> None:
    cider = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    told = [["A dog runs on the beach.", "A brown dog on sand."], ["Two men ride bikes.", "Men on bikes in a street."]]
    said = ["A brown dog runs on sand.", "A dog on a bike in a street."]
    split = lambda text: " ".join([*words_of([text]), "."])  # noqa: E731
    theirs = {i: [split(text) for text in group] for i, group in enumerate(told)}
    _, expected = cider.compute_score(theirs, {i: [split(text)] for i, text in enumerate(said)})
    found = Cider(told)
    assert [found(i, text) for i, text in enumerate(said)] == pytest.approx(list(expected))
    assert found(0, "A brown dog runs on a") < found(0, "A brown dog runs on sand.")


def test_things_that_nobody_mentions_cost_something() -> None:
    reward = Reward([["A boy and a dog.", "A dog."], ["A cat."]], ["cat", "dog", "man", "sofa"], untold=0.1)
    plain = reward.cider(0, "A man.")
    assert reward(0, "A man.") == plain  # a boy is there, so a person is
    assert reward(1, "A man.") < reward.cider(1, "A man.")
    assert reward(0, "A cat on a sofa.") == pytest.approx(reward.cider(0, "A cat on a sofa.") - 0.2)


def test_a_caption_that_is_worth_more_becomes_likelier(made: SimpleNamespace) -> None:
    model = made.fresh()
    draw = training.Batches(model, made.split, Captions(made.split.captions, made.tok), before_ids(made.tok), PLAN)
    spoken = Spoken(model, draw.captions, draw, Reward(made.split.captions, model.lens.place), batch=4)
    torch.manual_seed(0)
    worth, batches = spoken()
    assert len(batches) == 3  # four captions of each of three pictures
    assert math.isfinite(worth)
    optimizer = training.Learner(model, draw, training.Plan(1, rates=(1e-3, 1e-3))).optimizer
    pixels, front, ids, labels, start, _ = batches[0]
    worth = torch.tensor([1.0, -1.0, 0.0, 0.0])

    def likely() -> torch.Tensor:
        with torch.no_grad():
            each = [model.reinforce(pixels, front, ids, labels, start, one).total for one in torch.eye(4)]
        return -torch.stack(each)

    before = likely()
    model.reinforce(pixels, front, ids, labels, start, worth).total.backward()
    optimizer.step()
    change = likely() - before
    assert change[0] > change[1]
