"""What the rules cannot do yet, by situation: aspects of `judge.py` that are expected to fail.

Whoever makes one hold removes it here: a test that passes unexpectedly fails.
"""

NOT_BUILT: dict[str, tuple[str, ...]] = {}
