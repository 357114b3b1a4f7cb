"""Commands of the laboratory, which `ccr` finds by the entry point `ccr.commands`."""

from ccr_lab.commands import compare, figures, reproduce, sweep, theory

COMMANDS = (theory.theory, figures.figures, compare.compare, sweep.sweep, reproduce.reproduce)
