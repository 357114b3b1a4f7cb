"""`ccr concepts propose`: from class names to candidate concepts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, note, print_json
from ccr.cli.common_data import note_mostly_generic, note_unknown_classes, store_encoder
from ccr.errors import CCRError, MissingExtraError

if TYPE_CHECKING:
    from ccr.vocab.classes import Classes
    from ccr.vocab.llm import Endpoint, LLMProposals
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
    llm_url: Annotated[
        str | None, typer.Option(help="OpenAI-compatible endpoint, such as http://localhost:11434/v1.")
    ] = None,
    llm_model: Annotated[str | None, typer.Option(help="The model's name there.")] = None,
    llm_rate: Annotated[
        float | None, typer.Option(min=0.01, help="Most requests per minute. Default: no limit.")
    ] = None,
    llm_price: Annotated[
        str | None, typer.Option(help="Prices per million tokens, in and out, such as 0.15,0.60, for --dry-run.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Show what a language model would be asked and what it would cost, without asking.")
    ] = False,
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
    from ccr.vocab.proposals import known_path, reasoned_proposals, write_proposed

    wanted = _checked_sources(sources)
    asked = {"--llm-url": llm_url, "--llm-model": llm_model, "--llm-rate": llm_rate, "--llm-price": llm_price}
    given = [option for option, value in asked.items() if value is not None]
    if given and "llm" not in wanted:
        raise typer.BadParameter(f"{given[0]} is for the source llm: give --sources {sources},llm, too")
    endpoint = _endpoint(llm_url, llm_model, llm_rate) if "llm" in wanted else None
    found, embed = _classes(classes, encoder, silent=as_json)
    if dry_run:
        _show_cost(found, endpoint, llm_price, as_json=as_json)
        return
    wordnet = _wordnet(wanted, silent=as_json)
    answered = _from_model(found, endpoint, silent=as_json) if endpoint else None
    with bar(silent=as_json) as tell:
        result = reasoned_proposals(
            found.names,
            wordnet,
            embed=embed,
            photos=found.photos,
            grey=found.grey,
            sources=wanted,
            told=answered.proposals if answered else (),
            tell=tell,
        )
    failed = answered.failed if answered else {}
    if not result.items:
        raise CCRError(f"nothing was proposed for {len(found.names)} classes: add generic to --sources")
    beside = result.write(out)
    known = known_path(out)
    write_proposed(result.items, known)
    said = sum(item.tied for item in result.items)
    facts = {
        "knowledge": str(known),
        "concepts": len(result.items),
        "leaks": len(result.leaks),
        "unknown_classes": list(result.unknown),
        "tied": said,
        "grey": found.grey,
        "failed": failed,
    }
    if as_json:
        print_json({"out": str(out), "origins": str(beside), "classes": len(found.names), **facts})
        return
    note_unknown_classes(result.unknown, len(found.names), silent=False)
    _notes(failed, grey=found.grey)
    console.print(
        f"{len(result.items)} concepts for {len(found.names)} classes are in {escape(str(out))}: a source ties {said} "
        f"of them to a class, and photos of such classes may show the other {len(result.items) - said}; left out as "
        f"naming a class: {len(result.leaks)}\n"
        f"Why each is there: {escape(str(beside))}. Which class shows which: {escape(str(known))}, for "
        "`ccr fit --knowledge`"
    )
    note_mostly_generic(result, classes, out, silent=False)


def _checked_sources(text: str) -> list[str]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in wanted if part not in SOURCES]
    if unknown or not wanted:
        raise typer.BadParameter(f"--sources are of {', '.join(SOURCES)}, joined by commas, got {text!r}")
    return wanted


def _endpoint(url: str | None, model: str | None, rate: float | None) -> Endpoint:
    from ccr.vocab.llm import Endpoint

    if url is None or model is None:
        raise typer.BadParameter("the source llm needs --llm-url and --llm-model")
    return Endpoint(url, model, per_minute=rate)


def _classes(path: Path, spec: str | None, *, silent: bool) -> tuple[Classes, EmbedTexts | None]:
    """The classes of a file or a store, and what embeds texts to choose senses by."""
    from ccr.data.store import EmbeddingStore
    from ccr.encoders import load_encoder
    from ccr.vocab.classes import read_classes, store_classes

    if path.is_dir():
        store = EmbeddingStore.open(path)
        with bar(silent=silent) as tell:
            tell(0, 0, "looking at the photos of each class")
            found = store_classes(store)
        return found, None if spec == "none" else store_encoder(store, spec, silent=silent).embed_texts
    found = read_classes(path)
    if spec == "none":
        return found, None
    try:
        return found, load_encoder(spec or "bundled", log=lambda line: note(line, silent=silent)).embed_texts
    except MissingExtraError as error:
        note(f"note: the most frequent sense of each name is taken, because {error}", silent=silent)
        return found, None


def _wordnet(wanted: list[str], *, silent: bool) -> WordNet | None:
    """WordNet, which also judges the domain of the generic list; None where it cannot be had and was not asked for."""
    from ccr.vocab.wordnet import WordNet

    if wanted == ["llm"]:
        return None
    try:
        return WordNet.open(log=lambda line: note(line, silent=silent))
    except CCRError as error:
        if "wordnet" in wanted:
            raise
        note(f"note: the domain of the classes is judged by their names alone: {error}", silent=silent)
        return None


def _from_model(found: Classes, endpoint: Endpoint, *, silent: bool) -> LLMProposals:
    """A language model's proposals, and why it failed for the classes that it failed for."""
    from ccr.encoders.assets import cache_folder
    from ccr.vocab.llm import ask

    with bar(silent=silent) as tell:
        return ask(found.names, endpoint, cache_folder() / "llm", tell=tell)


def _show_cost(found: Classes, endpoint: Endpoint | None, prices: str | None, *, as_json: bool) -> None:
    from ccr.cli.common_photo import show_estimate
    from ccr.encoders.assets import cache_folder
    from ccr.vocab.llm import estimate

    if endpoint is None:
        raise typer.BadParameter("--dry-run shows what a language model would cost: give --sources llm")
    show_estimate(estimate(found.names, endpoint, cache_folder() / "llm"), endpoint.url, prices, as_json=as_json)


def _notes(failed: dict[str, str], *, grey: bool) -> None:
    if grey:
        note("note: the photos are grey, so that concepts that name a colour are left out")
    for name, reason in list(failed.items())[:5]:
        note(f"note: the language model failed for {name!r}: it {reason}")
    if failed:
        note(f"note: {len(failed)} classes failed in all; run the same command again, answers so far are kept")
