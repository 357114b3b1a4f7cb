"""Concept lists: read from files, embedded, checked, chosen, proposed from class names, and learned from photos."""

from ccr.vocab.lists import embed_concepts, random_words, read_concepts

__all__ = ["embed_concepts", "random_words", "read_concepts"]
