"""Helpers without a room of their own: arrays, numbers given by users, processes, progress, texts, threads."""
