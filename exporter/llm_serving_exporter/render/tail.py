"""The long-context tail of an engine in words, for the landing page and `once`."""

from __future__ import annotations

from llm_serving_exporter.model.derived import Tail
from llm_serving_exporter.render.numbers import CLIPPED, NOTHING, number, share


def longest_share(found: Tail | None) -> tuple[str, str]:
    """What the longest 1 % of the requests have of all context, and within which bounds."""
    if found is None or found.kv_share_ratio is None:
        return NOTHING, ""
    ratio = found.kv_share_ratio
    return share(ratio.expected), f"of all context; {share(ratio.lower)} to {share(ratio.upper)}"


def long_requests_fit(found: Tail | None) -> tuple[str, str]:
    """How many of the longest requests the KV cache holds, and how long those are. A missing lower bound reads as at most."""
    if found is None or not found.requests_fit:
        return NOTHING, ""
    bounds = found.requests_fit
    ends = [number(bounds[bound]) for bound in ("lower", "upper") if bound in bounds]
    p99 = found.prompt_p99
    prompt = f"p99 prompt {CLIPPED.get(p99.clipped, '')}{number(p99.value)} tokens" if p99 is not None else ""
    return ("" if "lower" in bounds else CLIPPED["bottom"]) + " to ".join(dict.fromkeys(ends)), prompt
