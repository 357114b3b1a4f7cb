"""Kernels in numba alone: the reference, and what works on every CPU."""
