"""Kernels written for LLVM and the vector instructions of x86 CPUs: the same numbers as `plain` to rounding, faster.
Nothing outside this folder imports from it but `ccr.kernels.tiers`; without the folder, `plain` takes
over."""
