"""ConceptModel: a fitted model as one frozen object, and an image's whole path through it.

embeddings = model.images(X)                        # unit rows in the model's space
codes = model.encode(X)                             # scores of the active concepts
logits = model.logits(X)                            # intercept + codes x weights
model.explain(X[0])                                 # the same sum, term by term
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr import metrics
from ccr.calibration import (
    Calibration,
    CodedLabels,
    PredictionSets,
    SetQuality,
    calibrate,
    check_coverage,
    halves,
    prediction_sets,
    set_quality,
)
from ccr.coding import (
    FEW_ROWS,
    Decide,
    Entries,
    Rule,
    ThresholdRule,
    TopRule,
    active_rows,
    apply_rule,
    code_chunks,
    decider,
    few_codes,
    map_codes,
    rule_at_length,
)
from ccr.coding.heads import LinearHead, entry_logits, few_logits
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.explain import (
    Audit,
    Coactivation,
    CoactivationOrder,
    Explanation,
    Explanations,
    ImageActivation,
    InterventionCurve,
    ModelView,
    Order,
    PatchTerms,
    Question,
    audit,
    coactivation,
    explain,
    intervention_curve,
    located,
    settling_question,
    top_images,
    view_codes,
)
from ccr.explain.claims import Claim, claims_of, measure_claims
from ccr.explain.counterfactual import CorrectedBatch
from ccr.inputs import Embeddings, one_row
from ccr.io.format import pack, read_folder, save_folder, unpack
from ccr.io.hub import OnHub
from ccr.io.provenance import Provenance, Signature, model_digest
from ccr.knowledge.shown import Shown, of_photos
from ccr.labels import known_labels, labels_like, labels_of, seed_of, store_part
from ccr.photos import OnPhotos
from ccr.space import Readouts, Space
from ccr.utils.arrays import LazyModule, softmax

if TYPE_CHECKING:
    from scipy import sparse

    from ccr.export.torch_module import ConceptModule
else:
    sparse = LazyModule("scipy.sparse")


class LinearModel(ABC):
    """Base class of all fitted models: `space.images(X)` -> `encode` -> `head` -> prediction and explanation.

    Logits are those of a linear head on codes over named columns. A model is never changed.
    """

    space: Space
    head: LinearHead
    classes: np.ndarray
    provenance: Provenance

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the codes' columns."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Columns that X must have."""

    @abstractmethod
    def encode(self, X: Any) -> Any:
        """Codes (m, n) of the embeddings X (m, d), CSR or dense."""

    @abstractmethod
    def map_logits(self, X: Any, use: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """Results of `use` on the logits (b, classes) of X, a chunk of rows at a time, in order."""

    def logits(self, X: Any) -> np.ndarray:
        """Logits (m, classes): intercept plus the sum of contributions."""
        return np.concatenate(self.map_logits(X, lambda logits: logits))

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of X (m, d)."""
        return self.classes[np.concatenate(self.map_logits(X, lambda logits: logits.argmax(axis=1)))]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (m, classes), columns in the order of `classes`."""
        return np.concatenate(self.map_logits(X, lambda logits: softmax(logits.astype(np.float64), axis=1)))

    def score(self, X: Any, y: Any = None) -> float:
        """Share of the rows of X (m, d) whose prediction is their label y (m,); a store brings its own labels."""
        predicted = self.predict(X)
        return float(np.mean(predicted == labels_like(self.classes, labels_of(X, y), len(predicted))))

    def explain(self, x: Any) -> Explanation:
        """Explanation of the prediction of the embedding x (d,)."""
        return self._explained(self._row_code(one_row(x)))

    def explain_many(self, X: Any) -> Explanations:
        """Explanations of the rows of the embeddings X (m, d); `to_frame` makes a table of them."""
        codes = sparse.csr_matrix(self._explained_code(X))
        return Explanations(
            [self._explained(codes[row]) for row in range(codes.shape[0])],
            list(X.index) if hasattr(X, "index") and hasattr(X, "columns") else None,
        )

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder; an older model there is replaced whole."""

    @classmethod
    @abstractmethod
    def load(cls, path: str | os.PathLike[str]) -> LinearModel:
        """Read a model written by `save`."""

    def images(self, X: Any) -> Embeddings:
        """X (m, d) in the model's space; embeddings of another encoder or dimension are refused."""
        theirs, ours = store_part(X, "fingerprint"), self.provenance.encoder_fingerprint
        if theirs is not None and ours is not None and theirs != ours:
            raise CCRError(
                f"this model reads embeddings of encoder {ours}, got a store of encoder {theirs}: "
                "embed the images with the model's encoder"
            )
        embeddings = self._placed(X)
        embeddings.check_dimension(self.dimension)
        return embeddings

    def _row_code(self, rows: np.ndarray) -> Any:
        """Code of one row (1, d) for its explanation: CSR, or `Entries`."""
        return self._explained_code(rows)

    def _explained_code(self, rows: Any) -> sparse.csr_matrix:
        """Codes of rows (m, d) for their explanations."""
        return sparse.csr_matrix(self.encode(rows))

    @property
    def answers(self) -> np.ndarray | None:
        """Known answers about each class and column (classes, n): 1 yes, -1 no, 0 unknown; None if columns are not
        concepts."""
        return None

    @property
    def confirmed(self) -> np.ndarray | None:
        """`answers` by people alone, which explanations mark: unknown where only WordNet or a language model says
        yes."""
        return None

    def _explained(self, code: Any) -> Explanation:
        """The explanation of one code (1, n)."""
        classes = self.classes.tolist()
        shown = of_photos(getattr(self, "shown", None))
        return explain(code, self.head, concepts=self.names, classes=classes, answers=self.confirmed, shown=shown)

    def _placed(self, X: Any) -> Embeddings:
        return self.space.images(X)

    def _freeze(self) -> None:
        """Make the head's arrays and the classes read-only."""
        for array in (self.head.coef, self.head.intercept, self.classes):
            array.setflags(write=False)


#: Training images on which claims are measured, and claims that are measured, at most.
CLAIM_ROWS, MOST_CLAIMS = 16_384, 20_000


@dataclass(frozen=True, eq=False)
class ConceptModel(LinearModel, OnPhotos, OnHub):
    """A fitted classifier, frozen: the prediction of an embedding is a short, exact sum of named concepts.

    Parameters
    ----------
    space : where images and texts are put before they meet.
    concepts : names and unit embeddings (n, d) in that space, as refined.
    initial : the same concepts where refinement started.
    rule : from embeddings to codes.
    head : weights (classes, n) and intercept (classes,).
    classes : labels (classes,), sorted.
    provenance : where the model comes from.
    calibration : how sure it is, on images held out; None where that was not asked for.
    shown : from scores to the probability that an image shows a concept; None without knowledge.
    signature : who confirmed all its claims; None without one. `is_signed` says whether it still holds.
    """

    space: Space
    concepts: Concepts
    initial: Concepts
    rule: Rule
    head: LinearHead
    classes: np.ndarray
    provenance: Provenance
    calibration: Calibration | None = None
    shown: Shown | None = None
    signature: Signature | None = None

    def __post_init__(self) -> None:
        self._freeze()

    @property
    def names(self) -> tuple[str, ...]:
        return self.concepts.names

    @property
    def dimension(self) -> int:
        return self.concepts.dimension

    @cached_property
    def digest(self) -> str:
        """A fingerprint of everything that decides what the model says."""
        return model_digest(self)

    @cached_property
    def is_signed(self) -> bool:
        """Whether a person signed the model after every claim was confirmed, and nothing was changed since."""
        return self.signature is not None and self.signature.fits(self)

    def row(self, concept: str) -> int:
        """Row number of the concept among `concepts`."""
        if concept not in self.names and concept in self.provenance.left_out:
            if self.provenance.knowledge is not None and concept in self.provenance.knowledge.unseen:
                raise CCRError(
                    f"{concept!r} was left out because the encoder does not see it, as answers about photos say: "
                    "delete its rows with the source unseen from the table of knowledge, and fit again"
                )
            raise CCRError(
                f"{concept!r} was left out when the model was fitted, because no class has a weight for it: fit with "
                "more weights_per_class, or add it with edit().add"
            )
        return self.concepts.index(concept)

    def encode(self, X: Any) -> Any:
        """Codes of X (m, n), CSR: the scores of the active concepts."""
        images = self.images(X)
        few = self._few(images)
        if few is not None:
            return sparse.csr_matrix((few.data, few.indices, few.pointers), shape=(len(images), len(self.concepts)))
        return apply_rule(self.rule, images, self.concepts.embeddings, self._decide)

    def map_logits(self, X: Any, use: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        (weights, bias), embeddings, dictionary = self._weights, self.images(X), self.concepts.embeddings
        few = self._few(embeddings)
        if few is not None:
            return [use(few_logits(few, weights, bias))]

        def predicted(_: slice, codes: Entries) -> np.ndarray:
            return use(entry_logits(codes, weights, bias))

        return map_codes(self.rule, embeddings, dictionary, predicted, decide=self._decide)

    def explain_patches(self, patches: PatchTerms) -> Explanation:
        """Explanation with maps of an image whose embedding comes as a sum over its patches: the
        explanation's `where` splits every code over the patches."""
        explanation = self.explain(patches.embedding)
        rows, constants = active_rows(self.rule, self.concepts.embeddings[explanation.columns])
        directions, means = self.space.readouts(patches.embedding, rows)
        return located(explanation, Readouts(directions, means + constants), patches)

    def evaluate(self, X: Any, y: Any = None) -> metrics.Evaluation:
        """Accuracy with its interval, macro F1, top-5, calibration error, length, concepts in play, weights per class,
        fidelity, sparsity, deviation, retention, and images and accuracy by class, on labelled images X (m, d), y (m,);
        a store brings its own labels."""
        embeddings = self.images(X)
        truth = known_labels(labels_of(X, y), len(embeddings), self.classes)
        numbers = np.searchsorted(self.classes, truth)
        winners, first, sure, active, silent, playing, done = [], [], [], 0, 0, 0.0, 0
        truths = np.zeros(3, np.int64)
        for codes in code_chunks(self.rule, embeddings, self.concepts.embeddings, self._decide):
            logits = self.head.logits(codes)
            winners.append(logits.argmax(axis=1))
            first.append(metrics.among_first(logits, numbers[done : done + len(logits)], 5))
            sure.append(metrics.confidences(logits))
            active += codes.nnz
            silent += int((~metrics.has_reason(codes, self.head)).sum())
            playing += metrics.in_play(codes, self.head) * codes.shape[0]
            if self.provenance.knowledge is not None:
                truths += metrics.true_shown(codes, self.head, numbers[done : done + len(logits)], self.answers)
            done += len(logits)
        predicted = self.classes[np.concatenate(winners)]
        present, counts = np.unique(truth, return_counts=True)
        right, m = int((predicted == truth).sum()), len(truth)
        return metrics.Evaluation(
            n=m,
            accuracy=right / m,
            interval=metrics.wilson_interval(right, m),
            length=active / m,
            sparsity=active / m / (len(self.concepts) + len(self.provenance.left_out)),
            in_play=playing / m,
            without_reason=silent / m,
            weights_per_class=metrics.weights_per_class(self.head),
            fidelity=metrics.Fidelity.of(self.fidelity(X)),
            deviation=metrics.deviation(self.concepts, self.initial),
            retention=metrics.retention(self.concepts, self.initial),
            per_class=metrics.per_class_accuracy(truth, predicted),
            class_images=dict(zip(present.tolist(), counts.tolist(), strict=True)),
            macro_f1=metrics.macro_f1(truth, predicted),
            top5=float(np.concatenate(first).mean()),
            calibration_error=metrics.calibration_error(np.concatenate(sure), predicted == truth),
            truth=int(truths[0]) / int(truths[1]) if truths[1] else None,
            unanswered=1.0 - int(truths[1]) / int(truths[2]) if truths[2] else None,
            **self._known_facts(X),
        )

    def _known_facts(self, X: Any) -> dict[str, Any]:
        """Fields that knowledge adds to an evaluation on X, except `truth`; empty without knowledge."""
        if self.provenance.knowledge is None:
            return {}
        transfer = np.array(list((self.transfer or {}).values()), np.float64)
        known = transfer[np.isfinite(transfer)]
        return {
            "transfer": float(known.mean()) if len(known) else None,
            "text_fidelity": None if self.provenance.texts is None else metrics.Fidelity.of(self.text_fidelity(X)),
            "claims": self.claim_counts,
        }

    def fidelity(self, X: Any) -> np.ndarray:
        """Fidelity of each concept (n,): correlation over images X (m, d) of its scores with those of where it started:
        of its own text or, with knowledge, of where it was grounded."""
        return metrics.fidelity(self.images(X), self.concepts, self._origins())

    def text_fidelity(self, X: Any) -> np.ndarray:
        """Text fidelity of each concept (n,): correlation over images X (m, d) of its scores with its bare text's."""
        return metrics.fidelity(self.images(X), self.concepts, self._own_texts())

    @cached_property
    def answers(self) -> np.ndarray:
        """Known answers about each class and concept (classes, n): 1 yes, -1 no, 0 unknown."""
        known = self.provenance.knowledge
        if known is None:
            return np.zeros(self.head.coef.shape, np.int8)
        return known.aligned(self.classes.tolist(), self.names)

    @cached_property
    def confirmed(self) -> np.ndarray:
        """`answers` by people alone, which explanations mark: unknown where only WordNet or a language model says
        yes. Claims of a signed model are confirmed, also those that were answered after the fit."""
        known = self.provenance.knowledge
        said = self.answers if known is None else known.aligned(self.classes.tolist(), self.names, by_people=True)
        if not self.is_signed:
            return said
        return np.where(self.head.coef > 0, np.int8(1), said)  # a signature holds where every claim is confirmed

    @property
    def claim_counts(self) -> dict[str, int]:
        """Numbers of claims, positive weights, by status: confirmed, unknown, contradicted."""
        verdicts = self.confirmed[self.head.coef > 0]
        counts = {"confirmed": verdicts > 0, "unknown": verdicts == 0, "contradicted": verdicts < 0}
        return {name: int(mask.sum()) for name, mask in counts.items()}

    @property
    def transfer(self) -> dict[str, float] | None:
        """Transfer by concept: AUC of its scores on classes that its grounding left out; 0.5 is chance, NaN where it
        could not be measured. None without knowledge."""
        measured = self.provenance.transfer
        return None if measured is None else {name: measured.get(name, math.nan) for name in self.names}

    def claims(self, X: Any = None, y: Any = None) -> tuple[Claim, ...]:
        """Every claim, a positive weight read as "the class shows the concept": by class, the largest weight first,
        with what is known of it and what images say: those of X (m, d) and y (m,), or a store; without, the training
        images, if the model knows."""
        seen = self.provenance.seen
        if X is not None:
            numbers = self._numbers(X, y)
            if numbers is None:
                raise CCRError("claims are measured on images with labels, got none: give y")
            seen = measure_claims(self._codes(X), self.head, numbers)
        known = self.provenance.knowledge
        signed = self.signature.may if self.signature is not None and self.is_signed else ()
        return claims_of(self.head, self.classes.tolist(), self.names, knowledge=known, seen=seen, signed=signed)

    def calibrated(self, X: Any, y: Any = None, *, coverage: float = 0.9, random_state: Any = 0) -> ConceptModel:
        """The same model with a temperature and prediction sets of this coverage, by images X (m, d) and labels y (m,)
        that it was not fitted on: one half of them for each.

        `random_state`, None, a whole number or a RandomState, says which half. A calibration error that was noted with
        the model is dropped: it was that of the old temperature.
        """
        coverage = check_coverage(coverage)
        codes = self.encode(X)
        truth = known_labels(labels_of(X, y), codes.shape[0], self.classes)
        labelled = CodedLabels(codes, np.searchsorted(self.classes, truth).astype(np.int64))
        whole = isinstance(random_state, (int, np.integer)) and random_state >= 0
        seed = int(random_state) if whole else seed_of(random_state)
        noted = {
            name: {key: value for key, value in measured.items() if key != "calibration_error"}
            if isinstance(measured, Mapping)
            else measured
            for name, measured in self.provenance.metrics.items()
        }
        warm = replace(self, provenance=replace(self.provenance, metrics=noted))
        return warm.with_certainty(*halves(labelled, self.classes, seed), coverage)

    def with_certainty(self, warm: CodedLabels, held: CodedLabels, coverage: float) -> ConceptModel:
        """The same model at the temperature that fits `warm`, with sets of this coverage by `held`, other images."""
        head, calibration = calibrate(self.head, warm, held, coverage)
        return replace(self, head=head, calibration=calibration)

    def predict_set(self, X: Any) -> PredictionSets:
        """Prediction sets: for each row of X (m, d) the classes that it may be: the true one is among them as often as
        the coverage that the model was calibrated for. Rows that show no concept with a weight for their class are
        not answered: their probabilities are those of the bias alone."""
        least = self._certainty().least_probability
        return prediction_sets(
            self.predict_proba(X), least, tuple(self.classes.tolist()), reasons=self._have_reasons(X)
        )

    def _have_reasons(self, X: Any) -> np.ndarray:
        """Mask (m,) of the rows of X that have a contribution to their predicted class."""
        return metrics.has_reason(self.encode(X), self.head)

    def evaluate_sets(self, X: Any, y: Any = None) -> SetQuality:
        """Coverage, mean size and answered share of the prediction sets of labelled images X (m, d), y (m,)."""
        sets, asked = self.predict_set(X), self._certainty().coverage
        truth = known_labels(labels_of(X, y), len(sets), self.classes)
        return set_quality(sets, np.searchsorted(self.classes, truth), asked)

    def question(self, x: Any) -> Question | None:
        """The question about an embedding x (d,) that the model does not answer: the one concept whose confirmation
        would settle it; None where there is none, or where nothing has to be settled."""
        certainty = self._certainty()
        rows = one_row(x)
        if not self.predict_set(rows).abstains[0]:
            return None
        images = self.images(rows).take(np.arange(1)).numpy().astype(np.float64)
        codes = self.encode(rows)
        dense = codes if isinstance(codes, np.ndarray) else codes.toarray()  # the light runtime has no CSR
        return settling_question(
            self.names,
            dense[0].astype(np.float64),
            (images @ self.concepts.embeddings.T)[0],
            self.head,
            typical=certainty.typical,
            classes=self.classes.tolist(),
            least=certainty.least_probability,
        )

    def _certainty(self) -> Calibration:
        if self.calibration is None:
            raise CCRError(
                "the model was not calibrated, so it does not know when not to answer: fit with coverage=0.9 (`ccr fit "
                "--coverage 0.9`), or use calibrated(X, y) with images that it was not fitted on"
            )
        return self.calibration

    def view(self, X: Any, y: Any = None) -> ModelView:
        """View of the model on (X, y): concepts that carry each class, confused classes, unused concepts.

        A store brings its own labels; without any, images count for the class predicted.
        """
        numbers = self._numbers(X, y)
        return view_codes(self._codes(X), self.head, concepts=self.names, classes=self.classes.tolist(), y=numbers)

    def coactivation(self, X: Any, *, top: int = 20, by: CoactivationOrder = "jaccard") -> tuple[Coactivation, ...]:
        """The pairs of concepts most often active in the same images of X."""
        return coactivation(self._codes(X), concepts=self.names, top=top, by=by)

    def images_of(
        self, X: Any, concepts: str | Sequence[str] | None = None, *, top: int = 9, borderline: bool = False
    ) -> dict[str, tuple[ImageActivation, ...]]:
        """The rows of X that show each of these concepts (None: all) most; or, `borderline`, only just."""
        names = [concepts] if isinstance(concepts, str) else self.names if concepts is None else concepts
        columns = np.array([self.row(name) for name in names], dtype=np.int64)
        shown = top_images(self._codes(X), columns=columns, top=top, least=borderline)
        return {self.names[column]: rows for column, rows in zip(columns, shown, strict=True)}

    def audit(self, X: Any = None, *, neighbours: int = 5, images: int = 5) -> Audit:
        """Do concepts still see what their texts see? On X (m, d), with the images that each gained and lost; without,
        on the training images, if the model knows.

        Codes of the texts are made with the threshold that gives them the same length on X, if a length was asked for.
        """
        options: dict[str, Any] = {"neighbours": neighbours, "images": images, "fidelity": self.provenance.fidelity}
        options["transfer"] = self.transfer
        if X is not None:
            origins, embeddings = self._origins(), self.images(X)
            # At the model's threshold the texts would show more or fewer concepts, and all of them seem to gain or
            # lose images: their threshold is the one of the same mean length.
            length = sum(codes.nnz for codes in self._codes(X)) / len(embeddings)
            options["before"] = code_chunks(rule_at_length(self.rule, length, embeddings, origins), embeddings, origins)
            options |= {"after": self._codes(X), "fidelity": self.fidelity(X)}
        return audit(self.initial, self.concepts, **options)

    def intervention_curve(
        self,
        X: Any,
        y: Any = None,
        *,
        correct: ModelView | Any,
        steps: Sequence[int] = (0, 1, 2, 3, 5, 8, 13, 20),
        order: Order = "effect",
        random_state: int = 0,
    ) -> InterventionCurve:
        """Accuracy on (X, y) against the number of code entries that are set to what they should be.

        `correct` are the codes of each class (classes, concepts), or a `view` of other data, whose classes' mean
        codes are taken: as if an expert who knows the true class corrected the concepts.
        """
        numbers = self._numbers(X, y)
        if numbers is None:
            raise CCRError("an intervention curve needs the true labels, got None: give y")
        codes = np.asarray(correct.mean_codes if isinstance(correct, ModelView) else correct, dtype=np.float64)
        if codes.shape != self.head.coef.shape:
            raise CCRError(f"correct must be (classes, concepts) = {self.head.coef.shape}, got {codes.shape}")
        if not np.isfinite(codes).all():
            raise CCRError("correct must be finite, got NaN or infinity: a class without images has no mean codes")
        return intervention_curve(
            self._corrected(X, numbers, codes), self.head, steps=steps, order=order, seed=random_state
        )

    def with_metrics(self, name: str, values: Any) -> ConceptModel:
        """The same model with measurements (JSON types) noted in its provenance under a name, such as "test"."""
        noted = {**self.provenance.metrics, name: values}
        return replace(self, provenance=replace(self.provenance, metrics=noted))

    def with_claims_seen(self, placed: Embeddings, y: np.ndarray) -> ConceptModel:
        """The same model that knows what training images, already in its space, say of its claims: at most
        `CLAIM_ROWS` of them, evenly spaced, with class numbers y (m,). A head with nearly all weights keeps nothing:
        its claims are too many to read."""
        if np.count_nonzero(self.head.coef > 0) > MOST_CLAIMS:
            return self
        # Evenly spaced rather than drawn: files are often sorted by class, and no seed is needed.
        rows = np.linspace(0, len(placed) - 1, min(CLAIM_ROWS, len(placed))).astype(np.int64)
        images = Embeddings.ready(placed.take(rows))
        codes = code_chunks(self.rule, images, self.concepts.embeddings, self._decide)
        return replace(self, provenance=replace(self.provenance, seen=measure_claims(codes, self.head, y[rows])))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder; an older model there is replaced whole."""
        save_folder(path, pack(self), unpack)

    def shared_model(self) -> ConceptModel:
        """The model itself, which the model card describes."""
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ConceptModel:
        """Read a model written by `save`."""
        return cls(**read_folder(path, unpack))

    def to_onnx(self, path: str | os.PathLike[str], *, with_encoder: bool = False) -> None:
        """Write an ONNX file: embeddings in; label, probabilities, codes, contributions to the label, and logits out.

        `with_encoder` joins the bundled image tower: the pixels of one photo in. Models that code by a pursuit or the
        lasso are refused.
        """
        from ccr.export.onnx_model import write_onnx

        write_onnx(self, path, with_encoder=with_encoder)

    def to_torch(self) -> ConceptModule:
        """A module from embeddings (b, d) to (logits, codes), with gradients; it can be scripted and exported."""
        from ccr.export.torch_module import torch_module

        return torch_module(self)

    def _few(self, images: Embeddings) -> Entries | None:
        """Codes of a few images, with NumPy alone; None for many, and where codes are solved for by the kernels."""
        # In float64, row by row: the active set is what the kernels decide (their close calls are decided in float64,
        # too), and neither torch nor numba, seconds of import, is needed.
        if len(images) > FEW_ROWS or not isinstance(self.rule, (ThresholdRule, TopRule)):
            return None
        return few_codes(self.rule, images.exact(np.arange(len(images))), self._wide_concepts)

    def _row_code(self, rows: np.ndarray) -> Any:
        few = self._few(self.images(rows))
        return self._explained_code(rows) if few is None else few

    @cached_property
    def _wide_concepts(self) -> np.ndarray:
        return self.concepts.embeddings.astype(np.float64)

    @cached_property
    def _decide(self) -> Decide:
        """Function from embeddings to codes, cached: packing the concepts takes longer than coding a few images."""
        return decider(self.rule, self.concepts.embeddings)

    @cached_property
    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """The head as predictions use it: weights (n, classes) and intercept, float32."""
        return self.head.astype(np.float32).transposed()

    def __getstate__(self) -> dict[str, Any]:
        """The model's fields without its caches: copies and other processes make those anew."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _origins(self) -> np.ndarray:
        """Origins (n, d) that fidelity and deviation compare with: grounded concepts with knowledge, else the texts."""
        return self._own_texts() if self.provenance.knowledge is None else self.initial.embeddings

    def _own_texts(self) -> np.ndarray:
        """The concepts' own texts (n, d) in the space of the images."""
        if self.provenance.texts is None:
            raise CCRError("the model does not know its concepts' text embeddings, so it has no fidelity: fit it again")
        return self.space.own_texts(self.provenance.texts.embeddings)

    def _codes(self, X: Any) -> Iterator[sparse.csr_matrix]:
        return code_chunks(self.rule, self.images(X), self.concepts.embeddings, self._decide)

    def _numbers(self, X: Any, y: Any) -> np.ndarray | None:
        """Class numbers of the labels given, or of those that X brings; None if there are none."""
        labels = labels_of(X, y)
        if labels is None:
            return None
        return np.asarray(np.searchsorted(self.classes, known_labels(labels, len(self.images(X)), self.classes)))

    def _corrected(self, X: Any, numbers: np.ndarray, correct: np.ndarray) -> Iterator[CorrectedBatch]:
        done = 0
        for codes in self._codes(X):
            y = numbers[done : done + codes.shape[0]]
            yield CorrectedBatch(codes, correct[y], y)
            done += codes.shape[0]
