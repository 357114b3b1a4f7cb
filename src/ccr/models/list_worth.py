"""What a list of concepts is worth before anything is refined, and how much of that is in its words."""

from __future__ import annotations

from typing import NamedTuple

from ccr.core.coding import HardThreshold
from ccr.core.concepts import Concepts
from ccr.models.classifier import ConceptClassifier
from ccr.models.part import Part
from ccr.progress import Tell, no_progress

#: Concepts per image and weights per class: short explanations, where names matter most.
LENGTH, WEIGHTS = 12, 5


class Worth(NamedTuple):
    """Accuracies in [0, 1] without refinement, of the list and of as many random words."""

    accuracy: float
    random_words: float

    @property
    def ahead(self) -> float:
        """How far the list is ahead of random words without refinement. The *meaning gap* is something else: of a
        refined model, at its own settings, over its controls (`ccr fit --controls`, `ccr compare`)."""
        return self.accuracy - self.random_words


def list_worth(
    concepts: Concepts, random_words: Concepts, *, train: Part, test: Part, tell: Tell = no_progress
) -> Worth:
    """The accuracy to expect without refinement, at 12 concepts per image and 5 weights per class."""
    accuracies = []
    for number, kind in enumerate((concepts, random_words)):
        tell(number, 2, "fitting without refinement")
        coder = HardThreshold(length=min(LENGTH, max(1, len(kind) / 4)), sign="positive")
        model = ConceptClassifier(kind, coder=coder, fidelity=1.0, weights_per_class=WEIGHTS, random_state=0)
        accuracies.append(float(model.fit(train.X, train.y).score(test.X, test.y)))
    return Worth(*accuracies)
