"""Check exporter: what all others rest on: targets, the exporter, and that pages can be delivered."""

from __future__ import annotations

from llm_serving_alerts import lost_nodes
from llm_serving_alerts.alerting.restarts import RESTART_LOOP
from llm_serving_alerts.declare import DIGITS, Alert, Text, alert_matchers, label, lookup, of_model, of_target, value
from llm_serving_alerts.external import NOTIFICATIONS, NOTIFICATIONS_FAILED
from llm_serving_alerts.promql import MINUTE, MODEL, TARGET, Dialect, clauses, series
from llm_serving_alerts.records.history import SERVED
from llm_serving_alerts.records.presence import DOWN_ALONE, DOWN_RATIO, OF_TARGETS, VANISHED
from llm_serving_alerts.records.rollouts import EXCUSED
from llm_serving_alerts.records.targets import WANTED_NOW, known
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import EXCEEDED_RATIO
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_alerts.shown import Shown
from llm_serving_exporter.model.sample import FailureReason

# a page that failed within so long fails now: it is asked for at least once a minute
_LATELY_SECONDS = 5 * MINUTE
_DESIRED = "model:llm_serving_desired_replicas:max"
_KNOWN = "model:llm_serving_targets:count"


def _target_down(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    rolling = f" unless on ({dialect.labels(*MODEL)}) {EXCUSED} > 0" if settings.node_loss.workloads else ""
    return lost_nodes.of_target(dialect, settings, f"{dialect.half(DOWN_ALONE, own.for_seconds)}{rolling}")


def _target_down_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_target(dialect)}: down",
        "The server does not answer, and it is neither loading nor asleep. The exporter's landing page has the last failures.",
        "look at the process and its log",
    )


def _page_fails(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    of_target = dialect.key("target")
    # of two exporters one may read it, and the last failure's series stays after it
    unread = f"min by ({of_target}) ({series('target_state', state='unknown')}) == 1"
    failed = dialect.bare(
        series("target_last_failure_timestamp_seconds", reason=FailureReason.PAGE_FAILS.value), "target"
    )
    return clauses(
        ("a server of which nobody can read the page", f"{known(dialect)} * on ({of_target}) group_left () ({unread})"),
        (
            "while it says that it is well",
            f"and on ({of_target}) {dialect.age(failed)} < {dialect.length(_LATELY_SECONDS)}",
        ),
    )


def _page_fails_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_target(dialect)}: its metrics page fails",
        "It serves: its health path answers, and its page alone does not. Nothing of its work is known, and alerts about it are silent, not green.",
        "look for the error of /metrics in its log",
    )


def _targets_down(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_model, most = dialect.labels(*MODEL), own["above"]
    # nobody misses at once a model that nobody used, or says that he wants: ReplicaLost tells of it
    idle = f"({VANISHED} unless on ({by_model}) {WANTED_NOW} unless on ({by_model}) {SERVED} == 1)"
    firing = f"{DOWN_RATIO} > {most:g} unless on ({by_model}) {idle}"
    return lost_nodes.of_model(dialect, firing, f"({DOWN_RATIO} - {most:g}) * on ({by_model}) {OF_TARGETS}")


def _targets_down_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    matchers, values = alert_matchers((*dialect.identity, *MODEL))
    gone = f"{{{{ if printf `{VANISHED}{{{matchers}}}` {values} | query }}}}"
    return Text(
        f"{of_model(dialect)}: {value('humanizePercentage')} of its replicas are {gone}gone{{{{ else }}}}down{{{{ end }}}}",
        f"Replicas wanted: {lookup(dialect, _DESIRED, MODEL, DIGITS)}, known: {lookup(dialect, _KNOWN, MODEL, 'humanize')}. "
        f"{gone}It served, and no exporter finds any of them any more.{{{{ else }}}}{value('humanizePercentage')} of them do not answer, neither loading "
        "nor asleep.{{ end }}",
        "look for what they share: node pool, registry, weights, network",
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


def _watchdog(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return "vector(1)"


def _watchdog_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        "Alerting works",
        "Always fires. When it stops arriving at the dead-man service, alerts do not arrive either.",
        "none while it arrives",
    )


EXPORTER = (
    Alert("TargetDown", Check.EXPORTER, (*TARGET, "node"), {Severity.WARNING: ""}, _target_down, _target_down_text, Shown("exporter", "Target states"), halves=True),
    Alert("TargetsDown", Check.EXPORTER, (*MODEL, "node"), {Severity.CRITICAL: ""}, _targets_down, _targets_down_text, Shown("exporter"), {"above": EXCEEDED_RATIO}),
    Alert("PageFails", Check.EXPORTER, TARGET, {Severity.WARNING: ""}, _page_fails, _page_fails_text, Shown("exporter", "Failed scrapes by reason")),
    Alert("ConfigReloadFailed", Check.EXPORTER, ("instance",), {Severity.WARNING: ""}, _reload, _reload_text, Shown("exporter")),
    Alert("NotificationsFailing", Check.EXPORTER, ("instance", "integration"), {Severity.WARNING: ""}, _notifications, _notifications_text, Shown("exporter"), {"above": EXCEEDED_RATIO}),
    RESTART_LOOP,
    Alert("Watchdog", Check.EXPORTER, (), {Severity.NONE: ""}, _watchdog, _watchdog_text, Shown("exporter"), bare=True),
)  # fmt: skip
