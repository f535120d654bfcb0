"""Tokens and words with their maps, as data for rendering, metrics and files; knows none of these."""

from ercr.words.grounding import Grounding
from ercr.words.maps import Candidate, ContextWord, Token, Which, Word, WordMaps
from ercr.words.places import Place

__all__ = ["Candidate", "ContextWord", "Grounding", "Place", "Token", "Which", "Word", "WordMaps"]
