"""What may be set about the review: its file, its command line, its schedule."""
