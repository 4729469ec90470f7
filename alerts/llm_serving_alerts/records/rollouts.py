"""Of workloads that kube-state-metrics knows: rollouts, the replicas that they excuse, and how many an autoscaler can have."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.external import (
    AUTOSCALER_INFO,
    AUTOSCALER_MOST,
    GENERATIONS,
    NODE_CLOSED,
    NODE_CONDITION,
    NODE_INFO,
    POD_CREATED,
    POD_OWNER,
    POD_READY,
    about_workload,
    in_namespace,
    pods_owned,
    quote,
)
from llm_serving_alerts.promql import HOUR, MINUTE, MODEL, NODES, TARGET, WEEK, Dialect, clauses, series
from llm_serving_alerts.records.node_loss import LARGEST, PRESENT
from llm_serving_alerts.records.targets import group_workloads, in_replicas, name_model, of_fleet
from llm_serving_alerts.rules import Group, Record, write_records
from llm_serving_alerts.settings import Settings, Workload
from llm_serving_exporter.clients.stored_labels import take_exported

# --- Rollouts that make progress, and the replicas that they excuse: of workloads that kube-state-metrics knows.

EXCUSED = "model:llm_serving_excused_replicas:sum"
_LOAD = "model:llm_serving_load_seconds:max"
_USUAL_LOAD = "model:llm_serving_load_seconds:median7d"
_YOUNGEST = "model:llm_serving_unready_pod_age_seconds:min"
_PROGRESS = "model:llm_serving_rollout_progress:bool"
_DISPLACED = "model:llm_serving_displaced_replicas:count"
_DESIRED = "model:llm_serving_desired_replicas:max"
_READY_TARGET = "target:llm_serving_ready:max"
# a replica that came up is seen by rules that run every second minute
_SLOW_SECONDS, _CAME_UP_SECONDS = 2 * MINUTE, 15 * MINUTE
# between the end of one pod and the begin of the next there is none that could be young
_BETWEEN_SECONDS = 5 * MINUTE
_TRUE, _ANY_UID = 'condition="true"', 'uid!=""'


def rollouts(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """How long replicas load, which rollouts make progress, and how many replicas are missing because of them."""
    if not settings.node_loss.workloads:
        return ()
    return (
        Group("llm-serving.rollouts.load", tuple(_loads(dialect)), _SLOW_SECONDS),
        Group("llm-serving.rollouts", tuple(_records(dialect, settings))),
    )


def excused(dialect: Dialect, settings: Settings, least: str) -> str:
    """Replicas by model that a rollout excuses, 0 for the models of `least` that have none; "" where no rollout is known of."""
    if not settings.node_loss.workloads:
        return ""
    return f"({EXCUSED} or on ({dialect.labels(*MODEL)}) {least} * 0)"


def _loads(dialect: Dialect) -> Iterator[Record]:
    by_target, of_target = dialect.labels(*TARGET), dialect.key("target")
    loading = dialect.bare(series("target_state", state="loading"), "target")
    minutes = dialect.apply_over_time("sum_over_time", loading, HOUR, MINUTE)
    came_up = f"{_READY_TARGET} == 1 unless on ({by_target}) {dialect.offset(_READY_TARGET, _CAME_UP_SECONDS)} == 1"
    load = f"({came_up}) * on ({of_target}) group_left () ({minutes} > 0) * {dialect.length(MINUTE)}"
    yield from write_records(f"""
        ## how long a replica that has just come up was loading, in seconds
        {_LOAD} = max by ({dialect.labels(*MODEL)}) ({load})
    """)
    usual = dialect.apply_over_time("quantile_over_time", f"0.5, {_LOAD}", WEEK)
    yield Record(_USUAL_LOAD, usual, "how long replicas usually load: median of 7 days")


def _records(dialect: Dialect, settings: Settings) -> Iterator[Record]:
    by_model = dialect.labels(*MODEL)
    workloads = settings.node_loss.workloads
    models = group_workloads(dialect, workloads)
    ages, begun, behind = (
        " or ".join(
            # kept apart, so that none of a model's workloads takes the place of another
            f'label_replace({name_model(one(dialect, settings, workload), labels)}, "of", "{number}", "", "")'
            for labels, of_model in models
            for number, workload in enumerate(of_model)
        )
        for one in (_youngest, _begun, _behind)
    )
    yield Record(_YOUNGEST, f"min by ({by_model}) ({ages})", "age of the youngest pod that is not ready, in seconds")
    lag = dialect.length(settings.node_loss.scale_lag_seconds)
    usual = f"({_USUAL_LOAD} or on ({by_model}) {_YOUNGEST} * 0 + {lag})"
    progress = clauses(
        ("something was asked for that its controller has not seen yet", f"max by ({by_model}) ({behind})"),
        (
            "or a pod is not ready that is younger than twice the usual load",
            f"or on ({by_model}) {_YOUNGEST} < on ({by_model}) 2 * {usual}",
        ),
    )
    yield Record(
        _PROGRESS, f"({progress}) * 0 + 1 or on ({by_model}) {_DESIRED} * 0", "1 while a rollout makes progress"
    )
    yield Record(_DISPLACED, _displaced(dialect), "replicas whose node has gone or was closed, within the last hour")
    lately = dialect.apply_over_time("max_over_time", _PROGRESS, _BETWEEN_SECONDS)
    there, displaced = (f"({record} or on ({by_model}) {_DESIRED} * 0)" for record in (PRESENT, _DISPLACED))
    missing = f"clamp_min({_DESIRED} - on ({by_model}) {there} - on ({by_model}) {displaced}, 0)"
    expr = clauses(
        ("replicas that are missing, but for those whose node has gone", missing),
        ("while a rollout makes progress", f"and on ({by_model}) {lately} == 1"),
        ("that began lately", f"and on ({by_model}) max by ({by_model}) ({begun})"),
    )
    yield Record(EXCUSED, expr, "replicas that are missing because of a rollout")


def _any(selectors: tuple[str, str], apply: str = "{}") -> str:
    return " or ".join(apply.format(selector) for selector in selectors)


def _begun(dialect: Dialect, settings: Settings, workload: Workload) -> str:
    """Where something about a workload was changed within `rollout_limit`."""
    asked, _ = GENERATIONS[workload.kind]
    span = dialect.duration(settings.node_loss.rollout_limit_seconds)
    return f"{of_fleet(dialect, 'max', _any(about_workload(workload, asked), f'changes({{}}[{span}])'))} > 0"


def _behind(dialect: Dialect, settings: Settings, workload: Workload) -> str:
    asked, seen = (of_fleet(dialect, "max", _any(about_workload(workload, one))) for one in GENERATIONS[workload.kind])
    on = f"on ({dialect.key()}) " if dialect.external else ""
    return f"{seen} < {on}{asked}"


def _youngest(dialect: Dialect, settings: Settings, workload: Workload) -> str:
    """Age of a workload's youngest pod that is not ready. Pods are known by `uid`, which no scrape renames."""

    def of_pods(one: str, matchers: str) -> str:
        return f"({_any(in_namespace(workload, one, matchers))})"

    by_pod = dialect.key("uid")
    unready = f"{of_pods(POD_READY, _TRUE)} == 0"
    owned = of_pods(POD_OWNER, pods_owned(workload))
    ages = f"{dialect.age(of_pods(POD_CREATED, _ANY_UID))} and on ({by_pod}) {owned} and on ({by_pod}) {unready}"
    return of_fleet(dialect, "min", ages)


