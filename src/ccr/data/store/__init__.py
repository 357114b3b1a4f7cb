"""Embeddings on disk: shards in clip-retrieval's layout, described by `store.json`, made resumably."""

from ccr.data.store.embedding import EmbedSummary, Skipped, embed_dataset
from ccr.data.store.store import EmbeddingStore
from ccr.data.store.workers import NearCopies, near_copies

__all__ = ["EmbedSummary", "EmbeddingStore", "NearCopies", "Skipped", "embed_dataset", "near_copies"]
