"""When the alerts of check tail fire and when they do not."""

from __future__ import annotations

from tests.pack.builders_kv import firing, flat, selector
from tests.pack.promtool import Case
from tests.pack.samples import Fleet, document, is_

_MODEL = {"model_name": "chat", "role": "unified"}
_ENGINE = {"target": "replica-0", "engine": "0", **_MODEL}
_NEIGHBOUR = {"target": "replica-1", "engine": "0", **_MODEL}
_OTHER_MODEL = {"target": "embed-0", "engine": "0", "model_name": "embed", "role": "unified"}
_VARIABLES = "var-model_name=chat&var-role=unified"

Series = dict[str, str]


def _shown(name: str, values: str, identity: dict[str, str] = _ENGINE, **labels: str) -> Series:
    return {selector(f"llm_serving_{name}", instance="exporter-a:10077", **identity, **labels): values}


def _fit(lower: str, upper: float, observed: float, identity: dict[str, str] = _ENGINE) -> Series:
    return (
        _shown("long_context_requests_fit", lower, identity, bound="lower")
        | _shown("long_context_requests_fit", flat((upper, 80)), identity, bound="upper")
        | _shown("long_context_requests_observed", flat((observed, 80)), identity)
    )


_FEW = firing(
    "LongContextFewFit",
    "warning",
    "tail",
    _MODEL,
    summary="chat (unified): only 3.5 requests of p99 length fit the KV cache",
    description="At least 3.5 and at most 6.0 requests with a prompt of the 99th percentile and a mean answer fit one engine. A few of them at once, and "
    "everyone else waits.",
    action="bound the context, or send long requests to replicas of their own",
    variables=_VARIABLES,
)

_FEW_FIT = (
    Case(
        "LongContextFewFit",
        "3.5 fit the worse of two engines; another model has room",
        _fit(flat((9, 5), (3.5, 45), (9, 20)), 6, 1100)
        | _fit(flat((8, 80)), 12, 5000, _NEIGHBOUR)
        | _fit(flat((30, 80)), 40, 5000, _OTHER_MODEL),
        "45m",
        (_FEW,),
        more=(("30m", ()), ("60m", ())),
    ),
    Case("LongContextFewFit", "four fit", _fit(flat((4, 80)), 6, 5000), "60m"),
    Case(
        "LongContextFewFit",
        "an engine that has just started says two from its first 900 requests, the others know better",
        _fit(flat((2, 80)), 3, 900) | _fit(flat((8, 80)), 12, 5000, _NEIGHBOUR),
        "60m",
    ),
    Case(
        "LongContextFewFit",
        "no lower bound: the longest bucket has no upper edge",
        {name: values for name, values in _fit(flat((2, 80)), 3, 5000).items() if 'bound="lower"' not in name},
        "60m",
    ),
)


def _share(lower: str, observed: float, usage: float, identity: dict[str, str] = _ENGINE) -> Series:
    return (
        _shown("long_context_kv_share_ratio", lower, identity, bound="lower")
        | _shown("long_context_kv_share_ratio", flat((0.9, 80)), identity, bound="upper")
        | _shown("long_context_requests_observed", flat((observed, 80)), identity)
        | _shown("kv_cache_usage_ratio", flat((usage, 80)), identity)
    )


_LARGE = firing(
    "LongContextShare",
    "warning",
    "tail",
    _MODEL,
    summary="chat (unified): the longest 1% of requests have 35% of all context tokens",
    description="At least 35% of the tokens of context of all requests belong to the longest hundredth of them, on an engine whose KV cache is more than 80% full.",
    action="find the client that sends them; bound the context",
    variables=_VARIABLES,
)

_SHARES = (
    Case(
        "LongContextShare",
        "35 % of a cache that is 85 % full",
        _share(flat((0.1, 5), (0.35, 45), (0.1, 20)), 1100, 0.85) | _share(flat((0.1, 80)), 5000, 0.9, _OTHER_MODEL),
        "45m",
        (_LARGE,),
        more=(("30m", ()), ("60m", ())),
    ),
    Case("LongContextShare", "at the threshold", _share(flat((0.3, 80)), 5000, 0.9), "60m"),
    Case(
        "LongContextShare",
        "the engine with long requests has room, the full one has none of them",
        _share(flat((0.45, 80)), 5000, 0.75) | _share(flat((0.1, 80)), 5000, 0.95, _NEIGHBOUR),
        "60m",
    ),
    Case("LongContextShare", "900 requests observed", _share(flat((0.45, 80)), 900, 0.9), "60m"),
)

CASES = (*_FEW_FIT, *_SHARES)

_FIT = "model:llm_serving_long_context_requests_fit:min"
_WORST = (
    Fleet(
        "chat",
        _fit(flat((2.5, 10)), 6, 5000)
        | _fit(flat((8, 10)), 5, 900, _NEIGHBOUR)
        | _share(flat((0.1, 10)), 5000, 0.9)
        | _share(flat((0.45, 10)), 900, 0.4, _NEIGHBOUR),
        (
            is_(_FIT, 2.5, bound="lower"),
            is_(_FIT, 5, bound="upper"),
            is_("model:llm_serving_long_context_kv_share_ratio:max", 0.45, bound="lower"),
            is_("model:llm_serving_long_context_requests_observed:max", 5000),
        ),
    ),
)
SAMPLES = {"tail.samples.yml": document(_WORST, "tail", "8m")}
