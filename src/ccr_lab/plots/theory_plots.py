"""Figures of the generative testbed: the paper's synthetic runs, necessity, the spectral event, the phase diagrams."""

# ruff: noqa: RUF001 - the theorems' own Greek letters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ccr.show.plots import COLOURS
from ccr_lab.theory.scenes import AnisotropyDiagram, EventFrequency, NecessityCurve, PhaseDiagram, SyntheticRun

BLUE, ORANGE, GREEN, PURPLE = COLOURS[:4]
BLACK = "#000000"


def paper_figure(runs: Sequence[SyntheticRun]) -> Figure:
    """The paper's 2 x 3 figure: loss above, |D - D*|_{1,2} below; median and range over worlds."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots(2, len(runs), squeeze=False, sharex="col", sharey="row")
    for (top, bottom), run in zip(axes.T, runs, strict=True):
        _band(top, run.losses, BLUE, "loss")
        _band(bottom, run.distances, ORANGE, "all rows")
        if run.samples == 1:
            _band(bottom, run.support_distances, PURPLE, "rows in the support", dashed=True)
            bottom.legend(frameon=False, loc="center right")
        top.set_title(
            f"{run.title}\nη = {run.paper_rate:g} (released code), {run.paper_rate / 2:g} (theorem)", fontsize=10
        )
        top.set_yscale("log")
        bottom.set_ylim(0, 1.08 * run.radius)
        bottom.set_xlabel("iteration")
    axes[0, 0].set_ylabel("loss")
    axes[1, 0].set_ylabel("|D - D*|, largest row")
    figure.suptitle(_outside(runs[0]), fontsize=11)
    return figure


def necessity_figure(curve: NecessityCurve) -> Figure:
    """Loss of the rotated dictionary against eps, with the theorem's bound and where it applies."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axis = figure.subplots()
    axis.fill_between(curve.eps, curve.losses.min(axis=1), curve.losses.max(axis=1), color=BLUE, alpha=0.25, lw=0)
    axis.plot(curve.eps, np.median(curve.losses, axis=1), color=BLUE, label="loss of f_D, D rotated (median, range)")
    covered = curve.eps <= curve.limit
    axis.plot(curve.eps[covered], curve.bound[covered], color=ORANGE, lw=2, label="proved lower bound, 81 k ε² γ²/200")
    axis.plot(
        curve.eps[~covered], curve.bound[~covered], color=ORANGE, lw=1, ls=":", label="the same, not proved there"
    )
    axis.axvline(curve.limit, color=BLACK, lw=0.8, ls="--")
    axis.annotate(" theorem\n ends", (curve.limit, curve.bound[0]), fontsize=9, va="bottom")
    bed = curve.testbed
    axis.set(xscale="log", yscale="log", xlabel="ε = |D - D*|, largest row", ylabel="expected squared error")
    axis.set_title(
        "A small error in the concepts must cost\n"
        f"n = {bed.n}, d = {bed.d}, k = {bed.k}, γ = {bed.gamma}, Γ = {bed.Gamma}",
        fontsize=10,
    )
    axis.legend(frameon=False, fontsize=9)
    return figure