def _displaced(dialect: Dialect) -> str:
    by_model, of_node, by_target = dialect.labels(*MODEL), dialect.key("node"), dialect.key("target")

    def nodes(expression: str) -> str:
        return f"max by ({of_node}) ({take_exported(expression, 'node')})"

    closed, known = NODE_CLOSED, NODE_INFO
    ready = f'{NODE_CONDITION}{{condition="Ready",status="true"}}'
    gone = f"{nodes(dialect.offset(known, HOUR))} unless on ({of_node}) {nodes(known)}"
    bad = f"({nodes(f'{closed} == 1')} or {nodes(f'{ready} == 0')} or {gone})"
    stood = dialect.apply_over_time("last_over_time", NODES, HOUR)
    return (
        f"count by ({by_model}) (max by ({dialect.labels(*TARGET)}) ({stood} and on ({of_node}) {bad}"
        f" unless on ({by_target}) {_READY_TARGET} == 1))"
    )


# --- How many replicas an autoscaler can have within minutes: it is no lack that it has not asked for them yet.

HEADROOM = "model:llm_serving_autoscaled_survivors:ratio"
_MOST = "model:llm_serving_autoscaled_replicas:max"
_READY_REPLICAS = "model:llm_serving_ready_replicas:sum"
_KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet"}


def autoscaling(dialect: Dialect, settings: Settings) -> Group:
    """The most replicas that there can be, and how many times as many would survive a lost node then."""
    by_model = dialect.labels(*MODEL)
    wanted_lately = dialect.apply_over_time("max_over_time", _DESIRED, HOUR)
    parts = [
        *((name, f"{expression} or on ({by_model})") for name, expression in _limits(dialect, settings)),
        ("else the most that were wanted within the hour, whose demand is asked about", wanted_lately),
    ]
    return Group(
        "llm-serving.autoscaling",
        (
            Record(_MOST, clauses(*parts), "replicas that an autoscaler may have, or had within the last hour"),
            *write_records(f"""
                ## how many times as many replicas would survive the loss of the largest node if the autoscaler added what it may
                {HEADROOM} =
                  # replicas that survive once the autoscaler has added what it may
                  ({_MOST} - on ({by_model}) {LARGEST})
                  # for each that survives now
                  / on ({by_model}) ({_READY_REPLICAS} - on ({by_model}) {LARGEST} > 0)
                  # as long as it has got what it asked for
                  and on ({by_model}) {_READY_REPLICAS} >= on ({by_model}) {_DESIRED}
                  # and may have more
                  and on ({by_model}) {_MOST} > on ({by_model}) {_READY_REPLICAS}
            """),
        ),
    )


def _limits(dialect: Dialect, settings: Settings) -> Iterator[tuple[str, str]]:
    """What the autoscalers of all workloads of a model allow together, nothing where one of them is not said."""
    for labels, workloads in group_workloads(dialect, settings.node_loss.workloads):
        most = " + ".join(in_replicas(one, of_fleet(dialect, "max", _limit(dialect, one))) for one in workloads)
        yield f"what the autoscaler of {' '.join(labels['model_name'].split())} may have", name_model(most, labels)


def _limit(dialect: Dialect, workload: Workload) -> str:
    name, kind = quote(workload.name), _KINDS[workload.kind]
    which = f'scaletargetref_kind="{kind}",scaletargetref_name="{name}"'
    most, info = (
        f"({' or '.join(in_namespace(workload, one, matchers))})"
        for one, matchers in ((AUTOSCALER_MOST, 'horizontalpodautoscaler!=""'), (AUTOSCALER_INFO, which))
    )
    return f"{most} and on ({dialect.key('horizontalpodautoscaler')}) {info}"
