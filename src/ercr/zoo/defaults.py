"""The default prompt and the default model, the same for the library and all commands."""

from __future__ import annotations

from dataclasses import dataclass

PROMPT = "Describe this image."
VIDEO_PROMPT = "Describe this video."  # takes its place where only clips are shown
_DRAWN = "scenes"  # the dataset whose pictures are drawn
_SEVERAL = ("pairs", "moving")  # those with two pictures or a clip


@dataclass(frozen=True)
class DefaultModel:
    """The packaged model for a kind of picture, the pictures it knows, and advice for other pictures."""

    name: str
    knows: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """What a command prints before it uses this model."""
        return (
            f"No model is given, so {self.name} is used, which knows {self.knows}.{self.advice and f' {self.advice}'}"
        )


def default_model(*, drawn: bool = False) -> DefaultModel:
    """For drawn pictures the model for scenes; else the model for photographs, if its language model is available."""
    from ercr.zoo import DEFAULT, photo_install_hint, photo_model

    if drawn:
        return DefaultModel(DEFAULT, "drawn scenes")
    known = photo_model()
    if known is not None:
        return DefaultModel(known, "photographs")
    return DefaultModel(
        DEFAULT, "drawn scenes only", f"For photographs: {photo_install_hint()}; or name another model."
    )


def model_for_dataset(spec: str) -> DefaultModel:
    """The default model for a dataset such as `scenes:200` or `coco:FOLDER`."""
    from ercr.zoo import CLIPS, packaged

    name = spec.partition(":")[0]
    if name in _SEVERAL and CLIPS in packaged():
        return DefaultModel(CLIPS, "pairs of drawn scenes and drawn clips")
    return default_model(drawn=name == _DRAWN)


def offered_models() -> list[str]:
    """The models that a page offers: first the one for photographs, if it is available, then the one for scenes."""
    return list(dict.fromkeys([default_model().name, default_model(drawn=True).name]))
