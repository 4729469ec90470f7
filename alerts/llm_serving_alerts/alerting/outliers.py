"""Check phases: one replica that is unlike its peers."""

from __future__ import annotations

from llm_serving_alerts.declare import DIGITS, Alert, Text, label, lookup, of_target, value
from llm_serving_alerts.promql import TARGET, Dialect
from llm_serving_alerts.records.outliers import OUTLIER, PEERS
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import NUMBER, RATIO, SPAN
from llm_serving_alerts.settings import AlertSettings, Settings

_LEVEL = (*TARGET, "of")


def _outlier(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return OUTLIER


def _outlier_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    def theirs(how: str) -> str:
        return lookup(dialect, PEERS, _LEVEL, how)

    def by_measure(**texts: str) -> str:
        first, *others = texts.items()
        begin = f'{{{{ if eq $labels.of "{first[0]}" }}}}{first[1]}'
        return begin + "".join(f'{{{{ else if eq $labels.of "{of}" }}}}{text}' for of, text in others) + "{{ end }}"

    seconds, share = "humanizeDuration", "humanizePercentage"
    summary = by_measure(
        ttft=f"first tokens after {value(seconds)}, its peers would need {theirs(seconds)}",
        decode=f"{value(seconds)} between tokens, its peers would need {theirs(seconds)}",
        errors=f"{value(share)} of its requests fail, {theirs(share)} of its peers'",
        queue=f"requests wait at it while it does {value(DIGITS)} of work, its peers {theirs(DIGITS)}",
    )
    description = by_measure(
        ttft=f"Mean time to first token, over 15m or, of few requests, 1h: {value(seconds)}. Its peers would take {theirs(seconds)} for as many "
        "prompt tokens to be computed. Long prompts, a cold cache and the queue behind more prompts than others are allowed for.",
        decode=f"Mean time between two tokens, without prefill's share: {value(seconds)}. Its peers would take {theirs(seconds)} at its batch and "
        "context, by the distance to each one's own decode ceiling.",
        errors=f"{value(share)} of the requests that ended here ended with an error, {theirs(share)} of those of its peers together. Chance does not "
        "explain it.",
        queue=f"Requests have waited here for 10m beside free KV cache; it does {value(DIGITS)} reference seconds of work per second, the median of "
        f"its peers is {theirs(DIGITS)}. {lookup(dialect, 'target:llm_serving_requests_waiting:sum', TARGET, 'humanize')} wait.",
    )
    peers_are = "Peers: replicas of the same model, role, runtime and kind of GPU."
    return Text(
        f"{of_target(dialect)}: {summary}",
        f"{description} {peers_are}",
        f"look at {label('target')} alone; drain and restart it if the others carry the load",
    )


OUTLIERS = (
    Alert(
        "ReplicaOutlier", Check.PHASES, _LEVEL, {Severity.WARNING: ""}, _outlier, _outlier_text,
        {
            "settle": SPAN, "events": NUMBER, "spreads": NUMBER, "ttft_above": NUMBER, "ttft_least": SPAN, "decode_above": NUMBER,
            "decode_least": SPAN, "errors_above": NUMBER, "errors_least": RATIO, "work_below": RATIO,
        },
    ),
)  # fmt: skip
