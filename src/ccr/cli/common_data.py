"""Options that several commands share, and what they read: splits of a store, encoders, lists of concepts, fits."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccr.cli.common import bar, fitting, note, warnings_as_notes
from ccr.errors import CCRError
from ccr.io.remote import AnyPath, as_place
from ccr.utils.texts import did_you_mean, listed

if TYPE_CHECKING:
    from ccr.classifier import ConceptClassifier
    from ccr.coding import HardThreshold
    from ccr.concepts import Concepts
    from ccr.controls import Stability
    from ccr.data.store import EmbeddingStore
    from ccr.encoders import Encoder
    from ccr.knowledge import Knowledge
    from ccr.model import ConceptModel
    from ccr.space import Dispersion
    from ccr.vocab.llm import Endpoint
    from ccr.vocab.proposals import Proposals

# Options that several commands take, turned into what the library takes; a mistake in them is misuse.
BatchSize = Annotated[int, typer.Option(min=1, help="Images that the encoder gets at once.")]
KnowledgeFile = Annotated[
    Path | None,
    typer.Option(
        "--knowledge",
        help="Table of which concept is true of which class (class,concept,answer): it forbids false claims and "
        "grounds concepts in what their classes look like.",
    ),
]
ClaimsOption = Annotated[
    str,
    typer.Option(
        "--claims",
        help="With --knowledge: open lets a class use any concept that is not `no` for it, confirmed only those that "
        "are `yes`.",
    ),
]
MinProbability = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=0.99,
        help="With answers about photos in --knowledge: neither show nor add a concept that a photo shows with a "
        "smaller probability; 0 does without. Default: 0.3 or less, as much as costs held-out images no accuracy.",
    ),
]
ConceptFile = Annotated[Path, typer.Option(help="Text file with one concept per line.")]
SplitStore = Annotated[Path, typer.Argument(help="Store made by `ccr embed`, with splits train and test.")]
Template = Annotated[str | None, typer.Option(help='Text around a concept for the encoder, such as "a photo of {}".')]
Center = Annotated[bool, typer.Option(help="Measure images and concepts from their own means.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
LlmUrl = Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint, such as http://localhost:11434/v1.")]
LlmModel = Annotated[str | None, typer.Option(help="The model's name there.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what asking would cost, without asking.")]
Outside = Annotated[bool, typer.Option("--allow-outside", help="Let a manifest name files outside its folder.")]


def chosen_coder(length: float | None, threshold: float | None, sign: Any = "positive") -> HardThreshold:
    """The coder of --length or --threshold, and --sign."""
    from ccr.coding import HardThreshold

    if length is not None and threshold is not None:
        raise typer.BadParameter("give --length or --threshold, not both: a length is turned into a threshold")
    if sign not in ("both", "positive"):
        raise typer.BadParameter(f"--sign is both or positive, got {sign!r}")
    if threshold is not None:
        return HardThreshold(threshold=threshold, sign=sign)
    return HardThreshold(length=12 if length is None else length, sign=sign)


def chosen_bound(fidelity: float | None, radius: float | None) -> dict[str, float | None]:
    """--fidelity or --radius, or neither."""
    from ccr.refine.region import chosen_radius

    try:
        chosen_radius(radius, fidelity)
    except CCRError as error:
        raise typer.BadParameter(str(error)) from None
    return {"fidelity": fidelity, "radius": radius}


def chosen_weights(text: str | None) -> dict[str, Any]:
    """--weights: a number per class, "all" or "auto"; nothing where the classifier's own default is wanted."""
    if text is None:
        return {}
    if text in ("all", "auto"):
        return {"weights_per_class": None if text == "all" else "auto"}
    if not (text.isdecimal() and int(text) >= 1):
        raise typer.BadParameter(f"--weights is a number of weights per class >= 1, all or auto, got {text!r}")
    return {"weights_per_class": int(text)}


#: --candidates of the commands that fit.
Candidates = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="Choose a class's weights among so many times as many concepts: those that its images show most by "
        "the concepts' own texts. Try 2 where explanations name what is not there. Default: among all; with "
        "--knowledge those that it confirms come first.",
    ),
]


