"""One person's work on a model: workbench, steps on disk, edits, refits, out-of-fold predictions, corrections."""
