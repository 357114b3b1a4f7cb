"""Figures of comparisons, sweeps, frontiers and theory."""
