"""Schemas: what goes in and out of the studio's API. Every answer about a model names its `version`."""
