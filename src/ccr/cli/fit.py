"""`ccr fit`: a store and a list of concepts to a model, beside its own baseline."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from ccr.cli.common import Json, Ray, StoreEncoder, check_extra, console, fitting, note, print_json
from ccr.cli.common_data import (
    Candidates,
    Center,
    ClaimsOption,
    Device,
    KnowledgeFile,
    MinProbability,
    Template,
    check_list_target,
    chosen_bound,
    chosen_candidates,
    chosen_coder,
    chosen_dispersion,
    chosen_knowledge,
    chosen_weights,
    load_concepts,
    note_coverage,
    noted_controls,
    propose_concepts,
    split_of,
    training_rows,
)
from ccr.cli.common_photo import evaluation_table, note_few, show_knowledge, show_sets
from ccr.io.remote import as_place

if TYPE_CHECKING:
    from ccr.calibration import SetQuality
    from ccr.classifier import ConceptClassifier
    from ccr.concepts import Concepts
    from ccr.data.store import EmbeddingStore
    from ccr.metrics import Evaluation
    from ccr.refine import Epoch
    from ccr.utils.processes import OnProgress

#: Candidates per weight where the knowledge was proposed and nobody asked for another number: WordNet is right too
#: rarely for its answers to displace all other concepts (docs/concepts.md).
PROPOSED_CANDIDATES = 2.0


def fit(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`.")],
    out: Annotated[Path, typer.Option(help="Folder of the model.")],
    concepts: Annotated[
        Path | None,
        typer.Option(
            help="Text file with one concept per line; # begins a comment. Default: proposed and chosen for the "
            "store's classes, and written beside the model as MODEL-concepts.txt, with what WordNet knows of the "
            "classes in MODEL-concepts-knowledge.csv."
        ),
    ] = None,
    knowledge: KnowledgeFile = None,
    claims: ClaimsOption = "open",
    min_probability: MinProbability = None,
    stated_truth: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=0.99,
            help="With answers about photos in --knowledge: the share of what explanations state by name that is to be "
            "true of the photo; the other concepts are added up in one line. Default: what is at least 60 % sure.",
        ),
    ] = None,
    min_transfer: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="With --knowledge: leave out concepts whose transfer is below this; 0.5 is chance."
        ),
    ] = None,
    learned: Annotated[
        list[Path] | None, typer.Option(help="Also a concept of `ccr concepts learn`; may be given several times.")
    ] = None,
    length: Annotated[
        float | None, typer.Option(help="Concepts per image, on average. Default: 12, or a third of a short list.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Instead of a length: the paper's lambda.")] = None,
    fidelity: Annotated[
        float | None,
        typer.Option(
            help="Least correlation, 0 to 1, of a concept's scores with its own text's; 1 is the baseline. "
            "Default: 0.875."
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="Instead: how far a concept may move, 0 to 2; 0.1 in the paper, 0 is the baseline."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Weights per class, held while concepts are refined: a number, all, or auto (the fewest that "
            "validation images find no worse; seven fits). Default: 5."
        ),
    ] = None,
    candidates: Candidates = None,
    dispersion: Annotated[
        str | None,
        typer.Option(help="symmetric, symmetric:STRENGTH, angular, angular:FACTOR or none. Default: symmetric:0.9."),
    ] = None,
    center: Center = True,
    sign: Annotated[str, typer.Option(help="positive: what an image shows; both: what it lacks, too.")] = "positive",
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Also calibrate, on images held out: prediction sets that hold the true class with this probability, "
            "such as 0.9, and a temperature."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data. Default: by its size.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same model.")] = 0,
    template: Template = None,
    encoder: StoreEncoder = None,
    baseline: Annotated[bool, typer.Option(help="Also fit the baseline (no refinement) for comparison.")] = True,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="Also fit with random words and random vectors in the concepts' place, print how far the model is "
            "ahead (the meaning gap), and note it with the model; two more fits.",
        ),
    ] = False,
    device: Device = "auto",
    ray: Ray = None,
    cpus: Annotated[
        int | None,
        typer.Option(min=1, help="With --ray: cores that the fit takes on a node. Default: all of the largest node."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a classifier on a store and print it beside its baseline.

    Concepts are embedded by the store's encoder and refined on the split `train`: within --fidelity of what their texts
    see, in the images' metric, or inside a ball of --radius. The epoch is chosen on `val`, and the table is measured on
    `test`.

    Example: `ccr fit photos-store --concepts concepts.txt --out photos-model --length 10`

    To say only what is true: `--knowledge knowledge.csv`, a table with the columns class, concept and answer.

    To know when not to answer: `--coverage 0.9`

    Truer, and shorter: `--fidelity 0.95 --weights 3 --candidates 2`. As in the paper: `--radius 0.1 --weights all`

    On a node of a cluster, with the same result: `--ray HOST:6379 --cpus 16`; every epoch is kept in MODEL-ray, from
    where another node, or the same command, continues.
    """
    from ccr.coding.coders import usual_length
    from ccr.data.store import EmbeddingStore
    from ccr.labels import store_parts

    # What cannot be done is refused before any work.
    out = _checked_target(out, concepts, ray, cpus)
    opened = EmbeddingStore.open(store)
    training_rows(opened)  # refuses a store of test images alone
    if controls:
        store_parts(opened, "--controls")
    about_photos = {"min_probability": min_probability, "stated_truth": stated_truth}
    options: dict[str, Any] = {
        "coder": chosen_coder(length, threshold, sign),
        **chosen_bound(fidelity, radius),
        **chosen_weights(weights),
        "candidates": chosen_candidates(candidates, weights),
        "dispersion": "auto" if dispersion is None else chosen_dispersion(dispersion),
        "center": "data" if center else None,
        "coverage": coverage,
        "max_iter": epochs,
        "random_state": seed,
        "device": device,
        **chosen_knowledge(knowledge, claims, min_transfer=min_transfer, **about_photos),
    }
    texts: dict[str, Any] = {"spec": encoder, "template": template}
    embedded = _embedded(opened, concepts, learned or [], out, texts)
    if knowledge is not None:
        note_coverage(options["knowledge"], opened.classes, embedded.names)
    elif concepts is None:
        options |= _proposed_knowledge(_list_beside(out), claims, options["candidates"])
    if length is None and threshold is None:
        # None is what the library chooses for as many concepts as are left once knowledge is heard.
        options["coder"] = None if sign == "positive" else chosen_coder(usual_length(len(embedded)), None, sign)
    with fitting() as tell:
        models = {
            name: _fitted(embedded, settings, opened, name, tell, out=out, ray=ray, cpus=cpus)
            for name, settings in _named(options, baseline=baseline).items()
        }
        found = _measured(models, opened)
    model = noted_controls(found.model, opened, encoder, template=template) if controls else found.model
    model.save(out)
    if as_json:
        _print_json(model, found, out, controls=controls)
    else:
        _show(model, found, out, store=None if knowledge is not None else store)