def event_figure(events: Sequence[EventFrequency]) -> Figure:
    """Frequency of the many-sample theorem's spectral event, against the number of samples."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    styles = zip((BLUE, ORANGE, GREEN, PURPLE, BLACK), "osD^v", strict=True)
    for event, (colour, marker) in zip(events, styles, strict=False):
        axis.plot(
            event.samples, event.shares, color=colour, marker=marker, ms=5, label=f"n = d = {event.n}, k = {event.k}"
        )
    axis.set(xscale="log", xlabel="samples m", ylabel="share of worlds", ylim=(-0.03, 1.03))
    axis.set_title(
        f"Where the many-sample theorem applies: its spectral event\n({events[0].worlds} worlds per point)", fontsize=10
    )
    axis.legend(frameon=False)
    return figure


def phase_figure(diagrams: Sequence[PhaseDiagram]) -> Figure:
    """Share of the start error that is left after refinement, over rho and k, a panel for each number of samples."""
    figure = Figure(figsize=(5.4 * len(diagrams), 4.6), layout="constrained")
    axes = figure.subplots(1, len(diagrams), squeeze=False, sharey=True)[0]
    for axis, diagram in zip(axes, diagrams, strict=True):
        mesh = _phase_panel(axis, diagram)
    axes[0].set_ylabel("k, concepts in a sample")
    axes[-1].legend(loc="upper right", fontsize=8, facecolor="#444444", labelcolor="white", framealpha=1)
    figure.colorbar(mesh, ax=list(axes), label="log10 of last / first |D - D*| (median)", extend="min")
    figure.suptitle(
        "Refinement recovers D* (dark) far beyond the theorem's radius: what it needs is samples", fontsize=11
    )
    return figure


def anisotropy_figure(diagrams: Sequence[AnisotropyDiagram]) -> Figure:
    """Share of the start error that is left, over its size and the images' anisotropy, a panel for each metric."""
    figure = Figure(figsize=(3.9 * len(diagrams) + 1, 4.4), layout="constrained")
    axes = figure.subplots(1, len(diagrams), squeeze=False, sharey=True)[0]
    for axis, diagram in zip(axes, diagrams, strict=True):
        mesh = _left_over(axis, diagram.radii, diagram.conditions, diagram.remaining)
        axis.axvline(diagram.testbed.theorem_radius, color="white", lw=2)
        axis.set(xscale="log", yscale="log", xlabel="distance of the start, in scores")
        inside = "the encoder's space" if diagram.shrinkage is None else "the images' metric"
        shrunk = "" if diagram.shrinkage is None else f", shrinkage {diagram.shrinkage:g}"
        axis.set_title(f"in {inside}{shrunk}", fontsize=10)
    axes[0].set_ylabel("condition number of the images' covariance")
    figure.colorbar(mesh, ax=list(axes), label="log10 of last / first distance (median)", extend="both")
    bed, first = diagrams[0].testbed, diagrams[0]
    figure.suptitle(
        "Images that are not isotropic: how much of the concepts' error is left (dark: recovered; line: γ/(8√k Γ))\n"
        f"n = d = {bed.n}, k = {bed.k}, m = {first.samples} samples, {first.steps} steps",
        fontsize=10,
    )
    return figure


def _left_over(axis: Any, x: np.ndarray, y: np.ndarray, remaining: np.ndarray) -> Any:
    """Last over first distance (y, x) as colours on one scale for all panels."""
    left = np.log10(np.maximum(remaining, 1e-12))
    return axis.pcolormesh(x, y, left, cmap="cividis", vmin=-4, vmax=0, shading="nearest", rasterized=True)


def _phase_panel(axis: Any, diagram: PhaseDiagram) -> Any:
    mesh = _left_over(axis, diagram.radii, diagram.lengths, diagram.remaining)
    ratio, lengths = diagram.gamma / diagram.Gamma, np.linspace(1, diagram.n, 100)
    axis.plot(ratio / (8 * np.sqrt(lengths)), lengths, color="white", lw=2, label="theorem: γ/(8√k Γ)")
    axis.plot(
        ratio / (2 * np.sqrt(lengths)), lengths, color="white", lw=2, ls="--", label="support always found: γ/(2√k Γ)"
    )
    axis.set(xscale="log", xlabel="ρ, radius of the start errors and of the balls")
    axis.set_yticks(diagram.lengths)
    axis.set_title(f"n = d = {diagram.n}, m = {diagram.samples} samples", fontsize=10)
    return mesh


def _band(axis: Any, values: np.ndarray, colour: str, label: str, *, dashed: bool = False) -> None:
    steps = np.arange(len(values))
    axis.fill_between(steps, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, lw=0)
    axis.plot(steps, np.median(values, axis=1), color=colour, ls="--" if dashed else "-", label=label)


def _outside(run: SyntheticRun) -> str:
    allowed = run.testbed.theorem_radius
    return (
        f"Outside the theorems' conditions: start errors up to ρ = {run.radius:g}, the theorems allow {allowed:.3f}\n"
        f"d = {run.testbed.d}, k = {run.testbed.k}, γ = {run.testbed.gamma}, Γ = {run.testbed.Gamma}; "
        f"median and range over {run.losses.shape[1]} worlds"
    )
