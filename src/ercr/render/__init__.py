"""Pictures of an explanation: overlay, page, terminal. Nothing here runs a model or imports transformers."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Whether an IPython kernel with a display is running this code."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
