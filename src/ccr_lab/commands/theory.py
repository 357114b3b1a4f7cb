"""`ccr theory`: the theorems over random instances and real embeddings, and their figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ccr.cli.common import Json, bar, console, note, print_json, write_files
from ccr.cli.common_photo import plain_table

if TYPE_CHECKING:
    from ccr.utils.processes import OnProgress
    from ccr_lab.theory.judging import ClaimResult
    from ccr_lab.theory.metric import Isotropy
    from ccr_lab.theory.scenes import AnisotropyDiagram, EventFrequency, PhaseDiagram

#: (n = d, k) and samples at which the frequency of the spectral event is counted, and in how many worlds.
EVENTS, EVENT_SAMPLES, EVENT_WORLDS = ((10, 2), (10, 5), (20, 4), (20, 10)), (50, 100, 200, 400, 800, 2000), 50
#: Samples of the phase diagram's panels.
PHASE_SAMPLES = (40, 240)


def theory(
    out: Annotated[
        Path | None, typer.Option(help="Folder for results.json and the figures (PNG); without it, none.")
    ] = None,
    instances: Annotated[int, typer.Option(min=1, help="Random instances for each claim.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same answer.")] = 0,
    store: Annotated[
        Path | None,
        typer.Option(help="Store made by `ccr embed`: check the claims about the images' metric on it, too."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the paper's theorems, and ours, on random instances; exit 1 if a claim is violated, or if a check could
    not have detected it.

    Each assumption is also broken on purpose, and its claim must then fail: those rows of the table say which one.
    """
    from ccr_lab.theory import run_claims

    real, spreads = ((), ()) if store is None else _on_embeddings(store, seed)
    with bar() as tell:
        results = (*run_claims(instances, seed, tell), *real)
        events = _events(seed, tell)
    summary = _summary(results, events, instances, seed)
    summary["isotropy"] = [spread.to_dict() for spread in spreads]
    if out is not None:
        with bar() as tell:
            files, phase, anisotropy = _figures(events, seed, tell)
        summary["phase"] = [diagram.to_dict() for diagram in phase]
        summary["anisotropy"] = [diagram.to_dict() for diagram in anisotropy]
        write_files(out, {**files, "results.json": json.dumps(summary, indent=1, allow_nan=False).encode()})
    if as_json:
        print_json(summary)
    else:
        _show(results, events, spreads, out)
    if not summary["ok"]:
        raise typer.Exit(1)


def _on_embeddings(store: Path, seed: int) -> tuple[Sequence[ClaimResult], Sequence[Isotropy]]:
    from ccr.data.store import EmbeddingStore
    from ccr_lab.theory import check_embeddings, isotropy_table

    images = EmbeddingStore.open(store)
    with bar() as tell:
        tell(0, 2, f"{images.shape[0]} embeddings")
        spreads = isotropy_table(images, seed=seed)
        tell(1, 2, "claims on embeddings")
        results = check_embeddings(images, seed=seed)
    if any(result.verdict == "cannot tell" for result in results):
        m, d = images.shape
        note(f"note: {m} images are too few to tell how they spread over {d} dimensions: embed at least {2 * d + 2}")
    return results, spreads


def _events(seed: int, tell: OnProgress) -> list[EventFrequency]:
    from ccr_lab.theory.scenes import event_frequency

    events = []
    for done, (n, k) in enumerate(EVENTS, start=1):
        events.append(event_frequency(n, k, EVENT_SAMPLES, worlds=EVENT_WORLDS, seed=seed))
        tell(done, len(EVENTS), f"spectral event, n = {n}, k = {k}")
    return events


