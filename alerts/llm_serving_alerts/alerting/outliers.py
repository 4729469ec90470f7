"""Check phases: one replica that is unlike its peers."""

from __future__ import annotations

from llm_serving_alerts.declare import DIGITS, Alert, Text, alert_matchers, label, lookup, of_target
from llm_serving_alerts.promql import TARGET, Dialect
from llm_serving_alerts.records.outliers import OUTLIER, PEERS
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import NUMBER, RATIO, SPAN
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_alerts.shown import Shown


def _outlier(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    # one cause makes late first tokens, slow decode and a queue: one alert, in however many ways a replica is unlike its peers
    return f"count by ({dialect.labels(*TARGET)}) ({OUTLIER})"


def _outlier_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
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
    return Text(
        f"{of_target(dialect)}: {summary}",
        f"{description} Peers: replicas of the same model, role, runtime and kind of GPU.",
        f"look at {label('target')} alone; drain and restart it if the others carry the load",
    )


def _of_each(dialect: Dialect, between: str, **texts: tuple[str, str]) -> str:
    """What is to be said of each way in which the replica is unlike its peers. `texts`: by `of`, how figures are shown and what is said, with
    {own} and {peers} for the figures."""
    matchers, values = alert_matchers((*dialect.identity_of(TARGET), *TARGET))
    found = f'printf `{OUTLIER}{{{matchers}}}` {values} | query | sortByLabel "of"'
    peers = f"printf `{PEERS}{{{matchers},of=%q}}` {values} $one.Labels.of | query"
    cases = []
    for of, (how, text) in texts.items():
        theirs = f"{{{{ with {peers} }}}}{{{{ . | first | value | {how} }}}}{{{{ else }}}}unknown{{{{ end }}}}"
        said = text.replace("{own}", f"{{{{ $one.Value | {how} }}}}").replace("{peers}", theirs)
        cases.append(f'if eq $one.Labels.of "{of}" }}}}{said}{{{{ ')
    each = f"{{{{ {'else '.join(cases)}end }}}}"
    return f"{{{{ range $i, $one := {found} }}}}{{{{ if $i }}}}{between}{{{{ end }}}}{each}{{{{ end }}}}"


OUTLIERS = (
    Alert(
        "ReplicaOutlier", Check.PHASES, TARGET, {Severity.WARNING: ""}, _outlier, _outlier_text, Shown("replica", "Pace against its peers"),
        {
            "settle": SPAN, "events": NUMBER, "spreads": NUMBER, "ttft_above": NUMBER, "ttft_least": SPAN, "decode_above": NUMBER,
            "decode_least": SPAN, "errors_above": NUMBER, "errors_least": RATIO, "work_below": RATIO,
        },
    ),
)  # fmt: skip
