"""Check phases: prefill and decode, apart and together; one replica that is unlike its peers."""

from __future__ import annotations

from llm_serving_alerts.declare import (
    DIGITS,
    Alert,
    Shown,
    Text,
    alert_matchers,
    label,
    lookup,
    of_model,
    of_target,
    say_each,
    show_first,
    value,
)
from llm_serving_alerts.promql import DAY, ENGINE, MODEL, TARGET, Dialect, series
from llm_serving_alerts.records.baselines import WORK, WORK_QUEUED
from llm_serving_alerts.records.outliers import OUTLIER, PEERS
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import EXCEEDED_RATIO, NUMBER, RATIO, SPAN, AlertSettings, Settings
from llm_serving_exporter.settings.kinds import integer

# --- Check phases: prefill and decode, apart and together.

_TENTHS = 'printf "%.1f"'
_P90 = "model:llm_serving_reference_work_per_replica:p90_7d"
_MEDIAN = "model:llm_serving_tokens:same_hour_median7d"
_LOWEST = "model:llm_serving_tokens:same_hour_lowest_median7d"
_WEEK_AGO = "model:llm_serving_tokens:same_hour_week_ago"


def _throughput(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model = dialect.labels(*MODEL)
    waiting = dialect.apply_over_time("min_over_time", "model:llm_serving_requests_waiting:sum", 300)
    # in split pools requests also wait for KV that is on its way, which is no queue
    mean = f'{WORK}{{role="unified"}} / on ({by_model}) {_P90} < {own[tier]:g}'
    # where one client floods one replica, that one does its work and the others idle
    queued = f"{WORK_QUEUED} / on ({by_model}) {_P90} >= {own[tier]:g}"
    expr = f"{mean} and on ({by_model}) {waiting} > 0 unless on ({by_model}) {queued}"
    return expr, Text(
        f"{of_model(dialect)}: each replica does {value('humanizePercentage')} of its usual work while requests wait",
        f"Prefill and decode together, weighed by their reference seconds, are at {value('humanizePercentage')} of what a replica usually does "
        f"under a queue (90th percentile of 7 days: {lookup(dialect, _P90, MODEL, DIGITS)} reference seconds per second). "
        f"{lookup(dialect, 'model:llm_serving_requests_waiting:sum', MODEL, 'humanize')} requests wait.",
        "compare the replicas: one slow, or all",
    )


def _vanished(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model = dialect.labels(*MODEL)
    now = "model:llm_serving_tokens:rate5m"
    floor = f"{own['least_tokens_per_second']:g}"
    waited = dialect.apply_over_time("last_over_time", "model:llm_serving_requests_waiting:sum", DAY)
    expr = (
        f"{now} < {own['below']:g} * ({_MEDIAN} > {floor}) and on ({by_model}) {now} < {own['below']:g} * ({_WEEK_AGO} > {floor})"
        # what was known last: an engine that has nothing to do may stop saying it
        f" and on ({by_model}) {waited} == 0"
        f" and on ({by_model}) model:llm_serving_ready_replicas:sum > 0"
        # traffic that comes in bursts has gone for a while in every hour
        f" unless on ({by_model}) {_LOWEST} <= on ({by_model}) {now}"
    )
    return expr, Text(
        f"{of_model(dialect)}: traffic has vanished: {value(_TENTHS)} tokens/s",
        f"The replicas are up and nothing waits, but they serve {value(_TENTHS)} tokens/s; at this hour it was "
        f"{lookup(dialect, _MEDIAN, MODEL, _TENTHS)} (median of the last days) and {lookup(dialect, _WEEK_AGO, MODEL, _TENTHS)} a week ago.",
        "check what stands in front: router, DNS, certificates, clients",
    )


def _starved(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model = dialect.labels(*MODEL)
    itl = 'model:llm_serving_inter_token_latency_seconds:quantile_rate10m{rank="p95",role="unified"}'
    events = 'sum by ({by}) (model:llm_serving_inter_token_latency_seconds_bucket:rate10m{{le="+Inf"}}) * 600'
    busy = dialect.one(dialect.rate(series("phase_busy_seconds_total"), 600), *ENGINE, "phase")
    prefill = dialect.one(dialect.rate(series("phase_busy_seconds_total", 'phase="prefill"'), 600), *ENGINE, "phase")
    expr = (
        f"sum without (rank) ({itl}) > {choose_itl_threshold(settings, own):g}"
        f" and on ({by_model}) sum by ({by_model}) ({prefill}) / (sum by ({by_model}) ({busy}) > 0) > {own['prefill_above']:g}"
        f" and on ({by_model}) {events.format(by=by_model)} >= {own['events']:g}"
    )
    return expr, Text(
        f"{of_model(dialect)}: prefill starves decode, p95 inter-token latency {value('humanizeDuration')}",
        f"The 95th percentile between two tokens is {value('humanizeDuration')} (threshold {choose_itl_threshold(settings, own):g}s) and prefill takes more than "
        f"{own['prefill_above']:.0%} of the busy time: answers stutter while prompts are computed.",
        "look for a flood of long prompts; lower the chunked-prefill budget",
    )


def choose_itl_threshold(settings: Settings, own: AlertSettings) -> float:
    """Seconds between two tokens above which prefill is held to starve decode: the objective's, where there is one."""
    return settings.slo["itl"].threshold_seconds or own["itl_above"]


PHASES = (
    Alert(
        "ThroughputBelowBaseline", Check.PHASES, MODEL, {Severity.WARNING: "warning_below", Severity.CRITICAL: "critical_below"},
        _throughput, Shown("phases", "Work per replica with a queue, against the baseline"), {"warning_below": RATIO, "critical_below": RATIO},
    ),
    Alert(
        "TrafficVanished", Check.PHASES, MODEL, {Severity.WARNING: ""}, _vanished, Shown("phases", "Tokens/s against the same hour of other days"),
        {"below": RATIO, "least_tokens_per_second": NUMBER, "days": integer(1, 7)},
    ),
    Alert(
        "PrefillStarvesDecode", Check.PHASES, MODEL, {Severity.WARNING: ""}, _starved, Shown("phases", "Inter-token latency beside prefill"),
        {"itl_above": SPAN, "prefill_above": EXCEEDED_RATIO, "events": NUMBER},
    ),
)  # fmt: skip


# --- Check phases: one replica that is unlike its peers.


def _outlier(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    # one cause makes late first tokens, slow decode and a queue: one alert, in however many ways a replica is unlike its peers
    expr = f"count by ({dialect.labels(*TARGET)}) ({OUTLIER})"
    seconds, share = "humanizeDuration", "humanizePercentage"
    summary = _of_each(
        dialect,
        "; ",
        ttft=(seconds, "first tokens after {own}, its peers would need {peers}"),
        decode=(seconds, "{own} between tokens, its peers would need {peers}"),
        errors=(share, "{own} of its requests fail, {peers} of its peers'"),
        queue=(DIGITS, "requests wait at it while it does {own} of work, its peers {peers}"),
    )
    waiting = lookup(dialect, "target:llm_serving_requests_waiting:sum", TARGET, "humanize")
    description = _of_each(
        dialect,
        " ",
        ttft=(
            seconds,
            "Mean time to first token, over 15m or, of few requests, 30m or 1h: {own}. Its peers would take {peers} for as many prompt tokens to be "
            "computed. Long prompts, a cold cache and the queue behind more prompts than usual are allowed for.",
        ),
        decode=(
            seconds,
            "Mean time between two tokens, without prefill's share: {own}. Its peers would take {peers} at its batch and context, by the distance to each "
            "one's own decode ceiling.",
        ),
        errors=(
            share,
            "{own} of the requests that ended here ended with an error, {peers} of those of its peers together. Chance does not explain it.",
        ),
        queue=(
            DIGITS,
            "Requests have waited here for 10m beside free KV cache; it does {own} reference seconds of work per second, the median of its peers is "
            f"{{peers}}. {waiting} wait.",
        ),
    )
    return expr, Text(
        f"{of_target(dialect)}: {summary}",
        f"{description} Peers: replicas of the same model, role, runtime and kind of GPU.",
        f"look at {label('target')} alone; drain and restart it if the others carry the load",
    )


def _of_each(dialect: Dialect, between: str, **texts: tuple[str, str]) -> str:
    """What is to be said of each way in which the replica is unlike its peers. `texts`: by `of`, how figures are shown and what is said, with
    {own} and {peers} for the figures."""
    matchers, values = alert_matchers((*dialect.identity_of(TARGET), *TARGET))
    peers = f"printf `{PEERS}{{{matchers},of=%q}}` {values} $one.Labels.of"
    cases = []
    for of, (how, text) in texts.items():
        said = text.replace("{own}", f"{{{{ $one.Value | {how} }}}}").replace("{peers}", show_first(peers, how))
        cases.append(f'if eq $one.Labels.of "{of}" }}}}{said}{{{{ ')
    each = f"{{{{ {'else '.join(cases)}end }}}}"
    return say_each(f"printf `{OUTLIER}{{{matchers}}}` {values} | query", "of", each, between)


OUTLIERS = (
    Alert(
        "ReplicaOutlier", Check.PHASES, TARGET, {Severity.WARNING: ""}, _outlier, Shown("replica", "Pace against its peers"),
        {
            "settle": SPAN, "events": NUMBER, "spreads": NUMBER, "ttft_above": NUMBER, "ttft_least": SPAN, "decode_above": NUMBER,
            "decode_least": SPAN, "errors_above": NUMBER, "errors_least": RATIO, "work_below": RATIO,
        },
    ),
)  # fmt: skip