def chosen_candidates(candidates: float | None, weights: str | None) -> float | None:
    """--candidates, which choose among weights and mean nothing where all are kept."""
    if candidates is not None and weights == "all":
        raise typer.BadParameter(
            "--candidates is about which weights a class keeps, and --weights all keeps all of them: drop one"
        )
    return candidates


def chosen_knowledge(path: Path | None, claims: str, **wanted: float | None) -> dict[str, Any]:
    """The classifier's parameters for --knowledge, --claims, and those of `wanted`, such as `min_transfer`."""
    if claims not in ("open", "confirmed"):
        raise typer.BadParameter(f"--claims is open or confirmed, got {claims!r}")
    if path is None and (claims != "open" or any(value is not None for value in wanted.values())):
        raise typer.BadParameter(
            "--claims, --min-transfer, --min-probability and --stated-truth are about what is known: give --knowledge "
            "FILE, too"
        )
    if path is None:
        return {}
    from ccr.knowledge import Knowledge

    return {"knowledge": Knowledge.read(path), "claims": claims, **wanted}


def chosen_dispersion(text: str) -> Dispersion | None:
    """The dispersion of --dispersion."""
    from ccr.space import parse_dispersion

    try:
        return parse_dispersion(text)
    except CCRError as error:
        raise typer.BadParameter(f"--{error}") from None


def chosen_store(store: Path | None, option: Path | None) -> Path | None:
    """The store that is given by its place or by --store; both are misuse."""
    if store is not None and option is not None:
        raise typer.BadParameter(f"give a store once, got {store} and --store {option}: drop one")
    return option if store is None else store


def chosen_sources(text: str, known: Sequence[str]) -> list[str]:
    """--sources: some of those known."""
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if not wanted or any(part not in known for part in wanted):
        raise typer.BadParameter(f"--sources are of {', '.join(known)}, joined by commas, got {text!r}")
    return wanted


def chosen_endpoint(
    sources: Sequence[str], url: str | None, model: str | None, *, dry_run: bool, **others: Any
) -> Endpoint | None:
    """The language model of --llm-url and --llm-model, if it is one of the `sources`; without it these, a dry run and
    `others` that were given are misuse."""
    from ccr.vocab.llm import Endpoint

    if "llm" not in sources:
        asked = {"llm_url": url, "llm_model": model, **others, "dry_run": dry_run}
        for name in [name for name, value in asked.items() if value]:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} is for the source llm: give --sources {','.join(sources)},llm, too")
        return None
    if url is None or model is None:
        raise typer.BadParameter("the source llm needs --llm-url and --llm-model")
    return Endpoint(url, model)


def kept_answers() -> Path:
    """Cache of answers of language models, so that nothing is paid twice."""
    from ccr.encoders.assets import cache_folder

    return cache_folder() / "llm"


#: A proposed list is mostly generic if a source names a class for less than this share of it.
MOSTLY = 0.5


def split_of(store: EmbeddingStore, name: str | None, *, labelled: bool = True) -> tuple[str, EmbeddingStore]:
    """The part of a store to measure on: the named split, or else the first of `test` and `val` that has images with a
    label (`labelled=False`: images), or else all of them; and of it the images with a label, if there are any."""
    present = [split for split in dict.fromkeys(store.splits) if split is not None]
    if name is not None and name not in present:
        close = did_you_mean(name, present)
        raise CCRError(f"the store has no split {name!r}{close}; it has {', '.join(present) or 'none'}")
    if name is not None:
        rows = store.select(name)
        return name, (rows.with_labels() if labelled else None) or rows
    for candidate in ("test", "val"):
        if candidate in present:
            rows = store.select(candidate)
            found = rows.with_labels() if labelled else rows
            if found is not None:
                return candidate, found
    return "all", (store.with_labels() if labelled else None) or store


