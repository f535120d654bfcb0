"""The only place that runs a model: one recorded run per sample, and what methods may read of it."""

from ercr.trace.data import Needs, Sample, TextRows, Trace, View
from ercr.trace.record import trace_samples

__all__ = ["Needs", "Sample", "TextRows", "Trace", "View", "trace_samples"]
