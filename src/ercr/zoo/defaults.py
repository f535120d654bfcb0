"""What is taken where nothing is named: one prompt, and one rule for the model, the same for library and commands."""

from __future__ import annotations

from dataclasses import dataclass

PROMPT = "Describe this image."
_DRAWN = "scenes"  # the dataset whose pictures are drawn


@dataclass(frozen=True)
class DefaultModel:
    """The packaged model for a kind of picture, what it knows, and what to do where that does not fit."""

    name: str
    knows: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """What a command says before it takes this model."""
        return (
            f"No model is named, so {self.name} is taken, which knows {self.knows}.{self.advice and f' {self.advice}'}"
        )


def default_model(*, drawn: bool = False) -> DefaultModel:
    """Drawn scenes: the model for scenes. All else: the model for photographs, where its language model is at hand."""
    from ercr.zoo import DEFAULT, for_photos, way_to_photos

    if drawn:
        return DefaultModel(DEFAULT, "drawn scenes")
    known = for_photos()
    if known is not None:
        return DefaultModel(known, "photographs")
    return DefaultModel(DEFAULT, "drawn scenes only", f"For photographs: {way_to_photos()}; or name another model.")


def model_for_dataset(spec: str) -> DefaultModel:
    """The same rule for a dataset such as `scenes:200` or `coco:FOLDER`."""
    return default_model(drawn=spec.partition(":")[0] == _DRAWN)


def offered_models() -> list[str]:
    """The models that a page offers: first the one for photographs, where it is at hand, then the one for scenes."""
    return list(dict.fromkeys([default_model().name, default_model(drawn=True).name]))
