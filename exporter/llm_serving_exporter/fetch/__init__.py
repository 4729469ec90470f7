"""Target -> Page -> Samples: one bounded GET, and a strict parser."""
