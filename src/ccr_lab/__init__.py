"""The laboratory: the paper's theorems and protocol, rival methods, comparisons, sweeps and their figures."""
