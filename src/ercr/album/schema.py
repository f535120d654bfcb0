"""The columns of an album: one row per picture, with its words and the maps of its tokens; writes nothing."""

from __future__ import annotations

import pyarrow as pa

WORD = pa.struct(
    [
        ("text", pa.string()),
        ("first", pa.int32()),  # the word's tokens among the answer's: from the first up to the last
        ("last", pa.int32()),
        ("probability", pa.float32()),
        ("evidence", pa.float32()),  # highest value of its map
        ("strength", pa.float32()),  # the same before the map was stretched, in the method's unit
        ("share", pa.float32()),  # the strength as a share of what the answer's strongest word reaches
        ("content", pa.bool_()),  # whether it could name something; this and the following if they were measured
        ("seen", pa.float32()),  # whether it was seen or guessed
        ("verdict", pa.string()),  # seen, unsure or guessed
        ("image_effect", pa.float32()),  # its log-probability less that without the picture, in nats
        ("lens_rank", pa.int32()),  # its best rank at a visual token
        ("lens_probability", pa.float32()),
        ("focus", pa.float32()),
        ("place", pa.string()),  # where its map is highest: top left, centre, …
        ("box", pa.list_(pa.int32())),  # left, top, right, bottom of what is half as high, in pixels
        ("piece", pa.int32()),  # of several pictures and clips: which one of them this is
        ("time", pa.float32()),  # of a clip, in seconds
        ("x", pa.float32()),  # where its map is highest, in shares of the picture's width and height
        ("y", pa.float32()),
    ]
)
TOKEN = pa.struct([("text", pa.string()), ("id", pa.int32()), ("probability", pa.float32())])
SCHEMA = pa.schema(
    [
        ("index", pa.int64()),  # in the source
        ("picture", pa.string()),
        ("status", pa.string()),  # "ok" or "failed"
        ("reason", pa.string()),  # why it failed
        ("prompt", pa.string()),
        ("answer", pa.string()),
        ("given", pa.bool_()),  # whether the answer was given
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("sha256", pa.string()),  # of size and pixels
        ("words", pa.list_(WORD)),
        ("tokens", pa.list_(TOKEN)),
        ("shape", pa.list_(pa.int32())),  # tokens of the answer, rows and columns of the maps
        ("pieces", pa.string()),  # of several pictures, or a clip: where the cells of each lie, as JSON
        ("maps", pa.binary()),  # uint8 of that shape: 255 is 1
    ]
)
