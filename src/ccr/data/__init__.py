"""Data sets, and embeddings on disk."""
