"""Tokens and words with their maps, as data: what pictures, scores and files are made of; knows none of them."""

from ercr.words.maps import Candidate, ContextWord, Token, Which, Word, WordMaps

__all__ = ["Candidate", "ContextWord", "Token", "Which", "Word", "WordMaps"]
