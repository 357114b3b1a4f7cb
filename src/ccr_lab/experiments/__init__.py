"""Comparisons whose every choice is made on validation data."""
