"""Files that change while the daemon runs."""