def training_rows(store: EmbeddingStore) -> EmbeddingStore:
    """The rows of a store that may be trained on; an error where there are none."""
    free = store.trainable
    if not free.any():
        have = " and ".join(sorted({str(split) for split in store.splits}))
        raise CCRError(
            f"there is nothing to train on: all {len(store)} images of {store.path} are set aside as {have}; "
            "call a split train, or embed images without splits, and `ccr embed` makes them"
        )
    return store.select(rows=free)


def store_encoder(store: EmbeddingStore, spec: str | None, *, template: str | None = None) -> Encoder:
    """The store's own encoder, checked to be that one; `spec` says where it is now."""
    encoder = _encoder(spec, store.encoder, str(store.path), template=template)
    with warnings_as_notes():
        store.check_encoder(encoder.fingerprint)
    return encoder


def model_encoder(model: ConceptModel, spec: str | None) -> Encoder:
    """The encoder that a model reads, checked to be that one."""
    known = model.provenance
    encoder = _encoder(spec, known.encoder, "the model")
    if known.encoder_fingerprint not in (None, encoder.fingerprint):
        raise CCRError(
            f"the model was fitted on embeddings of encoder {known.encoder_fingerprint} ({known.encoder}), but "
            f"{encoder.name} is {encoder.fingerprint}: give the same weights with --encoder"
        )
    return encoder


def _encoder(given: str | None, noted: str | None, where: str, *, template: str | None = None) -> Encoder:
    """The encoder that is given, or else the one that `where` notes, which may not choose a folder of this machine."""
    from ccr.encoders import load_encoder
    from ccr.encoders.registry import check_named

    wanted = given or noted
    if wanted is None:
        raise CCRError(f"{where} does not say which encoder made its embeddings: give --encoder, such as bundled")
    if given is None:
        check_named(wanted, where)
    return load_encoder(wanted, template=template, log=note)


def load_concepts(store: EmbeddingStore, path: Path, *, spec: str | None, template: str | None = None) -> Concepts:
    """The concepts of a file, embedded by the store's own encoder."""
    from ccr.vocab import embed_concepts, read_concepts

    names = read_concepts(path)
    encoder = store_encoder(store, spec, template=template)
    with bar() as tell:
        return embed_concepts(names, encoder, tell=tell)


def check_list_target(out: Path) -> None:
    """Refuse to propose into a list that a person wrote or changed; one that was proposed may be proposed again."""
    from ccr.vocab.proposals import written_by_hand

    if written_by_hand(as_place(out)):
        raise CCRError(
            f"a proposed list is not written over one that was edited, and {out} is there already: give it with "
            f"--concepts {shlex.quote(str(out))}, or delete it"
        )


def propose_concepts(store: EmbeddingStore, out: Path, *, spec: str | None, template: str | None = None) -> Concepts:
    """Concepts for a store that comes without a list: proposed and chosen, written to `out` with their origins."""
    from ccr.vocab.choose import automatic_concepts
    from ccr.vocab.proposals import known_path, write_proposed

    check_list_target(out)
    encoder = store_encoder(store, spec, template=template)
    with bar() as tell:
        found = automatic_concepts(store, encoder, log=note, tell=tell)
    found.chosen.write(out)
    write_proposed(found.chosen.items, known_path(out))
    proposed, kept = len(found.proposed.items), len(found.concepts)
    shown = ", ".join(found.concepts.names[:6])
    note(
        f"no --concepts: proposed {proposed} for {len(store.classes)} classes, from WordNet and from the generic list "
        f"for such classes ({len(found.proposed.leaks)} that name a class left out), and chose {kept} on the training "
        f"photos: {shown}, ..."
    )
    note_unknown_classes(found.proposed.unknown, len(store.classes))
    note_mostly_generic(found.chosen, store.path, out)
    check = shlex.join(["ccr", "concepts", "check", str(out), "--store", str(store.path)])
    note(f"The list is {out}; `{check}` says more about it")
    return found.concepts


