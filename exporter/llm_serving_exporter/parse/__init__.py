"""Page -> Samples."""
