"""Converts checkpoints that need remote code to transformers' own classes; never runs remote code."""

from ercr.models.convert.run import Progress, convert, must_be_converted

__all__ = ["Progress", "convert", "must_be_converted"]
