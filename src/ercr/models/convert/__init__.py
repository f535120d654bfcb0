"""Checkpoints that exist only with remote code, rewritten for transformers' own classes. No remote code is run."""

from ercr.models.convert.run import Progress, convert, must_be_converted

__all__ = ["Progress", "convert", "must_be_converted"]
