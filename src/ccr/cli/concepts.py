"""`ccr concepts propose`, `choose` and `learn`: from class names, or from photos, to a list of concepts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, StoreEncoder, bar, console, note, print_json
from ccr.cli.common_data import (
    DryRun,
    LlmModel,
    LlmUrl,
    chosen_endpoint,
    chosen_sources,
    chosen_store,
    kept_answers,
    note_mostly_generic,
    note_unknown_classes,
    store_encoder,
)
from ccr.cli.common_photo import show_estimate
from ccr.errors import CCRError, MissingExtraError

if TYPE_CHECKING:
    from ccr.vocab.choose import Classes
    from ccr.vocab.senses import EmbedTexts
    from ccr.vocab.wordnet import WordNet

SOURCES = ("wordnet", "generic", "llm")


def propose(
    classes: Annotated[Path, typer.Argument(help="Text file with one class name per line, or a store with labels.")],
    out: Annotated[
        Path, typer.Option(help="Text file of concepts, LIST.txt; LIST.origins.json says where each is from.")
    ],
    sources: Annotated[
        str, typer.Option(help="Sources, separated by commas: wordnet (offline), generic (by domain), llm.")
    ] = "wordnet,generic",
    encoder: Annotated[
        str | None,
        typer.Option(help="What chooses the sense of a name. Default: the store's own, or bundled; none: the first."),
    ] = None,
    llm_url: LlmUrl = None,
    llm_model: LlmModel = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Propose concepts for classes: parts, colours, shapes, kinds, surroundings, each with a reason.

    `wordnet` reads an installed WordNet or fetches one; the sense of a name is the one that fits the class's photos (of
    a store) or the other names. `generic` is a list by domain: parts of animals only where classes are animals. `llm`
    asks a language model, its key in the environment as CCR_LLM_KEY or OPENAI_API_KEY; answers are kept, so that a
    second run asks only what is missing. Class names and their synonyms are left out: they would give the label away.

    Example: `ccr concepts propose photos-store --out candidates.txt`, then `ccr concepts choose`

    With a local model: `--sources wordnet,llm --llm-url http://localhost:11434/v1 --llm-model llama3.2`
    """
    from ccr.vocab.llm import ask, estimate
    from ccr.vocab.proposals import known_path, reasoned_proposals, write_proposed

    wanted = chosen_sources(sources, SOURCES)
    endpoint = chosen_endpoint(wanted, llm_url, llm_model, dry_run=dry_run)
    found, embed = _classes(classes, encoder)
    if dry_run and endpoint is not None:
        cost = estimate(found.names, endpoint, kept_answers())
        show_estimate(cost, endpoint.url, as_json=as_json)
        return
    wordnet = _wordnet(wanted)
    with bar() as tell:
        answered = None if endpoint is None else ask(found.names, endpoint, kept_answers(), tell=tell)
        answers = answered.proposals if answered else ()
        photos: dict[str, Any] = {"embed": embed, "photos": found.photos, "grey": found.grey}
        result = reasoned_proposals(found.names, wordnet, **photos, sources=wanted, answered=answers, tell=tell)
    if not result.items:
        raise CCRError(f"nothing was proposed for {len(found.names)} classes: add generic to --sources")
    beside, known = result.write(out), known_path(out)
    write_proposed(result.items, known)
    facts: dict[str, Any] = {
        "out": str(out),
        "origins": str(beside),
        "classes": len(found.names),
        "knowledge": str(known),
        "concepts": len(result.items),
        "leaks": len(result.leaks),
        "unknown_classes": list(result.unknown),
        "tied": sum(item.tied for item in result.items),
        "grey": found.grey,
        "failed": answered.failed if answered else {},
    }
    if as_json:
        print_json(facts)
        return
    _show_proposed(facts)
    note_mostly_generic(result, classes, out)


def _show_proposed(facts: dict[str, Any]) -> None:
    """Print what was proposed; `facts` are those of the JSON."""
    note_unknown_classes(facts["unknown_classes"], facts["classes"])
    if facts["grey"]:
        note("note: the photos are grey, so that concepts that name a colour are left out")
    failed = facts["failed"]
    for name, reason in list(failed.items())[:5]:
        note(f"note: the language model failed for {name!r}: it {reason}")
    if failed:
        note(f"note: {len(failed)} classes failed in all; run the same command again, answers so far are kept")
    console.print(
        f"{facts['concepts']} concepts for {facts['classes']} classes are in {escape(facts['out'])}: a source ties "
        f"{facts['tied']} of them to a class, and photos of such classes may show the other "
        f"{facts['concepts'] - facts['tied']}; left out as naming a class: {facts['leaks']}\n"
        f"Why each is there: {escape(facts['origins'])}. Which class shows which: {escape(facts['knowledge'])}, for "
        "`ccr fit --knowledge`"
    )


def _classes(path: Path, spec: str | None) -> tuple[Classes, EmbedTexts | None]:
    """The classes of a file or a store, and what embeds texts to choose senses by."""
    from ccr.data.store import EmbeddingStore
    from ccr.encoders import load_encoder
    from ccr.vocab.choose import read_classes, store_classes

    if path.is_dir():
        store = EmbeddingStore.open(path)
        with bar() as tell:
            tell(0, 0, "looking at the photos of each class")
            found = store_classes(store)
        return found, None if spec == "none" else store_encoder(store, spec).embed_texts
    found = read_classes(path)
    if spec == "none":
        return found, None
    try:
        return found, load_encoder(spec or "bundled", log=note).embed_texts
    except MissingExtraError as error:
        note(f"note: the most frequent sense of each name is taken, because {error}")
        return found, None