def note_unknown_classes(unknown: Sequence[str], total: int) -> None:
    """Say which class names WordNet does not know, what they get, and what does better."""
    if unknown:
        note(
            f"note: WordNet does not know {len(unknown)} of {total} classes in a sense that fits the others: "
            f"{listed(unknown, 10)}. "
            "They get what their words and the other classes suggest; a list by a person who knows them, a language "
            "model (`ccr concepts propose --sources wordnet,generic,llm`) or a few example photos (`ccr concepts "
            "learn`) will do better"
        )


def note_mostly_generic(proposed: Proposals, classes: AnyPath, out: Path) -> None:
    """Say of a list in `out` that it is mostly generic, if it is, and how to get a better one.

    `classes` is the store or the text file that it was proposed for.
    """
    if proposed.share_tied >= MOSTLY:
        return
    said, total, file = sum(item.tied for item in proposed.items), len(proposed.items), shlex.quote(str(out))
    propose = shlex.join(["ccr", "concepts", "propose", str(classes), "--out", str(out.with_name("better.txt"))])
    note(
        f"note: this list is mostly generic: a source ties {said or 'none'} of its {total} concepts to a class, the "
        f"others merely fit classes of this kind. A better one takes ten minutes: in {out}, delete "
        f"what is wrong, add five lines for each class with what you look at to recognise it, and fit with "
        f"--concepts {file}. Or ask a language model: `{propose} --sources wordnet,generic,llm "
        "--llm-url ... --llm-model ...`"
    )


def note_coverage(knowledge: Knowledge, classes: Sequence[str], concepts: Sequence[str]) -> None:
    """Say how much of the table is about these classes and concepts, and which names are not shared."""
    answers = knowledge.aligned(classes, concepts)
    yes, no, every = int((answers > 0).sum()), int((answers < 0).sum()), answers.size
    note(f"knowledge: {yes} yes and {no} no of {every} pairs of {len(classes)} classes and {len(concepts)} concepts")
    unseen = [name for name in concepts if name in knowledge.unseen]
    if unseen:
        note(f"left out, because the encoder does not see them: {listed(unseen, 5)}")
    apart = knowledge.unmatched(classes, concepts)
    for what, names in (
        ("classes that the table does not have", apart.missing_classes),
        ("classes of the table that the store does not have", apart.extra_classes),
        ("concepts of the table that the list does not have", apart.extra_concepts),
    ):
        if names:
            shown = listed([in_doubt(name, apart.meant) for name in names], 5)
            note(f"{what}: {len(names)} ({shown})")
    if "*" in apart.extra_classes:
        note("rows of the class * are for `ccr review --answers` alone: here each class needs a row of its own")


def in_doubt(name: str, meant: Mapping[str, str]) -> str:
    """A name of a table that is not known, with what was probably meant."""
    return f"{name} (did you mean {meant[name]}?)" if name in meant else name


def noted_controls(
    model: ConceptClassifier, store: EmbeddingStore, spec: str | None, *, template: str | None = None
) -> ConceptClassifier:
    """The model with its controls measured on the store, printed, and noted with it."""
    from ccr.classifier import ConceptClassifier
    from ccr.controls import NOTED, measure_controls

    encoder = store_encoder(store, spec, template=template)
    with fitting() as tell:
        found = measure_controls(model, store, encoder, tell=tell)
    for name, control in found.named.items():
        low, high = control.interval
        note(
            f"with {name} instead: {control.accuracy:.1%} on {found.images} images, so that the meaning "
            f"gap is {100 * control.gap:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
        )
    noted: ConceptClassifier = ConceptClassifier.of(model.model_.with_metrics(NOTED, found.to_dict()))
    return noted


def measured_stability(path: Path, store: EmbeddingStore, rows: EmbeddingStore) -> Stability:
    """Stability of what the model in a folder shows for these rows when it is fitted again on the store."""
    from ccr.classifier import ConceptClassifier
    from ccr.controls import stability

    model, train, jobs = ConceptClassifier.load(path), training_rows(store), os.cpu_count() or 1
    with fitting() as tell:
        return stability(model, train, train.y, rows, validation=train.validation, jobs=jobs, tell=tell)
