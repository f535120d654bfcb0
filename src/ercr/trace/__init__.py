"""The only place that runs a model: one recorded run per sample, as a trace that methods read."""

from ercr.trace.data import Needs, TextRows, Trace, TraceRequest, View
from ercr.trace.record import trace_samples

__all__ = ["Needs", "TextRows", "Trace", "TraceRequest", "View", "trace_samples"]