class MeasuredFits(NamedTuple):
    """The model to keep, which notes what was measured of it, and the evaluations of every model by name, on the images
    of a `split`; `sets` where the model is calibrated."""

    model: ConceptClassifier
    evaluations: dict[str, Evaluation]
    sets: SetQuality | None
    split: str


def _checked_target(out: Path, concepts: Path | None, ray: str | None, cpus: int | None) -> Path:
    """The model's folder, where it, and a list of concepts beside it, may be written."""
    from ccr.io.format import check_target

    out = out if out.name not in ("", "..") else out.resolve()
    check_target(out)
    if concepts is None:
        check_list_target(_list_beside(out))
    if ray is not None:
        check_extra()
    elif cpus is not None:
        raise typer.BadParameter("--cpus is for a fit on a cluster: give --ray, too, or leave it out")
    return out


def _list_beside(out: Path) -> Path:
    return out.with_name(f"{out.name}-concepts.txt")


def _embedded(
    store: EmbeddingStore, concepts: Path | None, learned: list[Path], out: Path, texts: dict[str, Any]
) -> Concepts:
    """The concepts of the file, or those proposed for the store, embedded by the store's encoder; and the learned
    ones."""
    from ccr.vocab.learned import LearnedConcept, join_learned

    if concepts is None:
        embedded = propose_concepts(store, _list_beside(out), **texts)
    else:
        embedded = load_concepts(store, concepts, **texts)
    return join_learned(embedded, [LearnedConcept.read(path) for path in learned], store.fingerprint)


