"""Check node_loss: can the largest node go, has one gone, and has it been tried."""

from __future__ import annotations

from llm_serving_alerts.declare import (
    DIGITS,
    Alert,
    Shown,
    Text,
    alert_matchers,
    label,
    lookup,
    of_fleet,
    of_model,
    say_each,
    value,
)
from llm_serving_alerts.promql import HOUR, MINUTE, MODEL, NODES, Dialect, clauses, seconds_text, series
from llm_serving_alerts.records.history import ON_NODE, SERVED
from llm_serving_alerts.records.node_loss import ALL, LOAD, LOST, N1_LOAD, PRESENT, UNREADABLE
from llm_serving_alerts.records.presence import LOST_NODES, LOST_REPLICAS, LOST_SHARE, MISSING, VANISHED, lasting
from llm_serving_alerts.records.rollouts import EXCUSED, HEADROOM, excused
from llm_serving_alerts.records.targets import (
    FAILED,
    KNOWN,
    SUCCEEDED,
    WANTED_NOW,
    failed_drills,
    keep_clear,
    keep_unclear,
)
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings

# --- Which node an alert carries: the lost one that explains it, and none where nothing or more than one does.

# the nine that are left of ten carry a ninth more each: less makes no first token late
_FELT = 0.1


def name_lost_node(dialect: Dialect, firing: str, missing: str) -> str:
    """Series by model with `node`, where one lost node had at least `missing` replicas of the model (an expression by model)."""
    by_model = dialect.labels(*MODEL)
    enough = f"({LOST_REPLICAS} > 0) >= on ({by_model}) group_left () ({missing})"
    only = f"{enough} and on ({by_model}) count by ({by_model}) ({enough}) == 1"
    return _with_node(by_model, firing, only)


def name_lost_node_of_burn(dialect: Dialect, burning: str, excused: str) -> str:
    """Series by model with `node`, where a lost one explains that first tokens are late or requests fail: behind NodeLost that is one page.
    Beside them the series of `excused`, which goes without what `unless_lost_lately` leaves out."""
    by_model = dialect.labels(*MODEL)
    # as it is now, like NodeLost: the share may be a moment older, and would ring when that has ended
    lost = f"topk by ({by_model}) (1, {LOST_SHARE} >= {_FELT:g} and on ({dialect.key('node')}) {LOST_NODES} == 1)"
    return clauses(
        ("a lost node explains it", f"({burning}) + on ({by_model}) group_left (node) {lost} * 0"),
        ("or nothing that was lost lately does", f"or {excused}"),
    )


def unless_lost_lately(dialect: Dialect, settings: Settings, window_seconds: float) -> str:
    """Leaves out models of which a node was lost within the window, or whose replicas are back for too short a time to have settled: what
    goes on longer is another page."""
    settles = settings.alerts["ReplicaOutlier"]["settle"]
    lately = dialect.apply_over_time("max_over_time", LOST_SHARE, window_seconds + settles)
    return f" unless on ({dialect.labels(*MODEL)}) {lately} >= {_FELT:g}"


def name_lost_node_of_target(dialect: Dialect, settings: Settings, firing: str) -> str:
    """Series by target with `node`, where one that the target spans is lost."""
    of_target, of_node = dialect.key("target"), dialect.key("node")
    # as long as NodeLost waits: a label that comes and goes with each outage would make a new alert of each
    while_lost = lasting(dialect, LOST_NODES, settings, "NodeLost")
    lost = f"max by ({dialect.key('target', 'node')}) ({NODES} and on ({of_node}) {while_lost} == 1)"
    return _with_node(of_target, firing, f"topk by ({of_target}) (1, {lost})")


def _with_node(on: str, firing: str, lost: str) -> str:
    # the two have other labels: VictoriaMetrics would fill gaps of the first from an `or on` of the second
    return f"({firing}) + on ({on}) group_left (node) ({lost}) * 0 or ({firing}) unless on ({on}) ({lost})"


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
    query = f"printf `topk({settings.node_loss.tolerate_nodes}, {by_node})` {values} {values} | query"
    return say_each(query, "node", "{{ $one.Labels.node }}", " and ")


def _this(dialect: Dialect) -> tuple[str, str]:
    """Matchers for the model of the firing alert, with the arguments that printf puts in."""
    return alert_matchers((*dialect.identity, *MODEL))


