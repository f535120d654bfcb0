"""Several pictures, clips and conversations in every way in which people explain them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import ercr
from ercr.errors import ErcrError, ImageError, InputError
from ercr.methods import methods
from tests.attacks.pictures import sentence_trouble
from tests.image.test_clips import write
from tests.models.frames import check_frames

OWN = ("qwen2_vl", "qwen2_5_vl", "internvl")


@pytest.fixture(scope="module")
def some():
    return drawn()


def drawn():
    """Two pictures of different sizes, and the frames of a clip."""
    rng = np.random.default_rng(1)
    draw = lambda *size: Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8))  # noqa: E731
    return draw(90, 130), draw(101, 60), [draw(60, 88) for _ in range(5)]


def conversation(some):
    first, second, frames = some
    text = lambda words: {"type": "text", "text": words}  # noqa: E731
    return [
        {"role": "user", "content": [{"type": "image", "image": first}, text("a photo of a dog?")]},
        {"role": "assistant", "content": "a cat on a sofa"},
        {"role": "user", "content": [{"type": "image", "image": second}, text("What is in the picture?")]},
        {"role": "assistant", "content": [text("a red bicycle")]},
        {"role": "user", "content": [{"type": "video", "video": frames, "fps": 2}, text("it is raining?")]},
        {"role": "assistant", "content": "two umbrellas near the bicycle"},
    ]


def equal(one, other, atol=0.0):
    assert one.text == other.text
    assert [t.id for t in one.text_tokens] == [t.id for t in other.text_tokens]
    np.testing.assert_allclose(one.maps, other.maps, atol=atol)
    assert one.pieces == other.pieces


@pytest.mark.parametrize("name", OWN)
def test_a_turn_is_explained_as_alone_with_the_earlier_ones_given(load, some, name):
    check_turns(load(name), some)


def check_turns(own, some):
    chat = conversation(some)
    for turn, answer in enumerate(("a cat on a sofa", "a red bicycle", "two umbrellas near the bicycle")):
        found = own.explain(chat, turn=turn)
        equal(found, own.explain(None, chat[: 2 * turn + 1], answer=answer))
        equal(found, own.explain(chat, turn=turn - 3))
        assert found.text == answer
        assert [piece.clip for piece in found.pieces] == [False, False, True][: turn + 1]
        words = [part for message in chat[: 2 * turn + 1] for part in words_of(message)]
        assert found.prompt.split() == " ".join(words).split()
        shown = [some[0], some[1], ercr.Clip(some[2], fps=2)][: turn + 1]
        bare = [
            {**message, "content": " ".join(words_of(message))} if message["role"] == "assistant" else emptied(message)
            for message in chat[: 2 * turn + 1]
        ]
        equal(found, own.explain(shown, bare, answer=answer))


def words_of(message):
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]


def emptied(message):
    """A message whose places hold nothing."""
    content = [part if part["type"] == "text" else {"type": part["type"]} for part in message["content"]]
    return {**message, "content": content}


@pytest.mark.parametrize("name", OWN)
def test_an_earlier_answer_has_the_same_evidence_when_a_later_turn_is_explained(load, some, name):
    """Tokens see only what is before them, so what an answer used does not change with what was said later."""
    chat = [m for m in conversation(some) if m["role"] == "assistant" or m["content"][0].get("image") is some[0]]
    chat = [chat[0], chat[1], {"role": "user", "content": "What is in the picture?"}, chat[2]]
    own = load(name, "float64")
    first, later = (own.explain(chat, turn=turn, method="cam") for turn in (0, 1))
    answer = [t for t in first.text_tokens if t.kind == "answer"]
    words = [t for t in later.prompt_tokens if t.position >= answer[0].position][: len(answer)]
    assert [t.id for t in words] == [t.id for t in answer]
    np.testing.assert_allclose(later.maps[[t.row for t in words]], first.maps[[t.row for t in answer]], atol=1e-9)


@pytest.mark.parametrize("name", OWN)
def test_streams_and_bulk_runs_give_what_explain_gives(load, some, name):
    check_ways(load(name), some)


def check_ways(own, some):
    first, second, frames = some
    clip = ercr.Clip(frames, fps=2)
    chat = conversation(some)[:5]
    shown = [[first, second], clip, [clip, second], first, chat]
    options = {"max_new_tokens": 5}
    alone = [own.explain(one, **options) for one in shown]
    assert [len(one.pieces) for one in alone] == [2, 1, 2, 1, 3]
    for one, given in zip(alone, shown, strict=True):
        stream = own.stream(given, **options)
        steps = list(stream)
        equal(stream.explanation(), one, atol=2e-3)
        assert len(steps) == len([t for t in one.text_tokens if t.kind == "answer"])
    for found in (
        own.explain_batch(shown, progress=False, **options),
        list(own.explain_iter(shown, progress=False, **options)),
        [row[0] for row in own.explain_many(shown, methods=["ercr"], **options)],
    ):
        for one, other in zip(alone, found, strict=True):
            equal(other, one, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2_vl", "internvl"])
def test_every_method_maps_every_piece(load, some, name):
    first, _, frames = some
    shown = [first, ercr.Clip(frames[:4])]
    alone = load(name).explain(shown, answer="a dog", method="cam").pieces
    for found in load(name).explain_all(shown, answer="a dog", methods=[m for m in methods() if m != "occlusion"]):
        assert found.pieces == alone, found.provenance["method"]
        for word in found.words:
            assert [map_.shape for map_ in word.maps] == [piece.shape for piece in alone]
            assert all(np.isfinite(map_).all() for map_ in word.maps)
            assert 0 <= min(map_.min() for map_ in word.maps) <= max(map_.max() for map_ in word.maps) <= 1
    hidden = load(name).explain(shown, answer="a dog", method="occlusion:grid=2")
    assert hidden.pieces == alone


def test_files_keep_everything(load, some, tmp_path):
    first, second, frames = some
    for shown in ([first, second], ercr.Clip(frames, fps=2), conversation(some)[:5]):
        saved = load("qwen2_vl").explain(shown, max_new_tokens=5, grounding=True, candidates=True)
        saved.save(tmp_path / "x.ercr")
        read = ercr.load(tmp_path / "x.ercr")
        equal(read, saved)
        assert read.image.sha256() == saved.image.sha256()
        assert read.words[0].where() == saved.words[0].where()
        assert [w.grounding for w in read.words] == [w.grounding for w in saved.words]
        np.testing.assert_array_equal(read.alternatives.maps, saved.alternatives.maps)


def test_the_check_reads_an_answer_without_all_of_them(load, some):
    """The image effect is the log-probability with all pieces less that with nothing between the template's marks."""
    own, chat = load("qwen2_vl", "float64"), conversation(some)
    found = own.check(chat, turn=2)
    place = "<|vision_start|><|vision_end|>"
    bare = [{**m, "content": place * (m["role"] == "user") + " ".join(words_of(m))} for m in chat[:5]]
    assert len(found.pieces) == 3
    adapter = own.adapter
    ids = adapter.tokenizer.apply_chat_template(bare, tokenize=True, add_generation_prompt=True, return_dict=False)
    answer = adapter.tokenizer(found.text, add_special_tokens=False)["input_ids"]
    import torch

    with torch.no_grad():
        logits = adapter.model(input_ids=torch.tensor([[*ids, *answer]])).logits[0, len(ids) - 1 : -1]
    alone = logits.log_softmax(-1)[range(len(answer)), answer].numpy()
    tokens = [t for t in found.text_tokens if t.kind == "answer"]
    effect = np.log([t.probability for t in tokens]) - alone
    for word in found.words:
        rows = [tokens.index(t) for t in word.tokens]
        assert word.grounding.image_effect["text"] == pytest.approx(effect[rows].sum(), abs=1e-4)


