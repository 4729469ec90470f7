"""Check node_loss: can the largest node go, has one gone, and has it been tried."""

from __future__ import annotations

from llm_serving_alerts.declare import DIGITS, Alert, Text, alert_matchers, label, lookup, of_model, value
from llm_serving_alerts.promql import HOUR, MINUTE, MODEL, Dialect, seconds_text, series
from llm_serving_alerts.records.node_loss import ALL, LARGEST, LOAD, LOST, N1_LOAD, PRESENT, UNREADABLE
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings

_MOST, _N1_MOST = (record.replace(":ratio", ":max") for record in (LOAD, N1_LOAD))
_READY = "model:llm_serving_ready_replicas:sum"
_DESIRED = "model:llm_serving_desired_replicas:max"


_WORDS = {
    "kv": "KV cache",
    "concurrency": "running requests",
    "prefill": "prefill rate",
    "decode": "decode rate",
    "phases": "token rate",
}


def _resource(dialect: Dialect, record: str) -> str:
    """Which resource binds: the series of the largest value, by a query, because it may change from one evaluation to the next."""
    matchers, values = _this(dialect)
    query = f'printf `topk(1, {record}{{{matchers},resource!="work"}})` {values}'
    cases = "{{ else if ".join(f'eq .Labels.resource "{resource}" }}}}{words}' for resource, words in _WORDS.items())
    return f"{{{{ range {query} | query }}}}{{{{ if {cases}{{{{ end }}}}{{{{ end }}}}"


def _largest(dialect: Dialect, settings: Settings) -> str:
    """The node, or nodes, with the largest mean share of what is known of the capacity."""
    matchers, values = _this(dialect)
    share = f"{LOST}{{{matchers}}} / on ({dialect.labels('resource')}) group_left () {ALL}{{{matchers}}}"
    by_node = f"avg by ({dialect.labels('node')}) ({share})"
    query = f"printf `topk({settings.node_loss.tolerate_nodes}, {by_node})` {values} {values}"
    separator = "{{ if $i }} and {{ end }}"
    return f'{{{{ range $i, $one := {query} | query | sortByLabel "node" }}}}{separator}{{{{ $one.Labels.node }}}}{{{{ end }}}}'


def _this(dialect: Dialect) -> tuple[str, str]:
    """Matchers for the model of the firing alert, with the arguments that printf puts in."""
    return alert_matchers((*dialect.identity, *MODEL))


def _nodes(settings: Settings) -> str:
    return "largest node" if settings.node_loss.tolerate_nodes == 1 else "two largest nodes"


def _n1(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"{_N1_MOST} > 1"


def _n1_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: cannot lose its {_nodes(settings)}, {value('humanizePercentage')} of what would be left is needed",
        f"Without its {_nodes(settings)} ({_largest(dialect, settings)}) the remaining replicas would need {value('humanizePercentage')} of their {_resource(dialect, N1_LOAD)} "
        f"for the demand of the last hour. {lookup(dialect, _READY, MODEL, 'humanize')} replicas are ready on "
        f"{lookup(dialect, 'model:llm_serving_nodes:count', MODEL, 'humanize')} nodes.",
        "add a replica on another node, or shed load in time",
    )


def _critical(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_model = dialect.labels(*MODEL)
    # wanted for an hour: replicas that an autoscaler has just asked for are not lost, nor those of a model that is deployed just now
    since = f"last_over_time({dialect.offset(f'{_DESIRED}[{dialect.duration(10 * MINUTE)}]', HOUR)})"
    wanted = f"({dialect.apply_over_time('min_over_time', _DESIRED, HOUR)} and on ({by_model}) {since})"
    # one whose metrics nobody can read is not known to be lost
    there = f"({PRESENT} + on ({by_model}) {UNREADABLE})"
    return (
        f"{_READY} and on ({by_model}) {there} < on ({by_model}) {wanted}"
        f" and on ({by_model}) model:llm_serving_requests_waiting:sum > 0"
        f" and on ({by_model}) ({_N1_MOST} > 1 or on ({by_model}) {_MOST} > 1)"
    )


def _critical_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: replicas lost, {value()} left, and they queue",
        f"{value()} of {lookup(dialect, _DESIRED, MODEL, DIGITS)} wanted replicas are ready. Requests wait, and demand is "
        f"{lookup(dialect, _MOST, MODEL, 'humanizePercentage')} of what the ready ones can carry ({_resource(dialect, LOAD)} first).",
        "bring the lost replicas back or add others; shed load meanwhile",
    )


