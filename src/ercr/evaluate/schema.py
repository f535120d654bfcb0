"""The columns of a run: one row per sample, token and method; computes and writes nothing.

A sample that could not be evaluated, or whose answer is empty, has one row per method with no token in it.
"""

from __future__ import annotations

import pyarrow as pa

SAMPLE = [
    ("index", pa.int32()),  # of the sample in its dataset
    ("sample", pa.string()),
    ("method", pa.string()),  # as requested, with its settings
    ("status", pa.string()),  # "ok" or "failed"
    ("reason", pa.string()),  # why it failed, or why the protocol leaves out the answer (the status is then "ok")
    ("answer", pa.string()),
    ("rows", pa.int16()),  # of the token grid
    ("columns", pa.int16()),
    ("rouge_l", pa.float64()),
    ("meteor", pa.float64()),
    ("limit", pa.float64()),  # mean threshold of the answer's nouns
]
TOKEN = [
    ("token", pa.int32()),  # among the answer's tokens
    ("token_id", pa.int32()),
    ("token_text", pa.string()),
    ("probability", pa.float64()),
    ("word", pa.int32()),  # among the answer's words
    ("word_text", pa.string()),
    ("tag", pa.string()),
    ("kind", pa.string()),  # "noun", "function" or "other"
    ("category", pa.int32()),  # of a matched noun
    ("category_name", pa.string()),
    ("threshold", pa.float64()),  # this and the following: of this token's own map
    ("iou", pa.float64()),
    ("precision", pa.float64()),
    ("recall", pa.float64()),
    ("quiet", pa.float64()),  # share of cells below `limit`, for tokens of function words
]
# what a word adds to the pooled means; only in the row of one of its tokens, so that sums count it once
WORD = [
    ("object_iou", pa.float64()),
    ("object_precision", pa.float64()),
    ("object_recall", pa.float64()),
    ("function_quiet", pa.float64()),
]
# mass and area (cells above 0.5) of the map without its context residual and with it
SUPPRESSION = [
    (f"{what}_{when}", pa.float64()) for what in ("mass", "area", "inside", "outside") for when in ("before", "after")
]
# log-probabilities of the token under perturbed images, at the run's budgets; first subwords of object words only
FAITHFULNESS = [
    ("score_whole", pa.float64()),
    ("score_blank", pa.float64()),
    ("deleted", pa.list_(pa.float64())),
    ("inserted", pa.list_(pa.float64())),
]
MAP = [("map", pa.binary())]  # uint8 [rows, columns], with the option `maps`

SCHEMA = pa.schema(SAMPLE + TOKEN + WORD + SUPPRESSION + FAITHFULNESS + MAP)
