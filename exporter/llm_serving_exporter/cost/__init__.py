"""What each GPU second of a target costs, and what it went to."""
