"""Concepts that fit any photo: colours, patterns, shapes, textures, materials, parts, surroundings, light."""

from __future__ import annotations

from pathlib import Path

from ccr.data.vocab.propose.proposals import Origin, Proposal

FILE = Path(__file__).with_name("generic_concepts.txt")


def generic_proposals() -> list[Proposal]:
    """The list of this project, each with its kind."""
    proposals, kind = [], ""
    for line in FILE.read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("#"):
            kind = line.removeprefix("#").strip()
        elif line.strip():
            proposals.append(Proposal(line.strip(), (Origin(None, "generic", kind, "fits any photo"),)))
    return proposals
