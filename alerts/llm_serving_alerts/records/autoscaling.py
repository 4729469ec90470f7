"""How many replicas an autoscaler can have within minutes: it is no lack that it has not asked for them yet."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.external import AUTOSCALER_INFO, AUTOSCALER_MOST, in_namespace, quote
from llm_serving_alerts.promql import HOUR, MODEL, Dialect, clauses
from llm_serving_alerts.records.node_loss import LARGEST
from llm_serving_alerts.records.targets import group_workloads, in_replicas, name_model, of_fleet
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings import Settings, Workload

HEADROOM = "model:llm_serving_autoscaled_survivors:ratio"
_MOST = "model:llm_serving_autoscaled_replicas:max"
_DESIRED = "model:llm_serving_desired_replicas:max"
_READY = "model:llm_serving_ready_replicas:sum"
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
            Record(
                HEADROOM,
                clauses(
                    (
                        "replicas that survive once the autoscaler has added what it may",
                        f"({_MOST} - on ({by_model}) {LARGEST})",
                    ),
                    ("for each that survives now", f"/ on ({by_model}) ({_READY} - on ({by_model}) {LARGEST} > 0)"),
                    (
                        "as long as it has got what it asked for",
                        f"and on ({by_model}) {_READY} >= on ({by_model}) {_DESIRED}",
                    ),
                    ("and may have more", f"and on ({by_model}) {_MOST} > on ({by_model}) {_READY}"),
                ),
                "how many times as many replicas would survive the loss of the largest node if the autoscaler added what it may",
            ),
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
