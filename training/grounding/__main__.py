"""Fits the calibrations of `seen` to rows of `ercr evaluate --task grounding`, and scores other rows by them.

    python -m training.grounding usual photo-mini hf:FLICKR8K,split=train
    python -m training.grounding collages COLLAGES hf:FLICKR8K,split=test
    ercr evaluate --task grounding --signals own -d hf:FLICKR8K,split=val --limit 120 -m photo-mini -o RUNS/val
    ercr evaluate --task grounding --signals own -d hf:FLICKR8K,split=test --limit 120 -m photo-mini -o RUNS/test
    ercr evaluate --task grounding --signals own -d hf:COLLAGES,split=train -m photo-mini -o RUNS/collages
    ercr evaluate --task grounding --signals own -d scenes:60@40000 -m scenes-llava -o RUNS/scenes-llava
    ercr evaluate --task grounding --signals own -d scenes:80@50000,style=FACEBOOK -m scenes-llava -o RUNS/other-llava
    python -m training.grounding fit photo-mini RUNS/val RUNS/test RUNS/collages
    python -m training.grounding fit scenes-llava RUNS/scenes-llava RUNS/other-llava
    python -m training.grounding fit general RUNS/val RUNS/test RUNS/collages RUNS/scenes-* RUNS/other-*
    python -m training.grounding score photo-mini RUNS/coco --beside general fixed --out TABLE.json

FACEBOOK is `img/facebook/64` of the npm package emoji-datasource-facebook: a style that no model was trained on, so
that some of their words are wrong. Photographs and scenes have the same weight together. `usual` writes the table of
how strongly pictures usually spell each word, which runs then read; `fit` writes the calibration's file in the package,
`score` what the documentation's tables are made of. Nothing is fitted to COCO, and `usual` and `fit` refuse it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import ercr.words.calibration
from ercr.evaluate import Run
from ercr.words.calibration import FIXED, find_calibration

from .collages import write
from .fit import best
from .score import scored
from .usual import usual

COLLAGES = 90  # pictures
CALIBRATIONS = Path(ercr.words.calibration.__file__).parent / "calibrations"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("usual", "collages", "fit", "score"))
    parser.add_argument("calibration", help="its name; of `collages` a new folder")
    parser.add_argument("runs", nargs="+", type=Path, help="of `usual` and `collages`: a dataset instead")
    parser.add_argument("--beside", nargs="*", default=[], help="other calibrations to score, by name or file")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "usual":
        _usual(given.calibration, str(given.runs[0]), given.out)
        return
    if given.what == "collages":
        _refuse(str(given.runs[0]))
        write(str(given.runs[0]), COLLAGES, Path(given.calibration))
        return
    runs = [Run.open(path) for path in given.runs]
    if given.what == "score":
        document = scored(runs, find_calibration(given.calibration), [find_calibration(one) for one in given.beside])
        (given.out or Path("grounding.json")).write_text(json.dumps(document, indent=1) + "\n")
        return
    _refuse(*(str(run.settings["dataset"]["spec"]) for run in runs))
    drawn = [str(run.settings["dataset"]["spec"]).startswith("scenes") for run in runs]
    facts = {"on": [f"{run.settings['model']['name']} on {_kind(run)}" for run in runs]}
    shares = [1 / drawn.count(kind) for kind in drawn]
    found = best(given.calibration, runs, shares, find_calibration(FIXED), facts)
    (given.out or CALIBRATIONS / f"{given.calibration}.json").write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    print(json.dumps(found.to_dict(), indent=1))


def _usual(model: str, dataset: str, out: Path | None) -> None:
    _refuse(dataset)
    usual(model, dataset).save(out or CALIBRATIONS / f"{model}.npz")


def _refuse(*datasets: str) -> None:
    if any(dataset.startswith("coco") for dataset in datasets):
        raise SystemExit("COCO is for reporting: nothing is fitted to it.")


def _kind(run: Run) -> str:
    """The dataset of a run without folders of this machine."""
    kind, _, where = str(run.settings["dataset"]["spec"]).partition(":")
    samples = f"{run.settings['dataset']['samples']} pictures"
    numbers, _, style = where.partition(",style=")
    drawn = f"drawn scenes {numbers}{' in a style of its own' if style else ''}"
    return f"{drawn if kind == 'scenes' else Path(where).name} ({samples})"


if __name__ == "__main__":
    main()
