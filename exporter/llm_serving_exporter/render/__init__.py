"""Numbers and reasons as text and HTML for people."""
