"""Samples -> Snapshot: one mapping table a runtime, applied by one mechanism."""
