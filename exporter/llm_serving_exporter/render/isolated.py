"""A part of a page or an answer that cannot be made takes none of the others with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger("llm_serving_exporter.render")

T = TypeVar("T")

# how the sentence for the reader begins
UNSHOWN = "This could not be shown"


def render_isolated(part: str, render: Callable[[], T], instead: Callable[[str], T]) -> T:
    """What `render` gives; where it fails, what `instead` makes of a sentence for the reader, and the log has the traceback.

    `part`: what it is about, for the log.
    """
    try:
        return render()
    except Exception as error:
        log.exception("%s could not be shown; this is a bug, please report it", part)
        return instead(f"{UNSHOWN} ({type(error).__name__}); the exporter's log has the cause.")
