"""Checks kv and tail: a full cache, what it costs, and what a few long requests do to it."""

from __future__ import annotations

from llm_serving_alerts.declare import (
    Alert,
    Shown,
    Text,
    alert_matchers,
    label,
    lookup,
    of_model,
    of_target,
    owners_only,
    value,
)
from llm_serving_alerts.promql import ENGINE, MINUTE, MODEL, TARGET, Dialect, clauses, seconds_text, series
from llm_serving_alerts.records.baselines import HIT_RATE
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import EXCEEDED_RATIO, NUMBER, RATIO, SPAN, AlertSettings, Settings

_USAGE = "engine:llm_serving_kv_cache_usage_ratio:max"
_MEAN = "engine:llm_serving_kv_cache_usage_ratio:avg5m"
_WAITING = "engine:llm_serving_requests_waiting:max"
_MODEL_WAITING = "model:llm_serving_requests_waiting:sum"
_HIT_MEDIAN = "model:llm_serving_prefix_cache_hit:median7d"
_FIT = "long_context_requests_fit"
_OBSERVED = "long_context_requests_observed"
_PLAIN = "printf `%.1f`"  # humanize writes 0.2 as 200m


def _saturated(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_engine = dialect.labels(*ENGINE)
    ahead = dialect.apply_over_time("predict_linear", _MEAN, 900)[:-1] + f", {dialect.length(own['within'])})"
    full = clauses(
        ("live requests hold nearly all of the cache", f"{_USAGE} > {own['above']:g}"),
        ("or soon will, as its line of 15m goes on", f"or on ({by_engine}) {_MEAN} > {own['filling_above']:g}"),
        ("which has a long way to go from further below", f"and on ({by_engine}) {ahead} > 1"),
    )
    both = clauses(
        ("the cache is full, or will be", f"({full})"),
        ("and requests wait for it", f"and on ({by_engine}) {_WAITING} > 0"),
    )
    lately = max(own.for_seconds, MINUTE)
    # without its name: the mean outlives the gauge by five minutes, and two names of one engine are two series of one label set over time
    filled = f"(max by ({by_engine}) ({_USAGE}) or on ({by_engine}) max by ({by_engine}) ({_MEAN}))"
    expr = clauses(
        ("how full it was lately", dialect.apply_over_time("max_over_time", filled, lately, MINUTE)),
        ("where in half of the time", f"and on ({by_engine}) {dialect.half(f'(({both}) * 0 + 1)', own.for_seconds)}"),
    )
    waiting = lookup(dialect, _WAITING, ENGINE, "humanize")
    within = seconds_text(own["within"])
    return expr, Text(
        f"{of_target(dialect)}: KV cache {value('humanizePercentage')} full and requests wait",
        f"Live requests of engine {label('engine')} hold {value('humanizePercentage')} of the KV cache, {waiting} requests wait. "
        f"{{{{ if gt $value {own['above']:g} }}}}The next step is preemption: what was computed is thrown away and computed again."
        f"{{{{ else }}}}The line of the last 15m passes 100% within {within}.{{{{ end }}}}",
        "add a replica or shed load; look for long contexts",
    )


def _preempting(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    finished = f"(target:llm_serving_requests_finished:increase10m >= {own['events']:g})"
    expr = clauses(
        ("preemptions of 10m", "target:llm_serving_preemptions:increase10m"),
        (
            "for each request that finished, where they are enough for a ratio",
            f"/ on ({dialect.labels(*TARGET)}) {finished}",
        ),
        ("each is a request computed twice", f"> {own['above']:g}"),
    )
    return expr, Text(
        f"{of_target(dialect)}: {value('printf `%.2f`')} preemptions per finished request",
        f"In 10m there were {value('printf `%.2f`')} preemptions for each finished request. Each throws away KV that has to be computed again: users see answers that "
        "pause, and prefill work grows.",
        "lower the limit of running requests, or add KV memory",
    )


def hits_lost(dialect: Dialect, own: AlertSettings) -> str:
    """Models whose prefix cache finds far less than usual. `own`: of HitRateDropped."""
    return f"{HIT_RATE} < on ({dialect.labels(*MODEL)}) {own['below']:g} * ({_HIT_MEDIAN} > {own['least_median']:g})"


def _hit_rate(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = hits_lost(dialect, own)
    return expr, Text(
        f"{of_model(dialect)}: prefix cache hits down to {value('humanizePercentage')}",
        f"{value('humanizePercentage')} of the looked-up tokens were found in 30m; usually it is {lookup(dialect, _HIT_MEDIAN, MODEL, 'humanizePercentage')}. "
        "Prefill computes again what it used to find.",
        "ask what changed: prompt template, router's stickiness, cache size",
    )


def _few_fit(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model = dialect.labels(*MODEL)
    few = f"min by ({by_model}) ({_observed(dialect, own, _FIT, 'lower')}) < {own['below']:g}"
    # as long as nobody waits for them and nobody loses memory to them, a panel shows how thin the ice is
    # of the moments that half an hour has: those without the series are moments at which nobody was known to wait
    waited = dialect.apply_over_time("sum_over_time", f"({_MODEL_WAITING} > bool 0)", 1800, 60)
    preempted = dialect.apply_over_time(
        "max_over_time", f"sum by ({by_model}) (target:llm_serving_preemptions:increase10m)", 1800, 60
    )
    expr = f"{few} and on ({by_model}) ({waited} / 30 > {own['waiting_above']:g} or on ({by_model}) {preempted} > 0)"
    matchers, values = alert_matchers((*dialect.external, *MODEL))
    theirs, own_values = owners_only(dialect)
    query = f"printf `min({_observed(dialect, own, _FIT, 'upper', matchers)}{theirs})` {values} {values}{own_values}"
    upper = f"{{{{ with {query} | query }}}}{{{{ . | first | value | {_PLAIN} }}}}{{{{ end }}}}"
    return expr, Text(
        f"{of_model(dialect)}: only {value(_PLAIN)} requests of p99 length fit the KV cache",
        f"At least {value(_PLAIN)} and at most {upper} requests with a prompt of the 99th percentile and a mean answer fit one engine. A few of them at once, "
        "and everyone else waits.",
        "bound the context, or send long requests to replicas of their own",
    )


def _observed(dialect: Dialect, own: AlertSettings, estimate: str, bound: str, matchers: str = "") -> str:
    """A bound of an estimate by engine, where the engine itself has seen enough requests."""
    one = dialect.one(series(estimate, matchers, bound=bound), *ENGINE)
    observed = dialect.bare(series(_OBSERVED, matchers), *ENGINE)
    return f"{one} and on ({dialect.key(*ENGINE)}) {observed} >= {own['events']:g}"


KV = (
    Alert("KVSaturated", Check.KV, ENGINE, {Severity.WARNING: ""}, _saturated, Shown("kv", "KV cache usage"), halves=True, values={"above": EXCEEDED_RATIO, "filling_above": RATIO, "within": SPAN}),
    Alert("PreemptionStorm", Check.KV, TARGET, {Severity.WARNING: ""}, _preempting, Shown("kv", "Preemptions per finished request"), {"above": NUMBER, "events": NUMBER}),
    Alert("HitRateDropped", Check.KV, MODEL, {Severity.WARNING: ""}, _hit_rate, Shown("kv", "Prefix cache hit rate"), {"below": RATIO, "least_median": RATIO, "tokens": NUMBER}),
)  # fmt: skip
TAIL = (
    Alert("LongContextFewFit", Check.TAIL, MODEL, {Severity.WARNING: ""}, _few_fit, Shown("kv", "Long requests that fit"), {"below": NUMBER, "events": NUMBER, "waiting_above": RATIO}),
)  # fmt: skip
