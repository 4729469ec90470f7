"""How many distinct routed experts the tokens of a step touch (facts model-math C)."""

from __future__ import annotations

import math

from llm_serving_exporter.model.derived import Range

# a figure with what it may lie between: experts, bytes
Band = Range

_NONE = Band(0.0, 0.0, 0.0)


def estimate_touched_experts(experts: int, per_token: int, tokens: float) -> Band:
    """Distinct experts of one layer that `tokens` tokens touch, each passing `per_token` of `experts`; zeros for a dense model.

    Lower: all tokens agree. Expected: independent, uniform routing, E (1 - (1 - k/E)^T), since one token misses an expert with probability
    1 - k/E; real routing is skewed and correlated and lies between lower and expected. Upper: no two tokens agree, min(T k, E).
    Below one token (a mean over steps some of which have none) all three are the token's share, T k.
    """
    if experts <= 0 or per_token <= 0 or not tokens > 0:
        return _NONE
    k = min(per_token, experts)
    if tokens <= 1:
        return Band(tokens * k, tokens * k, tokens * k)
    upper = min(tokens * k, float(experts))
    missed = tokens * math.log1p(-k / experts) if k < experts else -math.inf
    # the bounds hold by arithmetic; min and max only take back the last digit of rounding
    return Band(float(k), max(float(k), min(-experts * math.expm1(missed), upper)), upper)
