"""Checks kv and tail: a full cache, what it costs, and what a few long requests do to it."""

from __future__ import annotations

from llm_serving_alerts.declare import (
    Alert,
    Text,
    alert_matchers,
    label,
    lookup,
    of_model,
    of_target,
    owners_only,
    value,
)
from llm_serving_alerts.promql import ENGINE, MODEL, TARGET, Dialect, seconds_text, series
from llm_serving_alerts.records.baselines import HIT_RATE
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import NUMBER, RATIO, SPAN
from llm_serving_alerts.settings import AlertSettings, Settings

_USAGE = "engine:llm_serving_kv_cache_usage_ratio:max"
_MEAN = "engine:llm_serving_kv_cache_usage_ratio:avg5m"
_WAITING = "engine:llm_serving_requests_waiting:max"
_HIT_MEDIAN = "model:llm_serving_prefix_cache_hit:median7d"
_FIT, _SHARE = "long_context_requests_fit", "long_context_kv_share_ratio"
_OBSERVED = "long_context_requests_observed"
_PLAIN = "printf `%.1f`"  # humanize writes 0.2 as 200m


def _saturated(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"{_USAGE} > {own['above']:g} and on ({dialect.labels(*ENGINE)}) {_WAITING} > 0"


def _saturated_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    waiting = lookup(dialect, _WAITING, ENGINE, "humanize")
    return Text(
        f"{of_target(dialect)}: KV cache {value('humanizePercentage')} full and requests wait",
        f"Live requests of engine {label('engine')} hold {value('humanizePercentage')} of the KV cache, {waiting} requests wait. The next step is preemption: "
        "what was computed is thrown away and computed again.",
        "add a replica or shed load; look for long contexts",
    )


def _filling(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_engine = dialect.labels(*ENGINE)
    ahead = dialect.apply_over_time("predict_linear", _MEAN, 900)[:-1] + f", {dialect.length(own['within'])})"
    return f"{ahead} > 1 and on ({by_engine}) {_MEAN} > {own['above']:g} and on ({by_engine}) {_WAITING} > 0"


def _filling_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    now = lookup(dialect, _MEAN, ENGINE, "humanizePercentage")
    return Text(
        f"{of_target(dialect)}: KV cache will be full within {seconds_text(own['within'])}",
        f"Engine {label('engine')} uses {now} of its KV cache (mean of 5m), and the line of the last 15m passes 100% within {seconds_text(own['within'])}.",
        "add a replica now, before requests are preempted",
    )


def _preempting(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    finished = f"(target:llm_serving_requests_finished:increase10m >= {own['events']:g})"
    return f"target:llm_serving_preemptions:increase10m / on ({dialect.labels(*TARGET)}) {finished} > {own['above']:g}"


def _preempting_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_target(dialect)}: {value('printf `%.2f`')} preemptions per finished request",
        f"In 10m there were {value('printf `%.2f`')} preemptions for each finished request. Each throws away KV that has to be computed again: users see answers that "
        "pause, and prefill work grows.",
        "lower the limit of running requests, or add KV memory",
    )


def hits_lost(dialect: Dialect, own: AlertSettings) -> str:
    """Models whose prefix cache finds far less than usual. `own`: of HitRateDropped."""
    return f"{HIT_RATE} < on ({dialect.labels(*MODEL)}) {own['below']:g} * ({_HIT_MEDIAN} > {own['least_median']:g})"


def _hit_rate(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return hits_lost(dialect, own)


def _hit_rate_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: prefix cache hits down to {value('humanizePercentage')}",
        f"{value('humanizePercentage')} of the looked-up tokens were found in 30m; usually it is {lookup(dialect, _HIT_MEDIAN, MODEL, 'humanizePercentage')}. "
        "Prefill computes again what it used to find.",
        "ask what changed: prompt template, router's stickiness, cache size",
    )


def _queued(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_engine = dialect.labels(*ENGINE)
    limit = dialect.one(series("batch_limit_requests"), *ENGINE)
    # by target: vLLM's front end refuses for all of its engines
    rejected = dialect.bare(dialect.rate(series("requests_rejected_total"), 300), "target")
    room = (
        # in split pools requests also wait for KV that is on its way
        f'{_USAGE}{{role="unified"}} < {own["below"]:g}'
        f" and on ({by_engine}) engine:llm_serving_requests_running:max < on ({by_engine}) {limit}"
    )
    return (
        f"{room} and on ({by_engine}) {_WAITING} > 0"
        f" or on ({by_engine}) ({room} and on ({dialect.key('target')}) {rejected} > 0)"
    )


def _queued_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_target(dialect)}: requests wait although KV cache and batch have room",
        f"Engine {label('engine')} uses {value('humanizePercentage')} of its KV cache and does not reach its limit of running requests, and still "
        "requests wait or are rejected. More memory would not help.",
        "look at the limiter, the prefill budget and the router's queue",
    )


