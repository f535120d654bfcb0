"""Training can be resumed, writes a folder that Hugging Face's own classes load, and checks what it reads."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from training.batches import Planner
from training.checkpoint import load_parts
from training.families import FAMILIES
from training.folder import LIMIT
from training.measure import Tally, otsu
from training.sprites import iconify_bank, names_of
from training.stages import STAGES, where
from training.symbolic import Symbols
from training.tokens import FIRST_SEED, noun_tokens, train_tokenizer
from transformers import AutoConfig, AutoModelForImageTextToText, AutoTokenizer

from ercr import Explainer
from ercr.datasets.scenes import NOUNS, counts
from ercr.datasets.scenes.dataset import plan
from ercr.datasets.scenes.pictograms import PICTOGRAMS, SIZE
from ercr.zoo import packaged
from training import scenes


def pack_sprites(path: Path, number: int) -> Path:
    """A sprites file of discs in random colours, for every trained style."""
    y, x = np.mgrid[:SIZE, :SIZE] - SIZE / 2
    alpha = np.where(y**2 + x**2 < (SIZE / 2 - 3) ** 2, 255, 0)
    colors = np.random.default_rng(0).integers(0, 256, (number, 1, 1, 3))
    rgb = np.broadcast_to(colors, (number, SIZE, SIZE, 3)) * (alpha[..., None] > 0)
    bank = np.concatenate([rgb, np.broadcast_to(alpha, (number, SIZE, SIZE))[..., None]], -1).astype(np.uint8)
    np.savez_compressed(path, **dict.fromkeys(scenes.TRAINED_STYLES, bank))
    return path


@pytest.fixture(scope="module")
def sprites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_sprites(tmp_path_factory.mktemp("sprites") / "sprites.npz", len(PICTOGRAMS))


@pytest.fixture(scope="module")
def tokenizer() -> object:
    return train_tokenizer(FAMILIES["llava"].speech)


def test_two_steps_write_a_folder_that_loads_and_speaks_and_a_second_run_goes_on(
    sprites: Path, tokenizer: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "train_tokenizer", lambda speech: tokenizer)
    monkeypatch.setattr(scenes, "load_sprites", cache(scenes.load_sprites))
    monkeypatch.setattr(scenes, "probe", lambda *given, **named: {})  # it only prints, and takes most of the time
    taken = count_steps(monkeypatch, most=2)
    command = ["scenes", "--family", "llava", "--sprites", str(sprites), "--out", str(tmp_path), "--device", "cpu"]
    command += ["--batch", "2", "--workers", "0", "--minutes", "1000", "--part", "1000"]

    monkeypatch.setattr(sys, "argv", command)
    scenes.main()
    kept = load_parts(tmp_path / "checkpoint", torch.device("cpu"))
    assert kept is not None
    assert (kept["step"], kept["part"], len(taken)) == (2, 0, 2)

    folder = tmp_path / "model"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LIMIT
    assert AutoConfig.from_pretrained(folder).model_type == "llava"
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    for name, weight in model.named_parameters():
        assert torch.isfinite(weight).all(), name
    assert len(AutoTokenizer.from_pretrained(folder)) == model.get_input_embeddings().num_embeddings
    said = Explainer.from_pretrained(str(folder), dtype="float32").explain(
        Image.new("RGB", (90, 60), "teal"), method="cam", max_new_tokens=4
    )
    assert said.maps.shape[1:] == (16, 16)

    monkeypatch.setattr(sys, "argv", [*command, "--resume"])
    scenes.main()
    more = load_parts(tmp_path / "checkpoint", torch.device("cpu"))
    assert more is not None
    assert (more["step"], more["part"], len(taken)) == (4, 1, 4)
    assert more["spent"] > kept["spent"]
    moved = [float((a - b).abs().max()) for a, b in zip(kept["master"], more["master"], strict=True)]
    assert 0 < max(moved) < 0.1  # it went on from the saved weights

    monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path / "more"), "--start", str(folder)])
    scenes.main()
    last = load_parts(tmp_path / "more" / "checkpoint", torch.device("cpu"))
    assert last is not None
    assert (last["stage"], last["step"]) == (len(STAGES) - 1, 2)
    moved = [float((a - b).abs().max()) for a, b in zip(more["master"], last["master"], strict=True)]
    assert sum(change > 0 for change in moved) > 0.9 * len(moved)  # the vision tower learns as well
    assert max(moved) < 0.1


def count_steps(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Lets every run take a given number of steps, whatever the clock says; returns a list that grows by step."""
    taken: list[int] = []
    advance, batches = scenes.Trainer.advance, Planner.__iter__

    def counted(self: scenes.Trainer, *given: object) -> object:
        taken.append(self.step)
        return advance(self, *given)

    def few(self: Planner) -> object:
        stream = batches(self)
        return (next(stream) for _ in range(most))

    monkeypatch.setattr(scenes.Trainer, "advance", counted)
    monkeypatch.setattr(Planner, "__iter__", few)
    return taken


def test_sprites_packed_for_another_list_are_refused(tmp_path: Path) -> None:
    stale = pack_sprites(tmp_path / "stale.npz", len(PICTOGRAMS) - 1)
    with pytest.raises(ValueError, match="packed for another list of nouns: pack it again"):
        scenes.load_sprites(stale, scenes.TRAINED_STYLES)


