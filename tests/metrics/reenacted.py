"""The protocol once more, step by step from its description, in loops and lists; shares no code with the package."""

from __future__ import annotations

import string

import cv2
import numpy as np
import torch
import torch.nn.functional as F

NOUN_TAGS = ("NN", "NNS", "NNP", "NNPS")
FUNCTION_TAGS = ("CC", "DT", "EX", "MD", "POS", "PRP", "PRP$", "UH", "WDT", "WP", "WP$", "WRB")


def reenact(texts, special, maps, labels, categories, tag, lemma, rules, crop=None):
    """The lists that the means are taken over, b, and every word with its label."""
    indices = [i for i in range(len(texts)) if rules["end_token"] == "glue" or not special[i]]
    words = []  # [text, token indices]
    for i in indices:
        if not words or (starts(texts[i], rules["split"]) and not special[i]):
            words.append(["", []])
        words[-1][0] += texts[i]
        words[-1][1].append(i)
    if rules["split"] == "token":
        words = [[text.replace(" ", ""), tokens] for text, tokens in words]
    else:
        words = [[text.strip(), tokens] for text, tokens in words if text.strip()]
    names = [label(text, categories, tag, lemma, rules) for text, _ in words]

    scores, thresholds = [], []
    for number, (_, tokens) in enumerate(words):
        if names[number] in ("function", "other"):
            continue
        per_token = [measure(maps[i], labels, names[number], crop, rules["empty"]) for i in tokens]
        thresholds.append(over_tokens([t for t, _ in per_token], rules["subword"]))
        fits = [fit for _, fit in per_token if fit is not None]
        if fits:
            scores.append(choose(fits, rules["subword"]))
        repeated = number > 0 and names[number] != "unknown" and names[number - 1] == names[number]
        if repeated and len(scores) > 1 and (rules["merge"] == "list" or fits):
            last = scores.pop()
            if last[0] > scores[-1][0]:
                scores[-1] = last
    quiet, b = [], None
    if thresholds:
        b = sum(thresholds) / len(thresholds)
        for number, (_, tokens) in enumerate(words):
            if names[number] == "function":
                shares = [sum(v < b for v in uint8(maps[i]).ravel()) / maps[i].size for i in tokens]
                quiet.append(sum(shares) / len(shares))
    return {"scores": scores, "quiet": quiet, "b": b, "words": [w for w, _ in words], "labels": names}


def starts(text, split):
    if split == "token":
        return text in string.punctuation or text[0] == " " or any("\u4e00" <= c <= "\u9fff" for c in text)
    return text[0] in string.punctuation + " " or any(a <= text[0] <= b for a, b in ("ぁヿ", "一鿿"))


def label(word, categories, tag, lemma, rules):
    kind = tag(word)
    if kind in FUNCTION_TAGS:
        return "function"
    if kind not in NOUN_TAGS:
        return "other"
    bare = lemma(word.lower().replace("-", ""))
    named = [(id_, name) for name, id_ in categories if id_ > 0 or rules["background"] == "drop"]
    holding = [(id_, name) for id_, name in named if bare in [lemma(part) for part in name.split()]]
    whole = [pair for pair in holding if lemma(pair[1]) == bare]
    if rules["match"] == "synonyms" and not whole and bare in ("man", "woman", "boy", "girl", "people"):
        whole = [pair for pair in named if pair[1] == "person"]
    found = [id_ for id_, _ in (holding[::-1] if rules["match"] == "any" else whole + holding)]
    # the public code scores labels above 0 and takes thresholds of label -1: label 0 falls between the two
    return "unknown" if not found else "other" if found[0] == 0 else found[0]


def uint8(map_):
    return np.array([[int(np.float32(v) * np.float32(255)) for v in row] for row in map_], np.uint8)


def measure(map_, labels, category, crop, empty):
    large = cv2.resize(uint8(map_), labels.shape[::-1]) if crop is None else crop(uint8(map_))
    threshold, binary = cv2.threshold(large, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    truth = np.zeros(labels.shape, bool) if category == "unknown" else labels == category
    if not truth.any():
        return threshold, None
    predicted = binary > 0
    both, either = (predicted & truth).sum(), (predicted | truth).sum()
    nothing = float("nan") if empty == "nan" else 0.0
    return threshold, (both / either, both / predicted.sum() if predicted.any() else nothing, both / truth.sum())


def over_tokens(values, subword):
    return {"max": max(values), "mean": sum(values) / len(values), "first": values[0]}[subword]


def choose(fits, subword):
    if subword == "mean":
        return tuple(sum(column) / len(fits) for column in zip(*fits, strict=True))
    return fits[0] if subword == "first" else fits[int(np.argmax([fit[0] for fit in fits]))]


def centre_crop(size, box):
    """How a map that covers only `box` of the picture lies on it: enlarged by torch, the rest 0."""
    left, top, right, bottom = box

    def place(map_):
        canvas = np.zeros(size, np.uint8)
        inside = F.interpolate(
            torch.tensor(map_, dtype=torch.float64)[None, None], (bottom - top, right - left), mode="bilinear"
        )
        canvas[top:bottom, left:right] = inside[0, 0].round().numpy().astype(np.uint8)
        return canvas

    return place
