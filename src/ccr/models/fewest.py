"""`weights_per_class="auto"`: the fewest weights per class that validation images find no worse than the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Protocol

from ccr.core.refine import Callback, Checkpoint, Epoch, Refinement, Training
from ccr.errors import CCRError

#: Weights per class that are tried; None is all of them.
TRIED: tuple[int | None, ...] = (1, 2, 3, 5, 8, 12, None)


class PartedCheckpoint(Checkpoint, Protocol):
    """A checkpoint that has others below it."""

    def part(self, name: str) -> PartedCheckpoint:
        """That of a part of the run."""
        ...


class Run(Protocol):
    """One refinement, with everything but these settled."""

    def __call__(
        self, *, training: Training, callback: Callback | None, checkpoint: PartedCheckpoint | None
    ) -> Refinement: ...


def refine_with(
    run: Run,
    weights: int | Literal["auto"] | None,
    held_out: Any,
    *,
    training: Training,
    callback: Callback | None,
    checkpoint: PartedCheckpoint | None,
) -> Refinement:
    """A run with so many weights per class; for "auto", of the runs with each of `TRIED` the one with the fewest whose
    accuracy on the images held out (see `refine`) is within a standard error of the best."""
    if weights != "auto":
        return run(training=replace(training, weights_per_class=weights), callback=callback, checkpoint=checkpoint)
    images = len(held_out[1] if isinstance(held_out, tuple) else held_out)
    if not images:
        raise CCRError(
            'weights_per_class="auto" is chosen on validation images, and there are none: give validation=(X, y), a '
            "validation_fraction such as 0.1, or a number of weights"
        )
    done: list[Refinement] = []
    for number, tried in enumerate(TRIED):
        own = None if checkpoint is None else checkpoint.part(f"weights-{tried or 'all'}")
        settings = replace(training, weights_per_class=tried)
        done.append(run(training=settings, callback=_part(callback, number), checkpoint=own))
    accuracies = [result.history[result.best_epoch - 1].validation_accuracy for result in done]
    least = max(accuracies) - replace(training, tol=None).tolerance(max(accuracies), images)
    return next(result for result, accuracy in zip(done, accuracies, strict=True) if accuracy >= least)


def _part(callback: Callback | None, number: int) -> Callback | None:
    """Tells the epochs of all runs as those of one."""
    if callback is None:
        return None
    tell: Callable[[Epoch, int], None] = callback
    return lambda epoch, epochs: tell(replace(epoch, epoch=number * epochs + epoch.epoch), len(TRIED) * epochs)