def test_mistakes_get_one_sentence(load, some, tmp_path):
    pytest.importorskip("av")
    first, second, frames = some
    chat = conversation(some)
    (tmp_path / "cut.mp4").write_bytes(write(tmp_path / "whole.mp4").read_bytes()[:900])
    own = load("qwen2_vl")
    one_place = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a dog?"}]}]
    words = one_place[0]["content"][1:]
    picture_of_video = [{"role": "user", "content": [{"type": "image", "image": "a.mp4"}, *words]}]
    cases = [
        (([],), InputError, "list of pictures is empty"),
        ((ercr.Clip([]),), ImageError, "has no frames: give at least one"),
        ((tmp_path / "cut.mp4",), ImageError, "is damaged or is not a video"),
        ((tmp_path / "gone.mp4",), ImageError, "There is no file"),
        (([first, second], one_place), InputError, "1 places without a picture or clip of their own, and 2 are given"),
        ((ercr.Clip(frames), one_place), InputError, "A video is given for a picture's place"),
        ((picture_of_video,), InputError, "A video is given for a picture's place"),
        ((first, chat[:5]), InputError, "0 places without a picture or clip of their own, and 1 are given"),
        ((chat,), InputError, "or say with turn= which of its answers"),
        ((chat[:1], "What?"), InputError, "the conversation or a prompt, not both"),
        (([first], "a <|image_pad|> dog"), InputError, "reads as an image: remove it"),
        (([first], "a <|video_pad|> dog"), InputError, "reads as an image: remove it"),
        ((np.stack([np.asarray(f) for f in frames]),), ImageError, r"ercr\.Clip\(array\)"),
        (([first] * 60,), InputError, "and the model has 4,096 positions: show fewer"),
        ((ercr.Clip(frames * 40),), InputError, "and the model has 4,096 positions: show fewer"),
    ]
    for given, kind, says in cases:
        with pytest.raises(kind, match=says) as raised:
            own.explain(*given)
        assert sentence_trouble(str(raised.value)) is None, str(raised.value)
    for turn, says in ((3, "has 3 answers of the assistant, so there is no turn 3"), ("a", "no turn 'a'")):
        with pytest.raises(InputError, match=says):
            own.explain(chat, turn=turn)
    with pytest.raises(InputError, match="omit answer="):
        own.explain(chat, turn=0, answer="a dog")
    with pytest.raises(
        ErcrError, match="takes no videos: use another model, or give some of their frames as a list of pictures"
    ):
        load("llava").explain(ercr.Clip(frames))


