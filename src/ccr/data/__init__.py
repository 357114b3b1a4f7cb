"""From files and images to embeddings."""