def _nodes(settings: Settings) -> str:
    return "largest node" if settings.node_loss.tolerate_nodes == 1 else "two largest nodes"


def _n1(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model = dialect.labels(*MODEL)
    # as many replicas as an autoscaler may add carry their share of it
    scaled = f"{_N1_MOST} / on ({by_model}) {HEADROOM}"
    needed = f"({scaled} or on ({by_model}) {_N1_MOST}) > 1"
    expr = needed + _unless_rollout(dialect, settings)
    return expr, Text(
        f"{of_model(dialect)}: cannot lose its {_nodes(settings)}, {value('humanizePercentage')} of what would be left is needed",
        f"Without its {_nodes(settings)} ({_largest(dialect, settings)}) the remaining replicas would need {value('humanizePercentage')} of their {_resource(dialect, N1_LOAD)} "
        f"for the demand of the last hour. {lookup(dialect, _READY, MODEL, 'humanize')} replicas are ready on "
        f"{lookup(dialect, 'model:llm_serving_nodes:count', MODEL, 'humanize')} nodes.",
        "add a replica on another node, or shed load in time",
    )


def _unless_rollout(dialect: Dialect, settings: Settings) -> str:
    return f" unless on ({dialect.labels(*MODEL)}) {EXCUSED} > 0" if settings.node_loss.workloads else ""


def _critical(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model = dialect.labels(*MODEL)
    # wanted for an hour: replicas that an autoscaler has just asked for are not lost, nor those of a model that is deployed just now
    since = f"last_over_time({dialect.offset(f'{_DESIRED}[{dialect.duration(10 * MINUTE)}]', HOUR)})"
    wanted = f"({dialect.apply_over_time('min_over_time', _DESIRED, HOUR)} and on ({by_model}) {since})"
    # one whose metrics nobody can read is not known to be lost
    rolling = excused(dialect, settings, PRESENT)
    there = f"({PRESENT} + on ({by_model}) {UNREADABLE}{f' + on ({by_model}) {rolling}' if rolling else ''})"
    firing = (
        f"{_READY} and on ({by_model}) {there} < on ({by_model}) {wanted}"
        f" and on ({by_model}) model:llm_serving_requests_waiting:sum > 0"
        f" and on ({by_model}) ({_N1_MOST} > 1 or on ({by_model}) {_MOST} > 1)"
    )
    expr = name_lost_node(dialect, firing, f"{wanted} - on ({by_model}) {there}")
    return expr, Text(
        f"{of_model(dialect)}: replicas lost, {value()} left, and they queue",
        f"{value()} of {lookup(dialect, _DESIRED, MODEL, DIGITS)} wanted replicas are ready. Requests wait, and demand is "
        f"{lookup(dialect, _MOST, MODEL, 'humanizePercentage')} of what the ready ones can carry ({_resource(dialect, LOAD)} first).",
        "bring the lost replicas back or add others; shed load meanwhile",
    )


def _replica_lost(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model = dialect.labels(*MODEL)
    # the drill waits for the alert's time from the loss on: what comes and goes is found beside it
    lately = dialect.apply_over_time("max_over_time", MISSING, max(own.for_seconds, 5 * MINUTE))
    comes_and_goes = f"{lately} and on ({by_model}) {dialect.half(f'({MISSING} > bool 0)', own.for_seconds)}"
    # of one that vanished with all that was said of it, those that there were; where it served, TargetsDown pages
    vanished = f"{VANISHED} unless on ({by_model}) {WANTED_NOW} unless on ({by_model}) {SERVED} == 1"
    firing = clauses(
        ("replicas are missing", f"{MISSING} > 0"),
        ("or come and go", f"or on ({by_model}) ({comes_and_goes})"),
        ("or the model is gone, and did not serve in its last hour", f"or on ({by_model}) ({vanished})"),
    )
    expr = name_lost_node(dialect, firing, firing)
    matchers, values = _this(dialect)
    desired = f"printf `{_DESIRED}{{{matchers}}}` {values} | query"
    of_desired = f"{{{{ with {desired} }}}} of {{{{ . | first | value | {DIGITS} }}}}{{{{ end }}}}"
    return expr, Text(
        f"{of_model(dialect)}: {value(DIGITS)}{of_desired} replicas missing",
        f"Wanted: {lookup(dialect, _DESIRED, MODEL, DIGITS)}. Neither ready nor asleep: {value(DIGITS)}.",
        "find the pod or host that does not come up",
    )


def _node_lost(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = f"{LOST_NODES} == 1"
    matchers, values = alert_matchers((*dialect.external, "node"))
    of_model = "{{ $one.Labels.model_name }} ({{ $one.Labels.role }}) {{ $one.Value }}"
    models = say_each(f"printf `{ON_NODE}{{{matchers}}}` {values} | query", "model_name", of_model)
    return expr, Text(
        f"{of_fleet(dialect)}node {label('node')} is lost",
        f"None of its replicas serves, and it does not answer, or Kubernetes does not hear of it. Ready replicas that it had: {models}. "
        "Their own alerts carry its name and are not told while this page is open.",
        "see whether the others carry the load (N-1), then bring the node back or replace it",
    )


def _last_success(dialect: Dialect) -> str:
    by_model, of_all = dialect.labels(*MODEL), dialect.key(*MODEL)
    # the first exporter's: new pods are installed every day
    installed = f"min by ({dialect.key()}) ({series('installed_timestamp_seconds')})"
    models = f"({KNOWN} > bool 0)"
    success = dialect.one(series("drill_last_success_timestamp_seconds"), *MODEL)
    if dialect.own:
        success = keep_clear(dialect, SUCCEEDED)
        # one of them passed a drill, and nobody says which
        models = f"({models} unless on ({of_all}) ({keep_unclear(dialect, SUCCEEDED)}))"
    # a model that never passed one is measured from the day of the installation
    return f"({success} or on ({by_model}) {models} * on ({dialect.key()}) group_left () {installed})"


def _overdue(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    overdue = f"{dialect.age(_last_success(dialect))} > {dialect.length(settings.drill_max_age_seconds or 0.0)}"
    # the file of results remembers models that are no longer served
    expr = f"{overdue} and on ({dialect.labels(*MODEL)}) {KNOWN}"
    age = seconds_text(settings.drill_max_age_seconds or 0.0)
    return expr, Text(
        f"{of_model(dialect)}: no node-loss drill passed for {value('humanizeDuration')}",
        f"A drill is due every {age}. What has not been tried does not work.",
        "plan a drill: llm-serving-exporter drill --help",
    )


def _failed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    # the file of results remembers models that are no longer served
    served = f"and on ({dialect.labels(*MODEL)}) {KNOWN}"
    of_fleets = f"{FAILED} {served} or {keep_unclear(dialect, FAILED)}"
    expr = of_fleets if dialect.own else f"{dialect.one(failed_drills(dialect), *MODEL)} {served}"
    return expr, Text(
        f"{of_model(dialect)}: the last node-loss drill failed",
        f"The last drill of {label('model_name')} did not keep the objective, or no page arrived. Its report says what happened.",
        "read the report and repeat the drill once the cause is fixed",
    )


NODE_LOSS = (
    Alert("N1Insufficient", Check.NODE_LOSS, MODEL, {Severity.WARNING: ""}, _n1, Shown("node-loss", "Load without the largest node, by resource")),
    Alert("N1Critical", Check.NODE_LOSS, (*MODEL, "node"), {Severity.CRITICAL: ""}, _critical, Shown("node-loss", "Load without the largest node, by resource")),
    Alert("ReplicaLost", Check.NODE_LOSS, (*MODEL, "node"), {Severity.WARNING: ""}, _replica_lost, Shown("node-loss", "Replicas: desired, ready, required")),
    Alert("NodeLost", Check.NODE_LOSS, ("node",), {Severity.CRITICAL: ""}, _node_lost, Shown("node-loss", "Lost nodes")),
    Alert("DrillOverdue", Check.NODE_LOSS, MODEL, {Severity.INFO: ""}, _overdue, Shown("node-loss", "Drills"), needs=lambda s: s.drill_max_age_seconds is not None),
    Alert("DrillFailed", Check.NODE_LOSS, MODEL, {Severity.WARNING: ""}, _failed, Shown("node-loss", "Drills")),
)  # fmt: skip
