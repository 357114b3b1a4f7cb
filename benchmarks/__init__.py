"""Measured side by side in one run: this library against plain implementations and against the floor."""
