"""Seeded fuzzers: damaged and hostile input of every kind that ccr reads. `python -m tools.fuzz --minutes 30`."""
