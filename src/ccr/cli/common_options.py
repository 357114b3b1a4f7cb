"""Options that several commands take, turned into what the library takes; a mistake in them is misuse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.core.coding import HardThreshold
    from ccr.core.space import Dispersion

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
Outside = Annotated[bool, typer.Option("--allow-outside", help="Let a manifest name files outside its folder.")]


def chosen_coder(length: float | None, threshold: float | None, sign: Any = "positive") -> HardThreshold:
    """The coder of --length or --threshold, and --sign."""
    from ccr.core.coding import HardThreshold

    if length is not None and threshold is not None:
        raise typer.BadParameter("give --length or --threshold, not both: a length is turned into a threshold")
    if sign not in ("both", "positive"):
        raise typer.BadParameter(f"--sign is both or positive, got {sign!r}")
    if threshold is not None:
        return HardThreshold(threshold=threshold, sign=sign)
    return HardThreshold(length=12 if length is None else length, sign=sign)


def chosen_bound(fidelity: float | None, radius: float | None) -> dict[str, float | None]:
    """--fidelity or --radius, or neither."""
    from ccr.models.bound import chosen_radius

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
        "the concepts' own texts. Try 2 where explanations name what is not there. Default: among all.",
    ),
]


def chosen_candidates(candidates: float | None, weights: str | None) -> float | None:
    """--candidates, which choose among weights and mean nothing where all are kept."""
    if candidates is not None and weights == "all":
        raise typer.BadParameter(
            "--candidates is about which weights a class keeps, and --weights all keeps all of them: drop one"
        )
    return candidates


def chosen_knowledge(
    path: Path | None, claims: str, min_transfer: float | None = None, min_probability: float | None = None
) -> dict[str, Any]:
    """The classifier's parameters for --knowledge, --claims, --min-transfer and --min-probability."""
    if claims not in ("open", "confirmed"):
        raise typer.BadParameter(f"--claims is open or confirmed, got {claims!r}")
    if path is None and (claims != "open" or min_transfer is not None or min_probability is not None):
        raise typer.BadParameter(
            "--claims, --min-transfer and --min-probability are about what is known: give --knowledge FILE, too"
        )
    if path is None:
        return {}
    from ccr.core.knowledge import Knowledge

    return {
        "knowledge": Knowledge.read(path),
        "claims": claims,
        "min_transfer": min_transfer,
        "min_probability": min_probability,
    }


def chosen_dispersion(text: str) -> Dispersion | None:
    """The dispersion of --dispersion."""
    from ccr.core.space import parse_dispersion

    try:
        return parse_dispersion(text)
    except CCRError as error:
        raise typer.BadParameter(f"--{error}") from None


def chosen_store(store: Path | None, option: Path | None) -> Path | None:
    """The store that is given by its place or by --store; both are misuse."""
    if store is not None and option is not None:
        raise typer.BadParameter(f"give a store once, got {store} and --store {option}: drop one")
    return option if store is None else store
