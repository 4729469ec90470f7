"""Closed formulas from a config's fields to a Geometry, one module a family of architectures."""
