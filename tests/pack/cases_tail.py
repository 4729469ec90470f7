"""When the alerts of check tail fire and when they do not."""

from __future__ import annotations

from tests.pack.builders_kv import firing, flat, growing, selector
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


def _waiting(values: str, identity: dict[str, str] = _ENGINE) -> Series:
    return _shown("requests_waiting", values, identity)


_QUEUE = _waiting(flat((1, 80)))

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
        | _fit(flat((30, 80)), 40, 5000, _OTHER_MODEL)
        | _QUEUE,
        "45m",
        (_FEW,),
        more=(("30m", ()), ("60m", ())),
    ),
    Case("LongContextFewFit", "four fit", _fit(flat((4, 80)), 6, 5000) | _QUEUE, "60m"),
    Case("LongContextFewFit", "nobody waits", _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat((0, 80))), "60m"),
    Case("LongContextFewFit", "nobody says whether requests wait", _fit(flat((3.5, 80)), 6, 1100), "60m"),
    Case(
        "LongContextFewFit",
        "one minute of every twenty somebody waits: a twentieth of the time",
        _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat(*(((1, 1), (0, 19)) * 4))),
        "60m",
    ),
    Case(
        "LongContextFewFit",
        "two minutes of every ten somebody waits",
        _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat(*(((1, 2), (0, 8)) * 8))),
        "60m",
        (_FEW,),
    ),
    Case(
        "LongContextFewFit",
        "nobody waits, and requests are preempted",
        _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat((0, 80))) | _shown("preemptions_total", growing((1, 80))),
        "60m",
        (_FEW,),
    ),
    Case(
        "LongContextFewFit",
        "an engine that has just started says two from its first 900 requests, the others know better",
        _fit(flat((2, 80)), 3, 900) | _fit(flat((8, 80)), 12, 5000, _NEIGHBOUR) | _QUEUE,
        "60m",
    ),
    Case(
        "LongContextFewFit",
        "no lower bound: the longest bucket has no upper edge",
        {name: values for name, values in _fit(flat((2, 80)), 3, 5000).items() if 'bound="lower"' not in name} | _QUEUE,
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


CASES = _FEW_FIT

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
