"""Models on disk: format, checks, provenance, signatures, remote places, the hub."""
