"""Prometheus' HTTP API, as every command that reads recorded series asks it."""
