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
# of samples with several pictures or a clip, for object words: the share of evidence in the pictures and slices of time
# that show the object, and whether the picture (or clip) with most of it does
PLACE = [("share_there", pa.float64()), ("most_there", pa.bool_())]
MAP = [("map", pa.binary())]  # uint8 [rows, columns], with the option `maps`

SCHEMA = pa.schema(SAMPLE + TOKEN + WORD + SUPPRESSION + FAITHFULNESS + PLACE + MAP)

# the task "grounding": one row per word of the model's own answer, and one per name that was asked about
ASKED = [
    ("index", pa.int32()),
    ("sample", pa.string()),
    ("status", pa.string()),  # "ok" or "failed"
    ("reason", pa.string()),
    # "own": of the model's answer; "name": of a given answer such as "A dog."; "given": of a reference caption
    ("source", pa.string()),
    ("answer", pa.string()),
    ("text", pa.string()),  # the word or name
    ("drawn", pa.string()),  # of a name: present, random, popular or together; of a caption: caption or other caption
    ("there", pa.bool_()),  # whether its thing is in the picture; null for words that were not judged
    ("area", pa.float64()),  # of a name that was asked about: the share of the picture that its masks have
    ("by", pa.string()),  # what says so: mask, reference or neither
    ("kind", pa.string()),  # noun, function or other
    ("content", pa.bool_()),
    ("word", pa.int32()),  # its place among the answer's words
    ("words", pa.int32()),  # how many the answer has
    ("repeated", pa.bool_()),  # whether prompt or answer had the word before
    ("seen", pa.float64()),
    ("verdict", pa.string()),
]
SIGNALS = (
    *("log_probability", "entropy", "chosen"),
    *("effect_text", "effect_grey", "effect_noise", "effect_other"),
    *("lens_size", "lens_mean", "lens_lead", "lens_usual_size", "lens_usual_mean"),
    *("lens_rank", "lens_probability", "lens_last_rank", "lens_last_probability", "internal_confidence"),
    *("focus", "attention_1", "attention_2", "attention_3", "attention_4", "glsim"),
    *("tam_peak", "tam_strength", "ercr_peak", "ercr_strength"),
)
GROUNDING = pa.schema([*ASKED, *((name, pa.float64()) for name in SIGNALS)])


def schema_of(task: str | None) -> pa.Schema:
    """The columns of a run's rows; runs of maps do not name their task."""
    return GROUNDING if task == "grounding" else SCHEMA
