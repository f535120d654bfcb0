"""Many pictures into one folder: from a folder, a list or a table to rows with maps; resumable, on many machines."""

from typing import TYPE_CHECKING

from ercr.lazy import lazy_attributes

if TYPE_CHECKING:
    from ercr.album.album import Album, explain_files

__all__ = ["Album", "explain_files"]

# imported on first use: whether a name stands for many pictures is asked before anything is loaded
__getattr__ = lazy_attributes(__name__, {"Album": "ercr.album.album", "explain_files": "ercr.album.album"})