def _wordnet(wanted: list[str]) -> WordNet | None:
    """WordNet, which also judges the domain of the generic list; None where it cannot be had and was not asked for."""
    from ccr.vocab.wordnet import WordNet

    if wanted == ["llm"]:
        return None
    try:
        return WordNet.open(log=note)
    except CCRError as error:
        if "wordnet" in wanted:
            raise
        note(f"note: the domain of the classes is judged by their names alone: {error}")
        return None


def choose(
    file: Annotated[Path, typer.Argument(help="Text file of candidates, one per line.")],
    out: Annotated[Path, typer.Option(help="Text file of the chosen ones, the most useful first.")],
    store: Annotated[
        Path | None, typer.Argument(help="Store with labels; only its training images are looked at.")
    ] = None,
    store_option: Annotated[Path | None, typer.Option("--store", help="The same; give one of the two.")] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, help="How many concepts. Default: as `ccr fit` alone, 5 for each class, from 64 to 1,024."),
    ] = None,
    encoder: StoreEncoder = None,
    as_json: Json = False,
) -> None:
    """Choose the concepts that cover every class, tell confusable classes apart and do not repeat each other.

    Among what is plausible: by the origins beside the list, a concept counts in full for the classes that it was
    proposed for and half where it only fits the domain. Greedy, with a guarantee: at least 63 % of the value of the
    best list of that size (docs/concepts.md). Concepts that the encoder hardly sees come last, and of near-duplicates
    one stays.

    Example: `ccr concepts choose candidates.txt --store photos-store --out concepts.txt --size 128`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.vocab import embed_concepts, read_concepts
    from ccr.vocab.choose import check_number, choose_on, usual_size
    from ccr.vocab.proposals import Origin, Proposal, Proposals, read_origins

    place = chosen_store(store, store_option)
    if place is None:
        raise typer.BadParameter("give the store whose photos choose: `ccr concepts choose FILE STORE`, or --store")
    names, origins, opened = read_concepts(file), read_origins(file), EmbeddingStore.open(place)
    check_number(len(names))
    wanted = size or usual_size(len(opened.classes))
    used = store_encoder(opened, encoder)
    by_hand = (Origin(None, "hand", "", str(file)),)
    proposals = Proposals(tuple(Proposal(name, origins.get(name, by_hand)) for name in names))
    with bar() as tell:
        candidates = embed_concepts(names, used, tell=tell)
        rows = choose_on(opened, candidates, used, size=wanted, proposals=proposals, tell=tell)
    chosen = Proposals(tuple(proposals.items[row] for row in rows))
    chosen.write(out)
    if as_json:
        print_json({"out": str(out), "candidates": len(names), "asked": wanted, "concepts": chosen.names})
        return
    why = "the others repeat them" if len(rows) < len(names) else "there are no more"
    fewer = f" (of {wanted} asked for: {why})" if len(rows) < wanted else ""
    console.print(f"{len(rows)} of {len(names)} concepts{fewer} in {escape(str(out))}; the first: ", end="")
    console.print(escape(", ".join(chosen.names[:8])))
    note_mostly_generic(chosen, opened.path, out)


def learn(
    name: Annotated[str, typer.Argument(help="What the concept is called, such as 'worn edge'.")],
    store: Annotated[Path, typer.Option(help="Store of similar photos, whose covariance sets the metric.")],
    shows: Annotated[list[Path], typer.Option(help="A photo, or a folder of photos, that show it; several times.")],
    lacks: Annotated[list[Path], typer.Option(help="A photo, or a folder of photos, that do not; several times.")],
    out: Annotated[Path, typer.Option(help="JSON file of the concept, for `ccr fit --learned FILE`.")],
    encoder: StoreEncoder = None,
    as_json: Json = False,
) -> None:
    """Make a concept from a few photos that show it and a few that do not: for what words or the encoder cannot say.

    It is the direction that parts them in the images' metric; the leave-one-out error says how often a photo that was
    left out would have fallen on the wrong side. At least two photos of each kind; ten are better.

    Example: `ccr concepts learn "worn edge" --store parts-store --shows worn/ --lacks intact/ --out worn.json`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.vocab.learned import learn_concept

    if not name.strip():
        raise typer.BadParameter(f"a concept needs a name, got {name!r}: give one such as 'worn edge'")
    opened = EmbeddingStore.open(store)
    used = store_encoder(opened, encoder)
    with bar() as tell:
        learned = learn_concept(name, shows, lacks, opened, used, tell=tell)
    learned.write(out)
    if as_json:
        print_json({"out": str(out), "name": name, "leave_one_out_error": learned.error, "wrong": list(learned.wrong)})
        return
    console.print(
        f"{escape(name)}: of the photos, each left out in turn, {learned.error:.0%} fall on the wrong side "
        f"(leave-one-out error); use it with --learned {escape(str(out))}"
    )
    for photo in learned.wrong[:10]:
        note(f"on the wrong side when left out: {photo}")