def _no_redundancy(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    # one node, or one that every replica has a part on
    return f"{LARGEST} >= on ({dialect.labels(*MODEL)}) {_READY}"


def _no_redundancy_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: no replica is left without its {_nodes(settings)}",
        f"Ready replicas: {lookup(dialect, _READY, MODEL, 'humanize')}, and the {_nodes(settings)} would take all of them away. Where that is meant, set "
        "node_loss.redundancy to none.",
        "context for other alerts; nobody is notified",
    )


def _replica_lost(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_model = dialect.labels(*MODEL)
    # of a model that is wanted and that no exporter shows, none is there; unless there is no exporter at all
    unknown = f"unless on ({by_model}) model:llm_serving_targets:count"
    nobody = f"{_DESIRED} * 0 {unknown} and on ({dialect.key()}) {series('exporter_build_info')}"
    # each that an autoscaler asks for has the alert's own time to come
    wanted = dialect.apply_over_time("min_over_time", _DESIRED, max(own.for_seconds, 5 * MINUTE))
    return f"{wanted} - on ({by_model}) ({PRESENT} or on ({by_model}) {nobody}) > 0"


def _replica_lost_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: {value(DIGITS)} of {lookup(dialect, _DESIRED, MODEL, DIGITS)} replicas missing",
        f"Wanted: {lookup(dialect, _DESIRED, MODEL, DIGITS)}. Neither ready nor asleep: {value(DIGITS)}.",
        "find the pod or host that does not come up",
    )


def _last_success(dialect: Dialect) -> str:
    by_model = dialect.labels(*MODEL)
    success = dialect.one(dialect.stated(series("drill_last_success_timestamp_seconds")), *MODEL)
    # the first exporter's: new pods are installed every day
    installed = f"min by ({dialect.key()}) ({series('installed_timestamp_seconds')})"
    models = "(model:llm_serving_targets:count > bool 0)"
    # a model that never passed one is measured from the day of the installation
    return f"({success} or on ({by_model}) {models} * on ({dialect.key()}) group_left () {installed})"


def _overdue(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    overdue = f"{dialect.age(_last_success(dialect))} > {dialect.length(settings.drill_max_age_seconds or 0.0)}"
    # the file of results remembers models that are no longer served
    return f"{overdue} and on ({dialect.labels(*MODEL)}) model:llm_serving_targets:count"


def _overdue_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    age = seconds_text(settings.drill_max_age_seconds or 0.0)
    return Text(
        f"{of_model(dialect)}: no node-loss drill passed for {value('humanizeDuration')}",
        f"A drill is due every {age}. What has not been tried does not work.",
        "plan a drill: llm-serving-exporter drill --help",
    )


def _failed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_model, by_exporter = dialect.labels(*MODEL), dialect.labels(*MODEL, "instance")
    run = dialect.stated(series("drill_last_run_timestamp_seconds"))
    # of two exporters with a file of results each, the one that knows of the later drill
    last = f"{run} == on ({by_model}) group_left () max by ({by_model}) ({run})"
    failed = f"{dialect.stated(series('drill_last_verdict', verdict='failed'))} == 1 and on ({by_exporter}) ({last})"
    # the file of results remembers models that are no longer served
    return f"{dialect.one(failed, *MODEL)} and on ({by_model}) model:llm_serving_targets:count"


def _failed_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{of_model(dialect)}: the last node-loss drill failed",
        f"The last drill of {label('model_name')} did not keep the objective, or no page arrived. Its report says what happened.",
        "read the report and repeat the drill once the cause is fixed",
    )


NODE_LOSS = (
    Alert("N1Insufficient", Check.NODE_LOSS, MODEL, {Severity.WARNING: ""}, _n1, _n1_text),
    Alert("N1Critical", Check.NODE_LOSS, MODEL, {Severity.CRITICAL: ""}, _critical, _critical_text),
    Alert("NoRedundancy", Check.NODE_LOSS, MODEL, {Severity.INFO: ""}, _no_redundancy, _no_redundancy_text, needs=lambda s: s.node_loss.redundancy),
    Alert("ReplicaLost", Check.NODE_LOSS, MODEL, {Severity.WARNING: ""}, _replica_lost, _replica_lost_text),
    Alert("DrillOverdue", Check.NODE_LOSS, MODEL, {Severity.INFO: ""}, _overdue, _overdue_text, needs=lambda s: s.drill_max_age_seconds is not None),
    Alert("DrillFailed", Check.NODE_LOSS, MODEL, {Severity.WARNING: ""}, _failed, _failed_text),
)  # fmt: skip
