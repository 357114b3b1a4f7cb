"""`ccr knowledge ask`: a first table of which concept is true of which class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, note, print_json
from ccr.cli.common_data import store_encoder, training_rows

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Knowledge
    from ccr.vocab.llm import Endpoint, LLMQuestion

SOURCES = ("wordnet", "llm")
#: The longer side of a photo that a model is shown, in pixels.
SHOWN_PIXELS = 448


def ask(
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`, whose classes are asked about.")],
    concepts: Annotated[Path, typer.Option(help="Text file with one concept per line.")],
    out: Annotated[Path, typer.Option(help="The table, CSV or Parquet; answers that it has already stay.")],
    sources: Annotated[str, typer.Option(help="wordnet, llm, or both, joined by a comma.")] = "wordnet",
    encoder: Annotated[str | None, typer.Option(help="Where the store's encoder is now, if it moved.")] = None,
    llm_url: Annotated[
        str | None, typer.Option(help="OpenAI-compatible endpoint, such as http://localhost:11434/v1.")
    ] = None,
    llm_model: Annotated[str | None, typer.Option(help="The model's name there.")] = None,
    llm_rate: Annotated[float | None, typer.Option(min=0.01, help="Most requests per minute.")] = None,
    llm_price: Annotated[
        str | None, typer.Option(help="Prices per million tokens, in and out, such as 0.15,0.60, for --dry-run.")
    ] = None,
    photos: Annotated[
        int, typer.Option(min=0, max=8, help="Training photos of each class to show a model that sees.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what asking would cost, without asking.")] = False,
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

    wanted = _checked_sources(sources)
    for option, given in (("--llm-price", llm_price), ("--photos", photos or None)):
        if given is not None and "llm" not in wanted:
            raise typer.BadParameter(f"{option} is for the source llm: give --sources {sources},llm, too")
    endpoint = _endpoint(llm_url, llm_model, llm_rate, wanted)
    opened, names = EmbeddingStore.open(store), read_concepts(concepts)
    before = Knowledge.read(out) if out.exists() else Knowledge.of([])
    failed: dict[str, str] = {}
    parts: list[Knowledge] = []
    if "wordnet" in wanted and not dry_run:
        parts.append(_from_wordnet(opened, names, encoder, silent=as_json))
    if endpoint is not None:
        questions = _questions(opened, names, before, photos)
        if dry_run:
            _show_cost(questions, endpoint, llm_price, as_json=as_json)
            return
        told, failed = _from_model(questions, endpoint, silent=as_json)
        parts.append(told)
    elif dry_run:
        raise typer.BadParameter("--dry-run shows what a language model would cost: give --sources llm")
    # Last, so that it counts among equals: who corrects a cell in a spreadsheet seldom changes its source.
    known = Knowledge.merged(*parts, before)
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


def _checked_sources(text: str) -> list[str]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if not wanted or any(part not in SOURCES for part in wanted):
        raise typer.BadParameter(f"--sources are of {', '.join(SOURCES)}, joined by commas, got {text!r}")
    return wanted


def _endpoint(url: str | None, model: str | None, rate: float | None, wanted: list[str]) -> Endpoint | None:
    from ccr.vocab.llm import Endpoint

    if "llm" not in wanted:
        if url is not None or model is not None or rate is not None:
            raise typer.BadParameter("--llm-url, --llm-model and --llm-rate are for the source llm: give --sources llm")
        return None
    if url is None or model is None:
        raise typer.BadParameter("the source llm needs --llm-url and --llm-model")
    return Endpoint(url, model, per_minute=rate)


def _from_wordnet(store: EmbeddingStore, names: list[str], spec: str | None, *, silent: bool) -> Knowledge:
    from ccr.vocab.classes import store_classes
    from ccr.vocab.proposals import wordnet_knowledge, wordnet_proposals
    from ccr.vocab.wordnet import WordNet

    wordnet = WordNet.open(log=lambda line: note(line, silent=silent))
    with bar(silent=silent) as tell:
        tell(0, 0, "looking at the photos of each class")
        found = store_classes(store)
        embed = store_encoder(store, spec, silent=silent).embed_texts
        said = wordnet_proposals(found.names, wordnet, embed=embed, photos=found.photos, tell=tell)
    return wordnet_knowledge(found.names, names, said.proposals)


def _questions(store: EmbeddingStore, names: list[str], known: Knowledge, photos: int) -> list[LLMQuestion]:
    from ccr.vocab.llm import model_questions

    classes = [str(name) for name in store.classes]
    return model_questions(classes, names, known, _pictures(store, photos) if photos else None)


def _pictures(store: EmbeddingStore, count: int) -> dict[str, list[str]]:
    """Some training photos of each class as data: addresses."""
    import base64
    import io

    train = training_rows(store)
    found: dict[str, list[str]] = {}
    for row, label in enumerate(train.labels):
        shown = found.setdefault(str(label), [])
        if label is None or len(shown) >= count:
            continue
        picture, content = train.image(row), io.BytesIO()
        picture.thumbnail((SHOWN_PIXELS, SHOWN_PIXELS))
        picture.convert("RGB").save(content, "JPEG", quality=85)
        shown.append(f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}")
    return found


def _from_model(questions: list[LLMQuestion], endpoint: Endpoint, *, silent: bool) -> tuple[Knowledge, dict[str, str]]:
    from ccr.encoders.assets import cache_folder
    from ccr.vocab.llm import ask_model

    with bar(silent=silent) as tell:
        told = ask_model(questions, endpoint, cache_folder() / "llm", tell=tell)
    return told.knowledge, told.failed


def _show_cost(questions: list[LLMQuestion], endpoint: Endpoint, prices: str | None, *, as_json: bool) -> None:
    from ccr.cli.common_photo import show_estimate
    from ccr.encoders.assets import cache_folder
    from ccr.vocab.llm import estimated

    show_estimate(estimated(questions, endpoint, cache_folder() / "llm"), endpoint.url, prices, as_json=as_json)
