"""Nouns that cross stage borders: frozen, no I/O, no clock. Absent is None, never 0; units are in the names."""
