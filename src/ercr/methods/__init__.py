"""Attribution methods: pure functions from a trace to maps, one file each; none imports transformers."""

from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.registry import methods, register, resolve

__all__ = ["Evidence", "Method", "Result", "Settings", "methods", "register", "resolve"]
