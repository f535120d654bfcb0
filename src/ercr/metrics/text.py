"""How close an answer is to reference captions: ROUGE-L and METEOR, by the packages that define them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ercr.metrics.wordnet import find_wordnet


@lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"])


def rouge_l(answer: str, references: Sequence[str]) -> float | None:
    """ROUGE-L F-measure against the best reference; None without references or without `rouge-score`."""
    try:
        scorer = _scorer()
    except ImportError:
        return None
    if not references:
        return None
    return float(scorer.score_multi(list(references), answer)["rougeL"].fmeasure)


class _NoSynonyms:
    """Stands for WordNet where its data is not installed: no word has synonyms."""

    def synsets(self, word: str) -> list[Any]:
        return []


@lru_cache(maxsize=1)
def _synonyms() -> tuple[str, Any] | None:
    """What METEOR is computed with: its name, and the WordNet to look synonyms up in."""
    try:
        import nltk
    except ImportError:
        return None
    wordnet = find_wordnet()
    if wordnet is None:
        return f"nltk {nltk.__version__}, without synonyms", _NoSynonyms()
    return f"nltk {nltk.__version__}, {wordnet.name}", wordnet.reader


def meteor_backend() -> str | None:
    """What METEOR is computed with, and whether synonyms count; None where NLTK is not installed."""
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