def _figures(
    events: Sequence[EventFrequency], seed: int, tell: OnProgress
) -> tuple[dict[str, bytes], list[PhaseDiagram], list[AnisotropyDiagram]]:
    from ccr.show import plots
    from ccr_lab.plots import theory_plots
    from ccr_lab.theory.scenes import anisotropy_diagrams, necessity_curve, paper_runs, phase_diagram

    steps = 3 + len(PHASE_SAMPLES)
    figures = {"event": theory_plots.event_figure(events)}
    tell(1, steps, "necessity")
    figures["necessity"] = theory_plots.necessity_figure(necessity_curve(seed=seed))
    tell(2, steps, "the paper's figure")
    figures["paper"] = theory_plots.paper_figure(paper_runs(seed=seed))
    diagrams: list[PhaseDiagram] = []
    for samples in PHASE_SAMPLES:
        tell(3 + len(diagrams), steps, f"phase diagram, {samples} samples")
        diagrams.append(phase_diagram(samples=samples, seed=seed))
    figures["phase"] = theory_plots.phase_figure(diagrams)
    anisotropy = anisotropy_diagrams(seed=seed, tell=tell)
    figures["anisotropy"] = theory_plots.anisotropy_figure(anisotropy)
    return {f"{name}.png": plots.png(figure, dpi=100) for name, figure in figures.items()}, diagrams, anisotropy


def _summary(
    results: Sequence[ClaimResult], events: Sequence[EventFrequency], instances: int, seed: int
) -> dict[str, Any]:
    return {
        "seed": seed,
        "instances": instances,
        "ok": all(result.ok for result in results),
        "claims": [result.to_dict() for result in results],
        "events": [event.to_dict() for event in events],
    }


def _show(
    results: Sequence[ClaimResult], events: Sequence[EventFrequency], spreads: Sequence[Isotropy], out: Path | None
) -> None:
    console.print(_claims_table([result for result in results if not result.breaks], "Claims"))
    console.print(_claims_table([result for result in results if result.breaks], "Broken on purpose: these must fail"))
    console.print(_events_table(events))
    if spreads:
        console.print(_isotropy_table(spreads))
    bad = [result.claim for result in results if not result.ok]
    console.print(f"[red]{len(bad)} claims in doubt: {escape('; '.join(bad))}[/red]" if bad else "Every claim holds.")
    if out is not None:
        console.print(f"Figures and results.json are in {escape(str(out))}")


def _claims_table(results: Sequence[ClaimResult], title: str) -> Table:
    broken = any(result.breaks for result in results)
    headings = ("broken" if broken else "section", "claim", "measure", "worst", "allowed", "beyond", "verdict")
    rows = [
        (
            *(result.breaks or result.section, result.claim, result.measure, _number(result.worst)),
            *(f"{result.allowed:g}", f"{result.beyond}/{result.instances}"),
            Text(result.verdict, "green" if result.ok else "bold red", no_wrap=True),
        )
        for result in results
    ]
    return plain_table(title, headings, rows, texts=(0, 1, 2, 6), whole=True)


def _number(value: float) -> str:
    """Enough digits to tell 0.99999 from 1 next to a bound of 1."""
    return f"{value:.5f}" if 0.01 <= abs(value) < 100 else f"{value:.2g}"


def _events_table(events: Sequence[EventFrequency]) -> Table:
    title = "How often the many-sample theorem's spectral event holds, by number of samples"
    rows = [(str(event.n), str(event.k), *(f"{share:.0%}" for share in event.shares)) for event in events]
    return plain_table(title, ("n = d", "k", *map(str, events[0].samples)), rows, texts=())


def _isotropy_table(spreads: Sequence[Isotropy]) -> Table:
    from ccr_lab.theory.metric import BOUND

    title = "Isotropy of held-out images: all dimensions and ratios of 1 are what the theorems assume"
    headings = (
        *("images", "effective dimensions", "eigenvalues, high / low"),
        *(
            "variance along random directions, high / low",
            f"plain correlation where the metric's is {BOUND:g}: 95 % above",
        ),
    )
    rows = []
    for spread in spreads:
        name = "as embedded" if spread.shrinkage is None else f"whitened, shrinkage {spread.shrinkage:g}"
        fidelity = "" if spread.fidelity is None else f"{spread.fidelity:.3f}"
        ratios = (f"{spread.condition:,.0f}", f"{spread.along_random:.2f}")
        rows.append((name, f"{spread.dimensions:.0f} of {spread.of}", *ratios, fidelity))
    return plain_table(title, headings, rows)
