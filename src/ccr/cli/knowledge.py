"""`ccr knowledge ask`, `show`, `merge` and `check`: tables of which concept is true of which class."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, StoreEncoder, bar, console, note, print_json
from ccr.cli.common_data import (
    ConceptFile,
    DryRun,
    LlmModel,
    LlmUrl,
    chosen_endpoint,
    chosen_sources,
    in_doubt,
    kept_answers,
    store_encoder,
    training_rows,
)
from ccr.cli.common_photo import plain_table, show_estimate
from ccr.errors import CCRError
from ccr.utils.texts import did_you_mean, share_text, visible

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Knowledge

SOURCES = ("wordnet", "llm")
#: The longer side of a photo that a model is shown, in pixels.
SHOWN_PIXELS = 448
File = Annotated[Path, typer.Argument(help="Table of answers, CSV or Parquet: class, concept, answer.")]
#: A concept whose transfer is below this is named; 0.5 is chance.
LOW_TRANSFER = 0.6


def ask(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`, whose classes are asked about.")],
    concepts: ConceptFile,
    out: Annotated[Path, typer.Option(help="The table, CSV or Parquet; answers that it has already stay.")],
    sources: Annotated[str, typer.Option(help="wordnet, llm, or both, joined by a comma.")] = "wordnet",
    encoder: StoreEncoder = None,
    llm_url: LlmUrl = None,
    llm_model: LlmModel = None,
    photos: Annotated[
        int, typer.Option(min=0, max=8, help="Training photos of each class to show a model that sees.")
    ] = 0,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a first table of knowledge, to be corrected by somebody who knows the classes.

    `wordnet` needs nobody and knows little: it only ever says yes. `llm` asks a language model, one class and forty
    concepts at a time, its key in the environment as CCR_LLM_KEY or OPENAI_API_KEY; answers are kept, so that a second
    run asks only what is missing. Where --out exists, only questions without an answer are asked.

    Example: `ccr knowledge ask photos-store --concepts concepts.txt --out knowledge.csv`

    With a local model: `--sources wordnet,llm --llm-url http://localhost:11434/v1 --llm-model llama3.2`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Knowledge
    from ccr.vocab import read_concepts
    from ccr.vocab.llm import ask_model, estimated, model_questions

    wanted = chosen_sources(sources, SOURCES)
    endpoint = chosen_endpoint(wanted, llm_url, llm_model, dry_run=dry_run, photos=photos)
    opened, names = EmbeddingStore.open(store), read_concepts(concepts)
    before = Knowledge.read(out) if out.exists() else Knowledge.of([])
    failed: dict[str, str] = {}
    parts: list[Knowledge] = []
    if "wordnet" in wanted and not dry_run:
        parts.append(_from_wordnet(opened, names, encoder))
    if endpoint is not None:
        classes = [str(name) for name in opened.classes]
        questions = model_questions(classes, names, before, _pictures(opened, photos) if photos else None)
        if dry_run:
            cost = estimated(questions, endpoint, kept_answers())
            show_estimate(cost, endpoint.url, as_json=as_json)
            return
        with bar() as tell:
            told = ask_model(questions, endpoint, kept_answers(), tell=tell)
        failed = told.failed
        parts.append(told.knowledge)
    # Last, so that it counts among equals: who corrects a cell in a spreadsheet seldom changes its source.
    known = Knowledge.merge(*parts, before)
    known.write(out)
    facts: dict[str, Any] = {"answers": len(known), "new": len(known) - len(before), **dict(known.counts)}
    if as_json:
        print_json({"out": str(out), **facts, "conflicts": len(known.conflicts), "failed": failed})
        return
    for name, reason in list(failed.items())[:5]:
        note(f"note: the language model failed for {name!r}: it {reason}; run the same command again")
    console.print(
        f"{facts['answers']} answers in {escape(str(out))}, {facts['new']} of them new: {facts['yes']} yes, "
        f"{facts['no']} no; correct them in a spreadsheet, then `ccr fit --knowledge {escape(str(out))}`"
    )


def _from_wordnet(store: EmbeddingStore, names: list[str], spec: str | None) -> Knowledge:
    from ccr.vocab.choose import store_classes
    from ccr.vocab.proposals import wordnet_knowledge, wordnet_proposals
    from ccr.vocab.wordnet import WordNet

    wordnet = WordNet.open(log=note)
    with bar() as tell:
        tell(0, 0, "looking at the photos of each class")
        found = store_classes(store)
        embed = store_encoder(store, spec).embed_texts
        said = wordnet_proposals(found.names, wordnet, embed=embed, photos=found.photos, tell=tell)
    return wordnet_knowledge(found.names, names, said.proposals)


def _pictures(store: EmbeddingStore, count: int) -> dict[str, list[str]]:
    """Some training photos of each class as data: addresses."""
    from ccr.explain.terms import jpeg_address

    train = training_rows(store)
    found: dict[str, list[str]] = {}
    for row, label in enumerate(train.labels):
        shown = found.setdefault(str(label), [])
        if label is not None and len(shown) < count:
            shown.append(jpeg_address(train.image(row), SHOWN_PIXELS, quality=85))
    return found


def show(
    file: File,
    name: Annotated[str | None, typer.Option("--class", help="Only this class.")] = None,
    concept: Annotated[str | None, typer.Option(help="Only this concept.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a table says: of each class what it has and what it has not.

    Example: `ccr knowledge show knowledge.csv --class Granny-Smith`
    """
    from ccr.knowledge import Knowledge

    known = Knowledge.read(file)
    _check_known(name, known.classes, "class")
    _check_known(concept, known.concepts, "concept")
    part = known.about(None if name is None else [name], None if concept is None else [concept])
    if as_json:
        answers = [answer.to_dict() for answer in part]
        print_json({"file": str(file), "digest": known.digest, **dict(part.counts), "answers": answers})
        return
    counts = part.counts
    title = f"{file}: {len(part)} answers, {counts['yes']} yes, {counts['no']} no, {counts['unknown']} unknown"
    rows = [(label, *(_listed(part, row, value) for value in (1, -1))) for row, label in enumerate(part.classes)]
    console.print(plain_table(title, ("class", "yes", "no"), [row for row in rows if any(row[1:])], texts=(0, 1, 2)))
    if part.photos:
        note(f"and answers about {len(part.photos)} photos: --json lists them")
    for line in _unseen_lines(part):
        console.print(f"never a reason, because the encoder does not see it: {escape(visible(line))}", highlight=False)


