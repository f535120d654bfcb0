"""The result of explaining: words and maps with methods to show and save them; never runs a model."""

from ercr.explanation.result import Explanation
from ercr.words import Candidate, ContextWord, Token, Word

__all__ = ["Candidate", "ContextWord", "Explanation", "Token", "Word"]
