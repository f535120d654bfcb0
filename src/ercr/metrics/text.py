"""How close an answer is to reference captions: ROUGE-L and METEOR, computed by the packages that define them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

from ercr.metrics.wordnet import find_wordnet

Rouge = Literal["rouge", "rouge-score"]


def rouge_l(answer: str, references: Sequence[str], package: Rouge = "rouge-score") -> float | None:
    """ROUGE-L F-measure against the best reference; None without references or without the package."""
    try:
        score = (_google if package == "rouge-score" else _public)()
    except ImportError:
        return None
    return max((score(answer, reference) for reference in references), default=None)


def rouge_backend(package: Rouge) -> str | None:
    """Package and version that compute ROUGE-L; None if it is not installed."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _google() -> Callable[[str, str], float]:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    return lambda answer, reference: float(scorer.score(reference, answer)["rougeL"].fmeasure)


@lru_cache(maxsize=1)
def _public() -> Callable[[str, str], float]:
    from rouge import Rouge

    scorer = Rouge(metrics=["rouge-l"])

    def score(answer: str, reference: str) -> float:
        # the package rejects texts of nothing but full stops
        if not (answer.replace(".", "") and reference.replace(".", "")):
            return 0.0
        return float(scorer.get_scores(answer, reference)[0]["rouge-l"]["f"])

    return score


class _NoSynonyms:
    """Replaces WordNet if its data is not installed: no word has synonyms."""

    def synsets(self, word: str) -> list[Any]:
        return []


@lru_cache(maxsize=1)
def _synonyms() -> tuple[str, Any] | None:
    """What computes METEOR: its name, and the WordNet reader for synonyms."""
    try:
        import nltk
    except ImportError:
        return None
    wordnet = find_wordnet()
    if wordnet is None:
        return f"nltk {nltk.__version__}, without synonyms", _NoSynonyms()
    return f"nltk {nltk.__version__}, {wordnet.name}", wordnet.reader


def meteor_backend() -> str | None:
    """What computes METEOR, and whether synonyms count; None if NLTK is not installed."""
    found = _synonyms()
    return found and found[0]


def meteor(answer: str, references: Sequence[str]) -> float | None:
    """METEOR of the lower-cased words between spaces against the best reference; None without references or NLTK."""
    found = _synonyms()
    if found is None or not references:
        return None
    from nltk.translate.meteor_score import meteor_score

    split = [reference.lower().split() for reference in references]
    return float(meteor_score(split, answer.lower().split(), wordnet=found[1]))
