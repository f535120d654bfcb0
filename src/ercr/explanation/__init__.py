"""The result that users hold: words and their maps, which show and save themselves; never runs a model."""

from ercr.explanation.result import Explanation
from ercr.words import Candidate, ContextWord, Token, Word

__all__ = ["Candidate", "ContextWord", "Explanation", "Token", "Word"]