def merge(
    files: Annotated[list[Path], typer.Argument(help="Two tables or more, the later one last.")],
    out: Annotated[Path, typer.Option(help="The table of all answers, CSV or Parquet.")],
    wide: Annotated[bool, typer.Option("--wide", help="A row per class and a column per concept.")] = False,
    as_json: Json = False,
) -> None:
    """Merge tables into one and print where they contradict each other.

    Where two answer the same question, a person counts over a file, a file over a language model, that over WordNet;
    among equals the later answer (`at`), then that of the later file.

    Example: `ccr knowledge merge wordnet.csv mine.csv --out knowledge.csv`
    """
    from ccr.knowledge import Knowledge

    known = Knowledge.merge(*(Knowledge.read(file) for file in files))
    known.write(out, wide=wide)
    if as_json:
        conflicts = [[kept.to_dict(), lost.to_dict()] for kept, lost in known.conflicts]
        print_json({"out": str(out), "answers": len(known), "digest": known.digest, "conflicts": conflicts})
        return
    for kept, lost in known.conflicts[:20]:
        note(
            f"conflict: {kept.photo or kept.label}, {kept.concept}: {kept.answer} ({kept.source} {kept.by}) overrules "
            f"{lost.answer} ({lost.source} {lost.by})"
        )
    console.print(f"{len(known)} answers in {escape(str(out))}; {len(known.conflicts)} conflicts")


