"""Reversible edits of a fitted model."""

from ccr.models.edit.effect import ClassEffect, EditEffect
from ccr.models.edit.log import Edit
from ccr.models.edit.session import EditSession, TextEncoder

__all__ = ["ClassEffect", "Edit", "EditEffect", "EditSession", "TextEncoder"]
