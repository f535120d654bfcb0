"""From the explanations of one sample to its rows: scores of words and text, and of perturbed pictures.

Runs the model only to score perturbed pictures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.datasets.sample import Sample, all_labels
from ercr.errors import ErcrError
from ercr.evaluate.plan import Plan
from ercr.explaining.explainer import Explainer
from ercr.explaining.sizes import Sizes
from ercr.explanation import Explanation, Token
from ercr.image.geometry import Geometry
from ercr.metrics.answers import score_answer
from ercr.metrics.faithfulness import baseline_image, curves
from ercr.metrics.language import english
from ercr.metrics.pixels import levels
from ercr.metrics.protocol import Protocol
from ercr.metrics.several import PixelRow, from_row, picture_row, share_there
from ercr.metrics.suppression import masses
from ercr.metrics.text import meteor, rouge_l
from ercr.trace.memory import device_lost, out_of_memory

Row = dict[str, Any]
_PICTURES = 32  # perturbed pictures that are scored together


@dataclass(frozen=True)
class Failure:
    """Why a sample, or a method on it, has no scores."""

    stage: str  # input, model, score or faithfulness; failures are counted by stage
    message: str
    memory: bool = False

    @classmethod
    def of(cls, stage: str, error: BaseException) -> Failure:
        """One line, without memory addresses and sizes, so that equal failures have equal texts.

        A GPU that can no longer be used is not the failure of a sample: it ends the run.
        """
        if device_lost(error):
            raise ErcrError(
                f"The GPU failed ({error}): run the same command again, which keeps the finished parts."
            ) from error
        if out_of_memory(error):
            return cls(stage, "not enough memory, even for this sample alone", memory=True)
        text = " ".join(str(error).split())[:300]
        if not isinstance(error, ErcrError):
            text = f"{type(error).__name__}: {text}"
        return cls(stage, re.sub(r"0x[0-9a-fA-F]+", "0x…", text))

    @property
    def reason(self) -> str:
        return f"{self.stage}: {self.message}"


Found = Mapping[str, "Explanation | Failure"]  # by method


def failed_rows(index: int, name: str, methods: Sequence[str], failure: Failure) -> list[Row]:
    """One row per method, with the reason why it has no others."""
    return [_failed(index, name, method, failure) for method in methods]


def _failed(index: int, name: str, method: str, failure: Failure) -> Row:
    return {"index": index, "sample": name, "method": method, "status": "failed", "reason": failure.reason}


class Scorer:
    """Rows of a sample from its explanations, by the plan's protocol."""

    def __init__(self, explainer: Explainer, plan: Plan) -> None:
        self.explainer, self.plan = explainer, plan
        self.protocol, self.language = Protocol.parse(plan.protocol), english()
        self.sizes = Sizes(_PICTURES, explainer.adapter)

    def rows(self, index: int, sample: Sample, found: Found, plain: Found) -> list[Row]:
        """One row per method and token; `plain` holds the same methods without their context residual."""
        per_method: dict[str, list[Row]] = {}
        retokenized = text = None
        for method, explanation in found.items():
            if isinstance(explanation, Failure):
                per_method[method] = [_failed(index, sample.id, method, explanation)]
                continue
            try:
                if retokenized is None or text is None:  # the answer is the same for all methods
                    retokenized, text = self._retokenized(explanation), self._text_scores(explanation.text, sample)
                head = {"index": index, "sample": sample.id, "method": method, "status": "ok", **text}
                per_method[method] = self._scored(head, sample, explanation, plain.get(method), retokenized)
            except Exception as error:
                per_method[method] = [_failed(index, sample.id, method, Failure.of("score", error))]
        if self.plan.budgets:
            self._add_faithfulness(sample, found, per_method)
        return [row for rows in per_method.values() for row in rows]

    def _retokenized(self, explanation: Explanation) -> list[str]:
        """The answer decoded, tokenised again, and each of its tokens decoded alone."""
        tokenizer = self.explainer.adapter.tokenizer
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        text = tokenizer.decode([token.id for token in _answer(explanation)], **options)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        pieces = tokenizer.convert_ids_to_tokens(ids)
        texts = tokenizer.batch_decode([[id_] for id_ in ids], **options)
        # some tokenizers drop the space before a token that is decoded alone
        return [
            f"▁{text}" if str(piece).startswith("▁") and not text.startswith(" ") else text
            for piece, text in zip(pieces, texts, strict=True)
        ]

    def _text_scores(self, answer: str, sample: Sample) -> Row:
        rouge = rouge_l(answer, sample.references, self.protocol.rouge)
        return {"answer": answer, "rouge_l": rouge, "meteor": meteor(answer, sample.references)}

    def _scored(
        self,
        head: Row,
        sample: Sample,
        explanation: Explanation,
        plain: Explanation | Failure | None,
        retokenized: Sequence[str],
    ) -> list[Row]:
        score = score_answer(explanation, sample.labels, sample.categories, self.language, self.protocol, retokenized)
        grid = explanation.geometry.grid
        head |= {"rows": grid[0], "columns": grid[1], "limit": score.limit, "reason": score.left_out}
        if score.left_out:  # the protocol takes no score from this answer
            head |= {"rouge_l": None, "meteor": None}
        if not score.tokens:
            return [head]
        tokens, several = _answer(explanation), _several(sample)
        pixels = _pixels(explanation, several)
        rows = []
        for scored in score.rows():
            row = {**head, **scored}
            at = tokens[row["token"]].row
            if isinstance(plain, Explanation):
                row |= masses(plain.maps[at], explanation.maps[at], pixels, _truth(sample, row))
            if several is not None and row["category"] is not None:
                row |= share_there(explanation, explanation.maps[at], several, row["category"])
            if self.plan.maps:
                row["map"] = levels(explanation.maps[at]).tobytes()
            rows.append(row)
        return rows

    def _add_faithfulness(self, sample: Sample, found: Found, per_method: dict[str, list[Row]]) -> None:
        """Fill in the scores of perturbed pictures; where that fails, the methods have failed on this sample."""
        try:
            self._perturb(sample, found, per_method)
        except Exception as error:
            failure = Failure.of("faithfulness", error)
            for method, rows in per_method.items():
                if rows[0]["status"] == "ok":
                    per_method[method] = [_failed(rows[0]["index"], sample.id, method, failure)]

    def _perturb(self, sample: Sample, explanations: Found, per_method: dict[str, list[Row]]) -> None:
        jobs = [
            (explanation, row)
            for method, explanation in explanations.items()
            if isinstance(explanation, Explanation)
            for row in _first_of_objects(per_method[method])
        ]
        if not jobs:
            return
        tokens = _answer(jobs[0][0])

        media = jobs[0][0].media
        one = isinstance(jobs[0][0].geometry, Geometry)

        def score(pictures: Any) -> Any:
            ids = [token.id for token in tokens]
            shown = pictures if one else (from_row(row, media) for row in pictures)
            return self.explainer.answer_log_probabilities(shown, sample.prompt, ids, self.sizes).astype(float)

        maps = [(_pixels(explanation), explanation.maps[tokens[row["token"]].row]) for explanation, row in jobs]
        image, blank = _with_baseline(media, one, self.plan.baseline)
        found = curves(image, maps, score, self.plan.budgets, blank)
        for (_, row), deleted, inserted in zip(jobs, found.deleted, found.inserted, strict=True):
            token = row["token"]
            row |= {
                "score_whole": float(found.whole[token]),
                "score_blank": float(found.blank[token]),
                "deleted": deleted[:, token].tolist(),
                "inserted": inserted[:, token].tolist(),
            }


