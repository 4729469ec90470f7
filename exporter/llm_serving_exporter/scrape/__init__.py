"""Target -> Page: one bounded GET."""