def test_seeds_below_the_first_are_never_trained_on(tokenizer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def noted(seed: int, **options: object) -> object:
        asked.append(seed)
        return plan(seed, **options)

    monkeypatch.setattr("training.batches.plan", noted)
    next(iter(Planner(tokenizer, FAMILIES["llava"].speech, 3, 3)))
    assert len(asked) >= 3
    assert min(asked) >= FIRST_SEED


def test_crowded_scenes_are_shown_more_often_than_they_are_drawn(tokenizer: object) -> None:
    first = [plan(FIRST_SEED + i)[0] for i in range(300)]
    drawn = np.mean([len({thing.noun for thing in one.objects}) < len(one.objects) for one in first])
    stream = iter(Planner(tokenizer, FAMILIES["llava"].speech, 100, 1))
    count = torch.cat([next(stream).count for _ in range(3)])
    assert float((count > 1).any(1).float().mean()) > 1.2 * drawn


def test_nouns_and_numbers_weigh_more_than_other_words(tokenizer: object) -> None:
    weights = Symbols(tokenizer, torch.device("cpu"), placed=False).emphasis(2.5)  # type: ignore[arg-type]
    assert len(weights) == len(tokenizer)  # type: ignore[arg-type]
    read = {tokenizer.decode(i): float(weights[i]) for i in range(len(weights))}  # type: ignore[attr-defined]
    assert read[" dog"] == read[" two"] == read["Two"] == 2.5
    assert read[" above"] == read["."] == read[" the"] == 1


def test_an_icon_set_is_read_by_its_names_and_filled_in_where_it_lacks_one(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    (_, first), (_, second) = PICTOGRAMS[5:7]
    body = '<path fill="#f00" d="M0 0h16v16H0z"/>'
    icons = {"icons": {"a-name": {"body": body}}, "aliases": {"Another": {"parent": "a-name"}}}
    (tmp_path / "icons.json").write_text(json.dumps(icons))
    (tmp_path / "chars.json").write_text(json.dumps({first: "a-name", second.replace("-fe0f", ""): "another"}))
    other = np.full((len(PICTOGRAMS), SIZE, SIZE, 4), 7, np.uint8)
    bank, missing = iconify_bank(tmp_path, names_of([tmp_path]), other)
    assert missing == len(PICTOGRAMS) - 2
    assert bank[5, SIZE // 2, SIZE // 2].tolist() == bank[6, SIZE // 2, SIZE // 2].tolist() == [255, 0, 0, 255]
    assert (np.delete(bank, [5, 6], 0) == 7).all()


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_grid_of_the_symbols_is_the_grid_of_the_image_processor(name: str) -> None:
    """What training takes for the visual tokens' places is what the packaged model's own adapter reports."""
    found = packaged().get(f"scenes-{name}")
    if found is None:
        pytest.skip("the model is not packaged")
    explainer = Explainer.from_pretrained(str(found), dtype="float32")
    for width, height in ((224, 224), (288, 176)):
        image = Image.new("RGB", (width, height))
        shown = explainer.explain(image, answer="A dog.", method="cam")
        assert shown.maps.shape[1:] == FAMILIES[name].cells(width, height)


def test_stages_follow_each_other_and_fill_the_whole_time() -> None:
    assert sum(stage.share for stage in STAGES) == pytest.approx(1)
    numbers = [where(i / 100)[0] for i in range(101)]
    assert numbers == sorted(numbers)
    assert set(numbers) == {0, 1, 2}
    assert where(1.0)[1] == pytest.approx(1)


def test_nouns_beyond_coco_are_split_by_the_tokenizer(tokenizer: object) -> None:
    lengths = [len(pieces) for pieces in noun_tokens(tokenizer)]
    assert min(lengths) == 1
    assert sum(length > 1 for length in lengths) >= 10


def test_measured_threshold_is_opencvs() -> None:
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    for _ in range(20):
        two = np.concatenate([rng.normal(60, 20, 300), rng.normal(170, 30, 100)]).clip(0, 255).astype(np.uint8)
        assert otsu(two) == int(cv2.threshold(two, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[0])


def test_tallies_add_up() -> None:
    one = Tally(scenes=2, right=3, named=4, there=4, found=3, overlap=[0.5], inside=[0.8], outside=[0.1])
    both = (one + Tally(scenes=2, right=1, named=1, there=4, found=1)).figures()
    assert both["noun_precision"] == 0.8
    assert both["noun_recall"] == 0.5
    assert both["cam_density"] == 8.0


def test_batches_hold_the_scene_that_their_words_describe(tokenizer: object) -> None:
    planner = Planner(tokenizer, FAMILIES["llava"].speech, 4, 1)
    batch = next(iter(planner))
    assert (batch.noun >= 0).sum(1).min() >= 1
    spoken = [tokenizer.decode(row[row >= 0]).strip() for row in batch.labels]  # type: ignore[attr-defined]
    assert all(text.endswith(".</s>") for text in spoken)
    said = [counts(text) for text in spoken]
    assert [sum(one.values()) for one in said] == (batch.noun >= 0).sum(1).tolist()
    for one, nouns in zip(said, batch.noun.tolist(), strict=True):
        assert set(one) == {NOUNS[noun].name for noun in nouns if noun >= 0}
