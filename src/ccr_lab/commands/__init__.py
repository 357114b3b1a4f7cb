"""Commands of the laboratory, which `ccr` finds by the entry point `ccr.commands`."""

from ccr_lab.commands import compare, paper, sweep, theory

COMMANDS = (theory.theory, paper.figures, compare.compare, sweep.sweep, paper.reproduce)
