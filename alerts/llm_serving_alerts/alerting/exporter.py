"""Check exporter: what all others rest on: targets, signals, the exporter, and that pages can be delivered."""

from __future__ import annotations

from llm_serving_alerts.alerting.cost import UNPRICED
from llm_serving_alerts.declare import DIGITS, Alert, Text, alert_matchers, label, lookup, of_model, of_target, value
from llm_serving_alerts.external import NOTIFICATIONS, NOTIFICATIONS_FAILED, PROCESS_START
from llm_serving_alerts.promql import DAY, DAY_STEP_SECONDS, HOUR, MODEL, TARGET, Dialect, one_of, series
from llm_serving_alerts.records.targets import DOWN, known
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import NUMBER, RATIO
from llm_serving_alerts.settings import AlertSettings, Settings

_DESIRED = "model:llm_serving_desired_replicas:max"
_KNOWN = "model:llm_serving_targets:count"
# not lost: there is no work (an engine may say nothing then, which looks stale), too little time has passed, it was switched off, or the
# question has no answer at this batch or on this role; prices have an alert of their own
_NOT_LOST = (
    "idle",
    "stale",
    "warming_up",
    "not_configured",
    "other_role",
    "no_ridge",
    "no_decode",
    "target_down",
    *UNPRICED,
)


def _target_down(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"{DOWN} == 1"


def _target_down_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_target(dialect)}: down",
        "The server does not answer, and it is neither loading nor asleep. The exporter's landing page has the last failures.",
        "look at the process and its log",
    )


def _targets_down(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_model, of_target = dialect.labels(*MODEL), dialect.key("target")
    # a server that loads its weights refuses connections: what never answered is not there yet, but is not lost
    up = dialect.apply_over_time("max_over_time", dialect.bare(series("target_up"), "target"), DAY, DAY_STEP_SECONDS)
    # what has been down for longer was read once, as long as its exporter remembers
    read = f"{dialect.bare(series('target_start_time_seconds'), 'target')} * 0 + 1"
    alive = f"sum by ({by_model}) (1 - {DOWN})"
    lost = f"sum by ({by_model}) ({DOWN} * on ({of_target}) group_left () ({up} > 0 or on ({of_target}) {read} or on ({of_target}) {up}))"
    # likewise the replicas that scaling up asks for need a while to come; a model that was taken out is no longer wanted
    asked = f"({dialect.apply_over_time('min_over_time', _DESIRED, HOUR / 2)} and on ({by_model}) {_DESIRED})"
    # those that never were there at once wait for capacity, or are a first deployment: nothing was lost (ReplicaLost tells of them)
    most = dialect.apply_over_time("max_over_time", f"({alive})", DAY, DAY_STEP_SECONDS)
    wanted = f"({asked} <= on ({by_model}) {most} or on ({by_model}) ({most} and on ({by_model}) {asked}))"
    all_ = f"({wanted} or on ({by_model}) {alive} + on ({by_model}) {lost})"
    return f"1 - ({alive} or on ({by_model}) {wanted} * 0) / on ({by_model}) {all_} > {own['above']:g}"


def _targets_down_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: {value('humanizePercentage')} of its replicas are down",
        f"Replicas wanted: {lookup(dialect, _DESIRED, MODEL, DIGITS)}, known: {lookup(dialect, _KNOWN, MODEL, 'humanize')}. "
        f"{value('humanizePercentage')} of them do not answer, neither loading nor asleep.",
        "look for what they share: node pool, registry, weights, network",
    )


def _lost(dialect: Dialect, by: tuple[str, ...], matchers: str = "") -> str:
    """Signals that no exporter of the target has now and one had within a day. A server that answers what nobody can read, such as a login
    page, has lost all of them; one that does not answer is down, which is another alert's."""
    by_signal, of_target = dialect.key("target", "signal"), dialect.key("target")
    reasons = one_of("reason", ("", *_NOT_LOST), negated=True)
    unread = series("signal_available", f'{matchers}reason="target_down"')
    unclear = series("target_state", state="unknown")
    missing = f"{series('signal_available', f'{matchers}{reasons}')} == 0 or {unread} == 0 and on ({of_target}) {unclear} == 1"
    gone = dialect.bare(missing, *by)
    there = series("signal_available", f'{matchers}reason=""')
    within_a_day = dialect.apply_over_time(
        "max_over_time", dialect.bare(there, "target", "signal"), DAY, DAY_STEP_SECONDS
    )
    return f"{gone} unless on ({by_signal}) {there} == 1 and on ({by_signal}) {within_a_day} == 1"


