"""Tokens and words with their maps, as data for rendering, metrics and files; knows none of these."""

from ercr.words.grounding import Grounding
from ercr.words.maps import Candidate, ContextWord, Place, Token, Which, Word, WordMaps

__all__ = ["Candidate", "ContextWord", "Grounding", "Place", "Token", "Which", "Word", "WordMaps"]
