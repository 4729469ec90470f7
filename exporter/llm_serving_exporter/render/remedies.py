"""A sentence that tells what to set -> the same with the place where the target at hand has it."""

from __future__ import annotations

import re
from functools import lru_cache

from llm_serving_exporter.model.target import Target

_MARK = "targets[]."
# keys that are plain words too: meant where somebody is told to do something with them
_PLAIN = ("runtime", "auth", "timeout", "url", "role", "headers", "interval", "tls", "model")


def place_remedy(text: str, target: Target) -> str:
    """The sentence with, at its end, where each key of a target that it mentions is set for this one.

    Unchanged for a target of the configuration's `targets:`, and where it mentions no key.
    """
    if not target.places or not text:
        return text
    keys = dict.fromkeys(
        found["marked"] or found["word"] or found["plain"]
        for found in _find_mentions(tuple(target.places)).finditer(text)
    )
    by_place: dict[str, list[str]] = {}
    for key in keys:
        place = target.places.get(key.partition(".")[0])
        if place is not None:
            by_place.setdefault(place, []).append(key)
    if not by_place:
        return text
    told = "; ".join(f"{', '.join(own)} {place}" for place, own in by_place.items())
    plain = text.replace(_MARK, "").rstrip()
    return f"{plain}{'' if plain.endswith(('.', '!', '?')) else '.'} For this target: {told}."


@lru_cache(maxsize=8)
def _find_mentions(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Mentions of keys in a sentence: marked as such, in a form that no plain word has, or as what somebody is to set."""
    unmistakable = sorted((key for key in keys if "_" in key or key == "gpus"), key=len, reverse=True)
    return re.compile(
        rf"targets\[\]\.(?P<marked>[a-z_]+(?:\.[a-z_]+)*)"
        rf"|(?<![\w./-])(?P<word>(?:{'|'.join(unmistakable)})(?:\.[a-z_]+)?|tls\.[a-z_]+)(?![\w/])"
        rf"|\b(?:[Ss]et|[Cc]heck|[Rr]aise|[Ww]rite|[Pp]oint|target's) `?(?P<plain>(?:{'|'.join(_PLAIN)})(?:\.[a-z_]+)?)\b"
    )
