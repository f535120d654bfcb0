"""The result: tokens, words, their maps and where they come from; shows and saves itself, never runs a model."""

from ercr.explanation.result import Candidate, ContextWord, Explanation, Token, Word

__all__ = ["Candidate", "ContextWord", "Explanation", "Token", "Word"]
