"""`ccr edit`: change a fitted model by hand, into a new one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import All, Json, console, note, print_json
from ccr.cli.common_data import model_encoder, split_of, training_rows
from ccr.cli.common_photo import MOST_CLASSES, plain_table
from ccr.errors import CCRError
from ccr.utils.texts import counted, did_you_mean

if TYPE_CHECKING:
    from rich.table import Table

    from ccr.edit import EditEffect, EditSession
    from ccr.encoders import Encoder
    from ccr.model import ConceptModel


# The edits of `ccr edit` as they are written: names may hold the signs that separate them.


def read_number(option: str, text: str) -> tuple[str, float]:
    """NAME=NUMBER; the last = separates, for a number has none."""
    name, sign, value = text.rpartition("=")
    try:
        parsed = float(value)
    except ValueError:
        sign, parsed = "", 0.0
    if not sign or not name.strip():
        raise CCRError(f"{option} must end in = and a number, got {text!r}: such as 'price tag=0.5'")
    return name.strip(), parsed


def read_pair(
    option: str, text: str, sign: str, firsts: Collection[str], seconds: Collection[str] | None
) -> tuple[str, str]:
    """Two names with a sign between; the first is one of `firsts`, the second one of `seconds` (None: anything)."""
    pairs = [(text[:at].strip(), text[at + 1 :].strip()) for at, letter in enumerate(text) if letter == sign]
    known = [(first, second) for first, second in pairs if first in firsts]
    fitting = [(first, second) for first, second in known if second and (seconds is None or second in seconds)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        readings = " or ".join(f"{first!r} {sign} {second!r}" for first, second in fitting)
        raise CCRError(f"{option} {text!r} can be read as {readings}: use Python, model.edit(), where names stay apart")
    if not pairs:
        wrong = f"it needs a {sign} between two names"
    elif not known:
        wrong = _unknown(pairs[0][0], firsts)
    else:
        wrong = _unknown(known[0][1], seconds or ()) if known[0][1] else f"there is nothing after the {sign}"
    raise CCRError(f"{option} {text!r} fits no names of the model: {wrong}")


def read_weight(text: str, classes: Collection[str], concepts: Collection[str]) -> tuple[str, str, float]:
    """CLASS:NAME=VALUE."""
    names, value = read_number("--weight CLASS:NAME=VALUE", text)
    return *read_pair("--weight", names, ":", classes, concepts), value


def _unknown(name: str, known: Collection[str]) -> str:
    example = f"; there are {len(known)}, such as {next(iter(known))!r}" if known else ""
    return f"nothing called {name!r}{did_you_mean(name, known)}{example}"


Many = list[str] | None
#: How many of a model's own texts are embedded again before one is added, and the cosine below which they are others.
KNOWN, ALIKE = 3, 0.99


def edit(
    model: Annotated[Path, typer.Argument(help="Folder of a model; it stays as it is.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the edited model.")] = None,
    add: Annotated[Many, typer.Option(help="TEXT: a new concept; it has no effect until --refit or --weight.")] = None,
    pin: Annotated[Many, typer.Option(help="NAME: back to where it was before refinement.")] = None,
    scale: Annotated[Many, typer.Option(help="NAME=FACTOR: multiply what it contributes.")] = None,
    weight: Annotated[Many, typer.Option(help="CLASS:NAME=VALUE: its weight for a class.")] = None,
    merge: Annotated[Many, typer.Option(help="A+B: one concept halfway, called A.")] = None,
    suppress: Annotated[Many, typer.Option(help="NAME: remove it from the model.")] = None,
    rename: Annotated[Many, typer.Option(help="OLD=NEW.")] = None,
    refit: Annotated[Path | None, typer.Option(help="Store: fit the head again on its split train.")] = None,
    store: Annotated[Path | None, typer.Option(help="Store: measure before and after.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of --store. Default: test, else val, else everything.")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="For --add: where the model's encoder is now.")] = None,
    log: Annotated[bool, typer.Option("--log", help="Print all edits since the model was fitted.")] = False,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Edit concepts and weights of a fitted model and save the result as a new model, with a log of the edits.

    Each edit may be given several times. They are done in this order: add, pin, scale, weight, merge, suppress, rename,
    refit; all name concepts as they are called in MODEL (or by --add). Where a name itself contains =, : or
    +, every reading that fits the model's names is tried.

    Example: `ccr edit photos-model --out fixed --suppress "price tag" --scale "bright light=0.5" --refit photos-store`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.edit import EditSession
    from ccr.io.format import check_target
    from ccr.model import ConceptModel

    if store is None and (split is not None or everything):
        option = "--all" if split is None else f"--split {split}"
        raise typer.BadParameter(f"{option} is about what is measured on a store: give --store, too")
    if encoder is not None and not add:
        raise typer.BadParameter(f"--encoder {encoder} embeds concepts to add: give --add, too")
    loaded = ConceptModel.load(model)
    edits = {"add": add, "pin": pin, "scale": scale, "weight": weight}
    edits |= {"merge": merge, "suppress": suppress, "rename": rename}
    asked = any(edits.values()) or refit is not None
    _check(model, out, asked=asked, log=log)
    if out is not None:
        check_target(out)
    session = EditSession(loaded)
    if add:
        _add(session, add, loaded, encoder)
    _apply(session, {key: value or [] for key, value in edits.items()}, loaded)
    if refit is not None:
        session.refit(training_rows(EmbeddingStore.open(refit)))
    edited = session.model() if asked else loaded
    effect = None if store is None else session.effect(split_of(EmbeddingStore.open(store), split)[1])
    if out is not None:
        edited.save(out)
    entries = edited.provenance.edits
    if as_json:
        facts: dict[str, Any] = {"model": None if out is None else str(out), "concepts": len(edited.concepts)}
        print_json({**facts, "edits": list(entries), "effect": None if effect is None else effect.to_dict()})
        return
    if log:
        console.print(_log_table(entries))
    if effect is not None:
        console.print(_effect_table(effect, everything=everything))
    if add and refit is None and not weight:
        note("a concept that was added says nothing until it has weights: --refit STORE, or --weight CLASS:NAME=VALUE")
    if out is not None:
        console.print(f"The edited model is in {escape(str(out))}: {counted(len(entries), 'edit')} since it was fitted")


def _add(session: EditSession, names: list[str], model: ConceptModel, encoder: str | None) -> None:
    """Concepts that the fit left out come back as they were; others are embedded."""
    from ccr.io.provenance import left_out_text

    new = [name for name in names if left_out_text(model.provenance, name) is None]
    text_encoder = model_encoder(model, encoder) if new else None
    if text_encoder is not None:
        _warn_of_other_texts(model, text_encoder)
    for name in names:
        session.add(name, encoder=text_encoder if name in new else None)


def _warn_of_other_texts(model: ConceptModel, encoder: Encoder) -> None:
    """Images may be embedded as they were and texts not: by another template, or by another version of the encoder."""
    texts = model.provenance.texts
    if texts is None:
        return
    names = list(texts.names[:KNOWN])
    cosines = (encoder.embed_texts(names) * texts.embeddings[:KNOWN]).sum(axis=1)
    if cosines.max() < ALIKE:  # all of them: one may have been renamed
        note(
            f"the encoder's texts are not those that the model was fitted with (cosine {cosines.max():.2f} for its own "
            f"'{names[int(cosines.argmax())]}'): another template, or an older version of the encoder's texts. It "
            "predicts as it did, but what is added may not fit the rest; fit again to be sure"
        )


def _check(model: Path, out: Path | None, *, asked: bool, log: bool) -> None:
    if not asked and not log:
        raise typer.BadParameter("nothing to do: give an edit such as --suppress NAME, or --log")
    if asked and out is None:
        raise typer.BadParameter("give --out, the folder of the edited model")
    if not asked and out is not None:
        raise typer.BadParameter("--out is the folder of an edited model: give an edit such as --suppress NAME, too")
    if out is not None and out.resolve() == model.resolve():
        raise CCRError(f"--out must be another folder than {model}: the model that is edited stays, to go back to")


def _apply(session: EditSession, edits: dict[str, list[str]], model: ConceptModel) -> None:
    concepts, classes = session.concepts.names, [str(name) for name in model.classes.tolist()]
    for name in edits["pin"]:
        session.pin(name)
    for text in edits["scale"]:
        name, factor = read_number("--scale NAME=FACTOR", text)
        session.scale(name, factor)
    for text in edits["weight"]:
        label, name, value = read_weight(text, classes, concepts)
        session.set_weight(name, label, value)
    for text in edits["merge"]:
        session.merge(*read_pair("--merge", text, "+", concepts, concepts))
    for name in edits["suppress"]:
        session.suppress(name)
    for text in edits["rename"]:
        session.rename(*read_pair("--rename", text, "=", concepts, None))


def _log_table(edits: Sequence[Mapping[str, Any]]) -> Table:
    from ccr.show.pages import edit_rows

    return plain_table(f"{len(edits)} edits, oldest first", ("", "edit", "of"), edit_rows(edits), texts=(0, 1, 2))


def _effect_table(effect: EditEffect, *, everything: bool) -> Table:
    """Accuracy before and after: of all images, and of the classes in which it changed most, or of all."""
    changed = [item for item in effect.classes if item.after != item.before]
    most = sorted(changed, key=lambda item: (-abs(item.after - item.before), str(item.name)))[:MOST_CLASSES]
    shown = effect.classes if everything else [item for item in effect.classes if item in most]
    part = f"; accuracy changed in {len(changed)} of {len(effect.classes)} classes"
    part += f", {len(shown)} shown; all with --all" if len(shown) < len(effect.classes) else ""
    rows = [("all", effect.n, effect.before, effect.after)]
    rows += [(str(item.name), item.n, item.before, item.after) for item in shown]
    cells = [(name, str(n), f"{old:.1%}", f"{new:.1%}", f"{100 * (new - old):+.1f}") for name, n, old, new in rows]
    title = f"On {counted(effect.n, 'image')}, {counted(effect.changed, 'prediction')} changed{part}"
    return plain_table(title, ("class", "images", "before", "after", "points"), cells)