def _answer(explanation: Explanation) -> list[Token]:
    return [token for token in explanation.text_tokens if token.kind == "answer"]


def _several(sample: Sample) -> tuple[NDArray[Any], ...] | None:
    """The labels of several pictures or a clip."""
    return sample.labels if isinstance(sample.labels, tuple) else None


def _pixels(explanation: Explanation, labels: Sequence[NDArray[Any]] | None = None) -> Geometry | PixelRow:
    """How maps are read at pixels: of one picture, or of several as one row."""
    geometry = explanation.geometry
    return geometry if isinstance(geometry, Geometry) else PixelRow.of(explanation, labels)


def _with_baseline(media: Sequence[Any], one: bool, baseline: Any) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The picture and what shows nothing of it; several pictures and clips as rows, each with a baseline of its own."""
    if one:
        image = np.asarray(media[0].rgb, np.uint8)
        return image, baseline_image(image, baseline)
    blanks = []
    for item in media:
        row = picture_row([item]).reshape(-1, *item.size, 3)
        blanks += [baseline_image(frame, baseline).reshape(-1, 3) for frame in row]
    return picture_row(media), np.concatenate(blanks)[None]


def _truth(sample: Sample, row: Row) -> NDArray[np.bool_] | None:
    """The mask of the object that a row's word names; None if it names none or the picture has none."""
    labels = all_labels(sample)
    if row["category"] is None or labels is None:
        return None
    mask: NDArray[np.bool_] = labels == row["category"]
    return mask if mask.any() else None


def _first_of_objects(rows: Sequence[Row]) -> list[Row]:
    """Rows of the first subwords of words that name a category."""
    seen: set[int] = set()
    found = []
    for row in rows:
        if row.get("category") is not None and row["word"] not in seen:
            seen.add(row["word"])
            found.append(row)
    return found
