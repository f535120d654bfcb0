"""Options of the model's `generate`, checked before anything runs."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from ercr.errors import InputError, nearest
from ercr.trace.greedy import Generation


def decoding(max_new_tokens: int, generation: Generation | None) -> Generation:
    """All options of a run: greedy decoding unless `generation` says otherwise."""
    if generation is not None and not isinstance(generation, dict):
        raise InputError(f"generation must be a dict such as {{'num_beams': 3}}, not {type(generation).__name__}.")
    given = {key: value for key, value in (generation or {}).items() if value is not None}
    _check(given)
    options: Generation = {"max_new_tokens": max_new_tokens, "do_sample": False, "num_beams": 1, **given}
    longest = options["max_new_tokens"]
    if not isinstance(longest, Integral) or longest < 1:
        raise InputError(f"max_new_tokens must be a whole number of at least 1, not {longest!r}.")
    if options.get("num_return_sequences", 1) != 1:
        raise InputError("Only one answer can be explained: omit num_return_sequences.")
    if not options["do_sample"]:
        # otherwise generate warns that greedy decoding ignores the checkpoint's sampling settings
        options = {"temperature": None, "top_p": None, "top_k": None, **options}
    return options


def _check(given: dict[str, Any]) -> None:
    """Refuse options that `generate` does not have."""
    from transformers import GenerationConfig

    # arguments of generate itself, which are not in its settings
    arguments = (
        "logits_processor",
        "stopping_criteria",
        "prefix_allowed_tokens_fn",
        "assistant_model",
        "use_model_defaults",
    )
    known = [name for name in vars(GenerationConfig()) if not name.startswith("_")]
    if "stop_strings" in given:
        raise InputError("stop_strings is not supported: use eos_token_id or max_new_tokens.")
    for name in given:
        if name not in known and name not in arguments:
            raise InputError(f"The model's generate has no setting {name!r}: remove it.{nearest(str(name), known)}")