def _signal_lost(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    of_target = dialect.key("target")
    lost = f"count by ({of_target}) ({_lost(dialect, ('target', 'signal'))})"
    up = dialect.bare(f"{series('target_up')} == 1 or {series('target_state', state='unknown')} == 1", "target")
    return f"{known(dialect)} * on ({of_target}) group_left () ({lost} and on ({of_target}) {up})"


def _signal_lost_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    names = (*dialect.external, "target")
    # the same values stand at several places of the query
    matchers = "".join(f"{name}=%[{number}]q," for number, name in enumerate(names, 1))
    query = _lost(dialect, ("target", "signal", "reason"), matchers)
    _, values = alert_matchers(names)
    signals = f'{{{{ range printf `{query}` {values} | query | sortByLabel "signal" }}}}{{{{ .Labels.signal }}}} ({{{{ .Labels.reason }}}}) {{{{ end }}}}'
    return Text(
        f"{of_target(dialect)}: {value()} signals that were there within a day are gone",
        f"Not available now: {signals}- alerts and panels that depend on them are silent, not green.",
        "compare the server's version and flags with yesterday's",
    )


def _absent(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"absent({series('exporter_build_info')})"


def _absent_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        "No llm-serving-exporter is scraped",
        "Prometheus has no exporter's series at all: every other alert of this pack is blind.",
        "look at Prometheus' targets page, then at the exporters",
    )


def _reload(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"{dialect.one(series('exporter_config_reload_success'), 'instance')} == 0"


def _reload_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"Exporter {label('instance')}: its configuration was not reloaded",
        "The file on disk is not what runs: the last reload was refused, and the exporter keeps the previous one.",
        "run llm-serving-exporter check-config on the file",
    )


def _notifications(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    # by reason, from 0.26 on
    by = dialect.labels("instance", "integration")
    failed, sent = (
        f"sum by ({by}) ({dialect.increase(one.name, 300)})" for one in (NOTIFICATIONS_FAILED, NOTIFICATIONS)
    )
    return f"{failed} / on ({by}) ({sent} > 0) > {own['above']:g}"


def _notifications_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"Alertmanager {label('instance')} cannot deliver by {label('integration')}",
        f"{value('humanizePercentage')} of its notifications failed within 5m, and of those before. Pages may not arrive; this one came by another way.",
        "read Alertmanager's log; send a test page: llm-serving-exporter page-test",
    )


def _restarts(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    of_process = dialect.labels("instance", "job")
    # a target's start as two exporters see it may differ by rounding: each is counted for itself
    target = dialect.one(dialect.apply_over_time("changes", series("target_start_time_seconds"), HOUR), "target")
    # between two starts there is no exporter to say what it is
    ours = dialect.apply_over_time("last_over_time", series("exporter_build_info"), HOUR)
    own_starts = f"{dialect.apply_over_time('changes', PROCESS_START.name, HOUR)} and on ({of_process}) {ours}"
    return f"{target} >= {own['starts']:g} or {dialect.one(own_starts, 'instance')} >= {own['starts']:g}"


def _restarts_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{{{{ if $labels.target }}}}{label('target')}{{{{ else }}}}Exporter {label('instance')}{{{{ end }}}}: {value()} starts in an hour",
        "{{ if $labels.target }}It starts again and again: users meet cold caches, lost requests and a replica that is not there."
        "{{ else }}It starts again and again: its series have gaps, and everything based on them is late.{{ end }}",
        "read the log of the last exit: out of memory, a bad flag, a failing probe",
    )


def _watchdog(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return "vector(1)"


def _watchdog_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        "Alerting works",
        "Always fires. When it stops arriving at the dead-man service, alerts do not arrive either.",
        "none while it arrives",
    )


EXPORTER = (
    Alert("TargetDown", Check.EXPORTER, TARGET, {Severity.WARNING: ""}, _target_down, _target_down_text),
    Alert("TargetsDown", Check.EXPORTER, MODEL, {Severity.CRITICAL: ""}, _targets_down, _targets_down_text, {"above": RATIO}),
    Alert("SignalLost", Check.EXPORTER, TARGET, {Severity.WARNING: ""}, _signal_lost, _signal_lost_text),
    Alert("ExporterAbsent", Check.EXPORTER, (), {Severity.CRITICAL: ""}, _absent, _absent_text, bare=True),
    Alert("ConfigReloadFailed", Check.EXPORTER, ("instance",), {Severity.WARNING: ""}, _reload, _reload_text),
    Alert("NotificationsFailing", Check.EXPORTER, ("instance", "integration"), {Severity.WARNING: ""}, _notifications, _notifications_text, {"above": RATIO}),
    Alert("RestartLoop", Check.EXPORTER, ("target", "instance"), {Severity.WARNING: ""}, _restarts, _restarts_text, {"starts": NUMBER}),
    Alert("Watchdog", Check.EXPORTER, (), {Severity.NONE: ""}, _watchdog, _watchdog_text, bare=True),
)  # fmt: skip