def check(
    file: File,
    store: Annotated[Path, typer.Option(help="Store whose classes the table is for.")],
    concepts: Annotated[Path | None, typer.Option(help="List of concepts that the table is for.")] = None,
    encoder: StoreEncoder = None,
    as_json: Json = False,
) -> None:
    """Check a table against a store and a list: names that do not match, gaps, contradictions, and, with a list, how
    far each concept transfers to classes that it was not told about.

    Example: `ccr knowledge check knowledge.csv --store photos-store --concepts concepts.txt`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Knowledge
    from ccr.vocab import read_concepts

    known, opened = Knowledge.read(file), EmbeddingStore.open(store)
    names = list(known.concepts) if concepts is None else read_concepts(concepts)
    problems = _problems(known, list(opened.classes), names)
    moved = None if concepts is None else _transfer(known, training_rows(opened), names, encoder)
    answers = known.aligned(opened.classes, names)
    covered = float((answers != 0).mean()) if answers.size else 0.0
    if as_json:
        print_json({"file": str(file), "coverage": covered, "problems": problems, "transfer": moved})
        return
    for problem, found in problems.items():
        if found:
            console.print(f"[bold]{escape(problem)}[/bold]: {len(found)}")
            for line in found[:10]:
                console.print(f"  {escape(line)}")
    console.print(f"{share_text(covered)} of {answers.size} pairs of classes and concepts have an answer")
    if moved is not None:
        _show_transfer(moved)


def _unseen_lines(known: Knowledge) -> list[str]:
    """Concepts that were struck because the encoder does not see them, with who struck them and when."""
    struck = known.unseen.items()
    return [f"{name} ({', '.join(part for part in (one.by, one.at) if part) or one.source})" for name, one in struck]


def _listed(part: Knowledge, row: int, value: int) -> str:
    """The concepts for which a class has this answer, after their number; empty if there are none."""
    names = [part.concepts[at] for at in (part.table[row] == value).nonzero()[0]]
    return f"{len(names)}: {', '.join(names)}" if names else ""


def _check_known(name: str | None, known: tuple[str, ...], what: str) -> None:
    if name is not None and name not in known:
        raise CCRError(f"the table has no {what} {name!r}{did_you_mean(name, known)}; it has {len(known)}")


def _problems(known: Knowledge, classes: list[str], concepts: list[str]) -> dict[str, list[str]]:
    """Probable mistakes in a knowledge table, by kind of mistake."""
    apart, answers = known.unmatched(classes, concepts), known.aligned(classes, concepts)
    yes = answers > 0

    return {
        "classes of the table that the store does not have": [
            in_doubt(name, apart.meant) for name in apart.extra_classes
        ],
        "classes of the store that the table does not have": list(apart.missing_classes),
        "concepts of the table that the list does not have": [
            in_doubt(name, apart.meant) for name in apart.extra_concepts
        ],
        "concepts of the list that the table does not have": list(apart.missing_concepts),
        "classes without any yes": [name for name, row in zip(classes, yes, strict=True) if not row.any()],
        "concepts that are yes for every class, which tell nothing apart": [
            name for name, column in zip(concepts, yes.T, strict=True) if column.all()
        ],
        "concepts that are yes for no class, which nothing grounds": [
            name for name, column in zip(concepts, yes.T, strict=True) if not column.any() and name not in known.unseen
        ],
        "concepts that a fit leaves out, because the encoder does not see them": _unseen_lines(known),
        "answers that overrule their opposite": [
            f"{kept.photo or kept.label}, {kept.concept}: {kept.answer}, not {lost.answer} ({lost.source} {lost.by})"
            for kept, lost in known.conflicts
        ],
    }


def _transfer(known: Knowledge, train: Any, names: list[str], spec: str | None) -> dict[str, Any]:
    """The transfer of each concept on the training images, None where it cannot be measured."""
    from ccr.refine.region import measure_transfer
    from ccr.vocab import embed_concepts

    with bar() as tell:
        concepts = embed_concepts(names, store_encoder(train, spec), tell=tell)
        found = measure_transfer(known, concepts, train)
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def _show_transfer(moved: dict[str, Any]) -> None:
    measured = {name: value for name, value in moved.items() if value is not None}
    if not measured:
        console.print("transfer cannot be measured: too few classes have answers")
        return
    mean = sum(measured.values()) / len(measured)
    console.print(f"mean transfer {mean:.2f} of {len(measured)} concepts (0.5 is chance)")
    low = sorted((value, name) for name, value in measured.items() if value < LOW_TRANSFER)
    if low:
        shown = ", ".join(f"{name} ({value:.2f})" for value, name in low[:20])
        console.print(f"{len(low)} that hardly transfer, so that the encoder may not see them: {escape(shown)}")
