"""The generic adapter: any model whose visual tokens stand in the decoder's sequence, with no formula of any family."""

from ercr.models.generic.adapter import GenericAdapter

__all__ = ["GenericAdapter"]
