"""Concept lists: read from files, embedded, and random words to compare them with."""

from ccr.vocab.read import embed_concepts, read_concepts
from ccr.vocab.words import random_words

__all__ = ["embed_concepts", "random_words", "read_concepts"]
