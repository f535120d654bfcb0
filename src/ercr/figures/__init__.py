"""Figures for papers, drawn from explanations by matplotlib, which is loaded only when something is drawn.

    import ercr.figures as figures

    explanations = explainer.explain_all("photo.jpg", methods=["cam", "tam", "ercr"])
    figures.save(figures.methods_grid(explanations, ["dog", "sofa"]), "figure.pdf")

Nothing here runs a model but `responses`, which scores perturbed pictures for `faithfulness_film`.
"""

from ercr.figures.ablation import ABLATION, ablation_grid
from ercr.figures.film import faithfulness_film
from ercr.figures.grid import methods_grid
from ercr.figures.rescore import Response, responses
from ercr.figures.saving import save
from ercr.figures.strip import token_strip

__all__ = [
    "ABLATION",
    "Response",
    "ablation_grid",
    "faithfulness_film",
    "methods_grid",
    "responses",
    "save",
    "token_strip",
]
