"""Encoders: images and texts to unit vectors of one space."""

from ccr.encoders.registry import DEFAULT_ENCODER, Encoder, EncoderSpec, load_encoder, parse_spec

__all__ = ["DEFAULT_ENCODER", "Encoder", "EncoderSpec", "load_encoder", "parse_spec"]
