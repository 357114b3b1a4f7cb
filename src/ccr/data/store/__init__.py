"""Embeddings on disk: shards in clip-retrieval's layout, described by `store.json`, made resumably."""

from ccr.data.store.embedding import EmbedSummary, Skipped, embed_dataset
from ccr.data.store.store import EmbeddingStore

__all__ = ["EmbedSummary", "EmbeddingStore", "Skipped", "embed_dataset"]
