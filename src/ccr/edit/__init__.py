"""Reversible edits of a fitted model."""

from ccr.edit.session import ClassEffect, Edit, EditEffect, EditSession, TextEncoder

__all__ = ["ClassEffect", "Edit", "EditEffect", "EditSession", "TextEncoder"]
