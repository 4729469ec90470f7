"""Recorded and simulated fleets for demo, drills and tests."""
