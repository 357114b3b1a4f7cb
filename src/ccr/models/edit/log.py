"""What was edited, in words that JSON can hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccr.core.explain.terms import position


@dataclass(frozen=True)
class Edit:
    """One edit: the `action` (a method of `EditSession`), and its `arguments` in plain types."""

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {"action": self.action, **self.arguments}


def fixed_weights(edits: Iterable[Mapping[str, Any]], classes: Sequence[Any]) -> set[tuple[str, int]]:
    """The weights (concept, class number) that these edits set or scaled by hand, under the names they have in the
    end."""
    fixed: set[tuple[str, int]] = set()
    for edit in edits:
        if edit["action"] in ("set_weight", "zero_weight"):
            fixed.add((edit["concept"], position(classes, edit["class"])))
        elif edit["action"] == "scale":
            fixed |= {(edit["concept"], number) for number in range(len(classes))}
        elif edit["action"] == "add":
            fixed |= {(edit["name"], position(classes, name)) for name in edit.get("weights", {})}
        elif edit["action"] == "rename":
            fixed = {(edit["to"] if name == edit["concept"] else name, number) for name, number in fixed}
        elif edit["action"] == "fit":
            fixed = set()  # all weights were learned anew
        elif edit["action"] in ("suppress", "merge"):
            gone = {edit.get("concept"), edit.get("first"), edit.get("second")}
            fixed = {weight for weight in fixed if weight[0] not in gone}
    return fixed