def test_long_and_uneven_videos_are_explained(load, tmp_path):
    """Four hours, and a rate that changes: the frames lie where the seconds say."""
    long = write(tmp_path / "long.mp4", list(range(0, 400 * 36_000, 36_000)), count=400)
    times = np.cumsum([10 if i % 3 else 90 for i in range(60)]) - 90
    uneven = write(tmp_path / "uneven.mp4", times.tolist())
    for path, seconds in ((long, 4 * 3600), (uneven, float(times[-1]) / 1000)):
        found = load("qwen2_vl").explain(ercr.Clip(path, num_frames=8), answer="a dog", method="cam")
        (piece,) = found.pieces
        assert piece.slices == 4
        assert piece.spans[-1][1] == pytest.approx(seconds, rel=0.05)
        assert found.heatmap("dog", time=0.6 * seconds).shape == found.media[0].size
        assert sum(place.share for place in found.word("dog").where()) == pytest.approx(1)


def test_the_default_prompt_speaks_of_a_video_where_nothing_else_is_shown(load, some):
    first, _, frames = some
    for shown, word in ((first, "image"), (ercr.Clip(frames), "video"), ([first, ercr.Clip(frames)], "image")):
        assert load("qwen2_vl").explain(shown, answer="a dog", method="cam").prompt == f"Describe this {word}."


@pytest.mark.parametrize("name", OWN)
def test_a_clips_tokens_show_the_frames_and_places_that_painting_finds(load, name):
    assert check_frames(load(name).adapter) == 1


def test_every_way_of_explaining_a_conversation_keeps_it_for_the_page(load, picture):
    from ercr.render.shown import turns

    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": "What is this?"}]},
        {"role": "assistant", "content": "A dog."},
        {"role": "user", "content": "Where is it?"},
    ]
    explainer, options = load("qwen2_vl"), {"method": "cam", "max_new_tokens": 3}
    stream = explainer.stream(chat, **options)
    found = [explainer.explain(chat, **options), *explainer.explain_batch([None], [chat], **options)]
    for explanation in (*found, stream.explanation()):
        shown = turns(explanation, explanation.prompt_words)
        assert [turn["role"] for turn in shown] == ["system", "user", "assistant", "user"]
        said = [[explanation.prompt_words[i].text for i in range(*turn["parts"][-1]["words"])] for turn in shown[1:]]
        assert ["".join(words) for words in said] == ["Whatisthis?", "Adog.", "Whereisit?"]
        assert shown[1]["parts"][0] == {"piece": 0}
    assert "conversation" not in explainer.explain(picture, "What is this?", **options).provenance
