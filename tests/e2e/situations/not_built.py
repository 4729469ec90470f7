"""What the rules cannot do yet, by situation: aspects of `judge.py` that are expected to fail.

Whoever makes one hold removes it here: a test that passes unexpectedly fails.
"""

from __future__ import annotations

NOT_BUILT: dict[str, tuple[str, ...]] = {
    # users feel it too: TTFTBurn pages beside NodeLost
    "lost-node": ("counts",),
    # users feel it too: TTFTBurn pages beside NodeLost
    "lost-node-unmanaged": ("counts",),
}