def _few_fit(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"min by ({dialect.labels(*MODEL)}) ({_observed(dialect, own, _FIT, 'lower')}) < {own['below']:g}"


def _observed(dialect: Dialect, own: AlertSettings, estimate: str, bound: str, matchers: str = "") -> str:
    """A bound of an estimate by engine, where the engine itself has seen enough requests."""
    one = dialect.one(series(estimate, matchers, bound=bound), *ENGINE)
    observed = dialect.bare(series(_OBSERVED, matchers), *ENGINE)
    return f"{one} and on ({dialect.key(*ENGINE)}) {observed} >= {own['events']:g}"


def _few_fit_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    matchers, values = alert_matchers((*dialect.external, *MODEL))
    theirs, own_values = owners_only(dialect)
    query = f"printf `min({_observed(dialect, own, _FIT, 'upper', matchers)}{theirs})` {values} {values}{own_values}"
    upper = f"{{{{ with {query} | query }}}}{{{{ . | first | value | {_PLAIN} }}}}{{{{ end }}}}"
    return Text(
        f"{of_model(dialect)}: only {value(_PLAIN)} requests of p99 length fit the KV cache",
        f"At least {value(_PLAIN)} and at most {upper} requests with a prompt of the 99th percentile and a mean answer fit one engine. A few of them at once, "
        "and everyone else waits.",
        "bound the context, or send long requests to replicas of their own",
    )


def _share(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    full = f"on ({dialect.labels(*ENGINE)}) {_USAGE} > {own['kv_above']:g}"
    shares = _observed(dialect, own, _SHARE, "lower")
    return f"max by ({dialect.labels(*MODEL)}) ({shares} and {full}) > {own['above']:g}"


def _share_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: the longest 1% of requests have {value('humanizePercentage')} of all context tokens",
        f"At least {value('humanizePercentage')} of the tokens of context of all requests belong to the longest hundredth of them, on an engine whose KV cache is more than {own['kv_above']:.0%} full.",
        "find the client that sends them; bound the context",
    )


KV = (
    Alert("KVSaturated", Check.KV, ENGINE, {Severity.WARNING: ""}, _saturated, _saturated_text, {"above": RATIO}),
    Alert("KVFilling", Check.KV, ENGINE, {Severity.WARNING: ""}, _filling, _filling_text, {"above": RATIO, "within": SPAN}),
    Alert("PreemptionStorm", Check.KV, TARGET, {Severity.WARNING: ""}, _preempting, _preempting_text, {"above": NUMBER, "events": NUMBER}),
    Alert("HitRateDropped", Check.KV, MODEL, {Severity.WARNING: ""}, _hit_rate, _hit_rate_text, {"below": RATIO, "least_median": RATIO, "tokens": NUMBER}),
    Alert("QueuedWithFreeKV", Check.KV, ENGINE, {Severity.WARNING: ""}, _queued, _queued_text, {"below": RATIO}),
)  # fmt: skip
TAIL = (
    Alert("LongContextFewFit", Check.TAIL, MODEL, {Severity.WARNING: ""}, _few_fit, _few_fit_text, {"below": NUMBER, "events": NUMBER}),
    Alert("LongContextShare", Check.TAIL, MODEL, {Severity.WARNING: ""}, _share, _share_text, {"above": RATIO, "kv_above": RATIO, "events": NUMBER}),
)  # fmt: skip