def _proposed_knowledge(beside: Path, claims: str, candidates: float | None) -> dict[str, Any]:
    """The classifier's parameters for what WordNet knows of a proposed list; none where it knows nothing."""
    from ccr.vocab.proposals import known_path

    proposed = chosen_knowledge(known_path(beside), claims)
    return {**proposed, "candidates": candidates or PROPOSED_CANDIDATES} if len(proposed["knowledge"]) else {}


def _named(options: dict[str, Any], *, baseline: bool) -> dict[str, dict[str, Any]]:
    """Options of each model to fit, by name: the baseline without refinement if asked for, then the model to keep."""
    from ccr.refine.region import bound_text, chosen_radius, unrefined

    if not baseline or chosen_radius(options["radius"], options["fidelity"]) == 0:
        return {"CCR": options}
    without = unrefined(options)
    return {f"baseline ({bound_text(without)})": without, f"CCR ({bound_text(options)})": options}


def _fitted(
    concepts: Concepts,
    settings: dict[str, Any],
    store: EmbeddingStore,
    name: str,
    tell: OnProgress,
    *,
    out: Path,
    ray: str | None,
    cpus: int | None,
) -> ConceptClassifier:
    """A model fitted on the store, here or on a node of the cluster at `ray`."""
    from ccr import scale
    from ccr.classifier import ConceptClassifier

    def follow(epoch: Epoch, epochs: int) -> None:
        tell(epoch.epoch, epochs, name)

    model = ConceptClassifier(concepts, **settings)
    if ray is None:
        return model.fit(store, callback=follow)
    kept = as_place(out).with_name(f"{out.name}-ray{'-baseline' if name.startswith('baseline') else ''}")
    return scale.fit(model, store, callback=follow, storage=kept, address=ray, cpus=cpus)


def _measured(models: dict[str, ConceptClassifier], store: EmbeddingStore) -> MeasuredFits:
    """All models measured on the same images; the last one notes what was measured of it."""
    split, rows = split_of(store, None)
    evaluations = {name: model.evaluate(rows) for name, model in models.items()}
    name, model = list(models.items())[-1]
    sets = None if model.calibration_ is None else model.evaluate_sets(rows)
    found = evaluations[name].to_dict() | ({} if sets is None else {"sets": sets.to_dict()})
    counts = Counter("all" if part is None else str(part) for part in store.splits)
    noted = type(model).of(model.model_.with_metrics(split, found).with_metrics("images", dict(counts)))
    return MeasuredFits(noted, evaluations, sets, split)


def _print_json(model: ConceptClassifier, found: MeasuredFits, out: Path, *, controls: bool) -> None:
    results = {name: evaluation.to_dict() for name, evaluation in found.evaluations.items()}
    more: dict[str, Any] = {"controls": model.metrics_["controls"]} if controls else {}
    if found.sets is not None:
        more |= {"sets": found.sets.to_dict(), "temperature": model.calibration_.temperature}
    print_json({"model": str(out), "split": found.split, "epochs": len(model.history_), "results": results, **more})


def _show(model: ConceptClassifier, found: MeasuredFits, out: Path, *, store: Path | None) -> None:
    """Print the results; the `store` is that of a model to which nobody has told anything, and which is to be
    reviewed."""
    images = next(iter(found.evaluations.values())).n
    console.print(evaluation_table(found.evaluations, f"Measured on {images} images, split {found.split}"))
    note_few(images)
    if store is None:
        show_knowledge(found.evaluations)
    if found.split == "all":
        note("the store has no labelled test images, so these are training images: accuracy is flattered")
    console.print(f"The model is in {escape(str(out))}; try: ccr explain {escape(shlex.quote(str(out)))} IMAGE")
    if store is not None:
        review = escape(shlex.join(["ccr", "review", str(out), str(store)]))
        console.print(
            f"Nobody has confirmed what it says of your classes: {review} asks you about each claim, with photos"
        )
    if found.sets is not None:
        show_sets(found.sets, model.calibration_)
