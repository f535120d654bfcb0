"""Figures for papers, drawn from explanations with matplotlib, which is imported on first use.

    import ercr.figures as figures

    explanations = explainer.explain_all("photo.jpg", methods=["cam", "tam", "ercr"])
    figures.save(figures.methods_grid(explanations, ["dog", "sofa"]), "figure.pdf")

Only `responses` runs a model: it scores perturbed pictures for `faithfulness_film`.
"""

from ercr.figures.ablation import ABLATION, ablation_grid
from ercr.figures.film import faithfulness_film
from ercr.figures.frames import film_strip
from ercr.figures.grid import methods_grid
from ercr.figures.rescore import Response, responses
from ercr.figures.saving import save
from ercr.figures.strip import token_strip

__all__ = [
    "ABLATION",
    "Response",
    "ablation_grid",
    "faithfulness_film",
    "film_strip",
    "methods_grid",
    "responses",
    "save",
    "token_strip",
]
