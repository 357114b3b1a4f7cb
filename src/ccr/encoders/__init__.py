"""Encoders: images and texts to unit vectors of one space."""

from ccr.encoders.registry import Encoder, load_encoder, parse_spec

__all__ = ["Encoder", "load_encoder", "parse_spec"]
