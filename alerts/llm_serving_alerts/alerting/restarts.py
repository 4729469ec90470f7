"""Check exporter: what starts, goes and comes back again and again."""

from __future__ import annotations

from llm_serving_alerts.declare import Alert, Text, label, value
from llm_serving_alerts.external import PROCESS_START
from llm_serving_alerts.promql import HOUR, MINUTE, TARGETS, Dialect, clauses, seconds_text, series
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import NUMBER
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_alerts.shown import Shown

_READY = "target:llm_serving_ready:max"
# a pod that served for longer than this was not one that crashes
_LASTS_SECONDS = 600.0


def _restarts(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    of_process = dialect.labels("instance", "job")
    # a target's start as two exporters see it may differ by rounding: each is counted for itself
    starts = dialect.apply_over_time("changes", series("target_start_time_seconds"), HOUR)
    # a page may not say when its server started: then that is when its exporter, which has restarted, saw it first
    restarts = f"max by ({of_process}) ({dialect.apply_over_time('changes', PROCESS_START.name, HOUR)})"
    on_target = dialect.labels("target", "instance", "job")
    servers = f"({starts} - on ({of_process}) group_left () {restarts} or on ({on_target}) {starts})"
    target = dialect.one(servers, "target")
    # between two starts there is no exporter to say what it is
    ours = dialect.apply_over_time("last_over_time", series("exporter_build_info"), HOUR)
    own_starts = f"{dialect.apply_over_time('changes', PROCESS_START.name, HOUR)} and on ({of_process}) {ours}"
    return clauses(
        ("a server starts again and again", f"{target} >= {own['starts']:g}"),
        (
            "or cannot be reached again and again, for less than half of the time",
            f"or {_outages(dialect, settings, own)}",
        ),
        ("or pods of a workload come under new names, and none of them lasts", f"or {_short_lived(dialect, own)}"),
        ("or an exporter starts again and again", f"or {dialect.one(own_starts, 'instance')} >= {own['starts']:g}"),
    )


def _outages(dialect: Dialect, settings: Settings, own: AlertSettings) -> str:
    """How often a target went and came back within an hour; what is away for longer than it is there is TargetDown's."""
    by_target = dialect.labels("target")
    times = f"floor(max by ({by_target}) ({dialect.apply_over_time('changes', DOWN, HOUR)}) / 2)"
    mostly = f"({dialect.half(DOWN, settings.alerts['TargetDown'].for_seconds)})"
    # nor what was so within the hour: its outages are still counted when that alert is over
    lately = dialect.apply_over_time("last_over_time", mostly, HOUR, 10 * MINUTE)
    return f"{times} >= {own['outages']:g} unless on ({by_target}) {lately}"


def _short_lived(dialect: Dialect, own: AlertSettings) -> str:
    """Pods that came and went within an hour, none of them ready for more than a few minutes, by workload: what crashes or is evicted
    again and again under a new name each time has no target that starts twice. A rollout's or an autoscaler's pods last, or lasted."""
    of_target = dialect.key("target")
    known = f'{TARGETS}{{workload!=""}}'
    seen = dialect.apply_over_time("last_over_time", known, HOUR)
    served = dialect.apply_over_time("sum_over_time", _READY, HOUR, MINUTE)
    gone = (
        f"{seen} unless on ({of_target}) {TARGETS} unless on ({of_target}) {dialect.offset(TARGETS, HOUR)}"
        f" unless on ({of_target}) {served} >= {_LASTS_SECONDS / MINUTE:g}"
    )
    return f"count by ({', '.join(dict.fromkeys((*dialect.identity, 'namespace', 'workload')))}) ({gone}) >= {own['starts']:g}"


def _restarts_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    def each(target: str, workload: str, exporter: str) -> str:
        return f"{{{{ if $labels.target }}}}{target}{{{{ else if $labels.workload }}}}{workload}{{{{ else }}}}{exporter}{{{{ end }}}}"

    return Text(
        each(
            f"{label('target')}: went and came back {value()} times in an hour",
            f"{label('namespace')}/{label('workload')}: {value()} pods in an hour that did not last",
            f"Exporter {label('instance')}: {value()} starts in an hour",
        ),
        each(
            "It starts again and again, or cannot be reached again and again: users meet cold caches, lost requests and a replica that is not there.",
            f"Each came under a new name, was ready for less than {seconds_text(_LASTS_SECONDS)} and is gone: something ends them, or they end themselves.",
            "It starts again and again: its series have gaps, and everything based on them is late.",
        ),
        "read the log of the last exit: out of memory, a bad flag, a failing probe",
    )


RESTART_LOOP = Alert(
    "RestartLoop", Check.EXPORTER, ("target", "instance", "namespace", "workload"), {Severity.WARNING: ""}, _restarts, _restarts_text, Shown("exporter"),
    {"starts": NUMBER, "outages": NUMBER},
)  # fmt: skip
