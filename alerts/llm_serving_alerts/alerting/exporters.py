"""Check exporter, the view itself: exporters that are gone, and a fleet that nobody reaches."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_alerts.declare import Alert, Text, alert_matchers, label, value
from llm_serving_alerts.external import DAEMONSET_PODS, UP
from llm_serving_alerts.promql import HOUR, MINUTE, Dialect, series
from llm_serving_alerts.records.history import EXPORTERS
from llm_serving_alerts.records.presence import (
    DOWN_RATIO,
    EXPORTERS_OF_JOB,
    LOST_NODES,
    OFF_NODE,
    SIDECAR,
    UNREACHED,
    known_exporters,
    no_answer,
)
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import EXCEEDED_RATIO, FOR
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_alerts.shown import Shown

_NONE, _SOME = "none", "some"
# as the chart names it, whatever stands before and after
_DAEMONSET = 'daemonset=~".*llm-serving-exporter.*"'
# a rollout replaces one exporter after the other: at some moment of these all are there
_WHILE_SECONDS = 10 * MINUTE


def _absent(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return _no_exporter(dialect) if tier == _NONE else _some_gone(dialect)


def _no_exporter(dialect: Dialect) -> str:
    fleet, sidecars = dialect.key(), known_exporters(dialect, f'mode="{SIDECAR}"')
    had = f"count by ({fleet}) ({known_exporters(dialect)})"
    # those in the pods of their engines go with these: ReplicaLost and TargetsDown tell of them
    nobody = f"absent({series('exporter_build_info')}) unless on () {sidecars}"
    # of how many are gone the ticket's value tells, here none is left
    return f"({had} unless on ({fleet}) {series('exporter_build_info')} or on () ({nobody})) * 0"


def _some_gone(dialect: Dialect) -> str:
    by_job, fleet = dialect.key("job"), dialect.key()
    parts = f"{_silent(dialect)} or on ({by_job}) {_fewer(dialect)} or {_of_daemonset(dialect)} or {_unread_shards(dialect)}"
    # of a fleet without any the page tells
    return f"({parts}) and on ({fleet}) {EXPORTERS}"


def _gone(dialect: Dialect, matchers: str = "") -> tuple[str, str]:
    """Exporters that are known and do not answer, and those that were on a lost node: of them NodeLost tells."""
    of_exporter = dialect.key("job", "instance")
    ours = known_exporters(dialect, matchers) if matchers else known_exporters(dialect)
    return (
        f"{ours} and on ({of_exporter}) ({no_answer(dialect)})",
        f"{ours} and on ({dialect.key('node')}) {LOST_NODES} == 1",
    )


def _silent(dialect: Dialect) -> str:
    silent, lost = _gone(dialect)
    return f"count by ({dialect.key('job')}) ({silent} unless on ({dialect.key('job', 'instance')}) ({lost}))"


def _fewer(dialect: Dialect) -> str:
    """How many fewer a job has than there were at once within the last hour. Where a DaemonSet says how many there should be it knows better:
    nodes come and go."""
    by_job = dialect.key("job")

    def most(exporters: str) -> str:
        return dialect.apply_over_time("max_over_time", exporters, _WHILE_SECONDS)

    def most_steadily(exporters: str) -> str:
        # a rollout replaces one after the other: of those that come and go none is there for all of a while
        steady = dialect.apply_over_time("min_over_time", exporters, _WHILE_SECONDS)
        return dialect.apply_over_time("max_over_time", steady, HOUR, _WHILE_SECONDS)

    before, now = (f"sum by ({by_job}) ({_counted(dialect, function)})" for function in (most_steadily, most))
    _, lost = _gone(dialect)
    none = f"or on ({by_job}) {before} * 0"
    return f"({before} - on ({by_job}) ({now} {none}) - on ({by_job}) (count by ({by_job}) ({lost}) {none}) > 0)"


def _counted(dialect: Dialect, function: Callable[[str], str]) -> str:
    central, others = (function(f'{EXPORTERS_OF_JOB}{{mode{sign}"central"}}') for sign in ("=", "!="))
    return f"{central} or {others} unless on ({dialect.key()}) {DAEMONSET_PODS.name}{{{_DAEMONSET}}}"


def _of_daemonset(dialect: Dialect) -> str:
    """How many fewer there are than Kubernetes is to run, but for those of which another part tells."""
    fleet = dialect.key()
    pods = f"max by ({dialect.key('namespace', 'daemonset')}) ({DAEMONSET_PODS.name}{{{_DAEMONSET}}})"
    wanted = f"sum by ({fleet}) ({pods})"
    silent, lost = _gone(dialect, OFF_NODE)
    there = f"count by ({fleet}) ({EXPORTERS}{{{OFF_NODE}}} or {silent} or {lost})"
    return f"{wanted} - on ({fleet}) {there} > 0"


def _unread_shards(dialect: Dialect) -> str:
    return f"({dialect.bare(series('exporter_shard_held'), 'shard')} == 0) + 1"


def _absent_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    where = "".join(f"{{{{ with $labels.{name} }}}}{{{{ . }}}} {{{{ end }}}}" for name in dialect.external)
    matchers, values = alert_matchers((*dialect.external, "job"))
    known = known_exporters(dialect, matchers)
    which = f"{known} and on ({dialect.key('job', 'instance')}) {dialect.bare(UP.name, 'job', 'instance')} == 0"
    names = f'{{{{ range printf `{which}` {values} | query | sortByLabel "instance" }}}} {{{{ .Labels.instance }}}}{{{{ end }}}}'
    one = f"{{{{ if $labels.shard }}}}shard {label('shard')}: no exporter reads it{{{{ else if $labels.job }}}}"
    several = f"{value()} exporters of job {label('job')} are gone"
    return Text(
        f"{where}{one}{several}{{{{ else if eq $value 0.0 }}}}no llm-serving-exporter is scraped{{{{ else }}}}"
        f"{value()} exporters of a DaemonSet are not scraped{{{{ end }}}}",
        "{{ if eq $value 0.0 }}No exporter is scraped any more: every other alert of this pack is blind.{{ else }}"
        f"Nothing is seen of the servers that they read, and no alert about those can fire.{{{{ if $labels.job }}}} Do not answer:{names}.{{{{ end }}}}{{{{ end }}}}",
        "look at Prometheus' targets page, then at the exporters; until they are back watch their servers by hand",
    )


def _unreachable(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"{UNREACHED} > {own['above']:g}"


def _unreachable_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    where = " ".join([*(label(name) for name in dialect.external), ""]) if dialect.external else ""
    matchers, values = alert_matchers(dialect.external)
    down = f"{DOWN_RATIO}{{{matchers}}} > {own['above']:g}"
    query = f"printf `{down}` {values} | query" if dialect.external else f"query `{down}`"
    models = f'{{{{ range $i, $one := {query} | sortByLabel "model_name" }}}}{{{{ if $i }}}}, {{{{ end }}}}{{{{ $one.Labels.model_name }}}}{{{{ end }}}}'
    return Text(
        f"{where}{value('humanizePercentage')} of all replicas cannot be reached",
        f"Most replicas of several models or nodes went at once: {models}. That is the network, what they share, or the exporters' view of them. "
        "Alerts about single models and nodes of this fleet are not told while this page is open.",
        "ask a server by hand from elsewhere: users may still be served",
    )


EXPORTERS_ALERTS = (
    Alert("FleetUnreachable", Check.EXPORTER, (), {Severity.CRITICAL: ""}, _unreachable, _unreachable_text, Shown("exporter"), {"above": EXCEEDED_RATIO}),
    Alert("ExporterAbsent", Check.EXPORTER, ("job", "shard"), {Severity.WARNING: _SOME, Severity.CRITICAL: _NONE}, _absent, _absent_text, Shown("exporter"), {"warning_for": FOR}, separate=True),
)  # fmt: skip
