"""Which node an alert carries: the lost one that explains it, and none where nothing or more than one does."""

from __future__ import annotations

from llm_serving_alerts.promql import MODEL, NODES, Dialect, clauses
from llm_serving_alerts.records.presence import LOST_NODES, LOST_REPLICAS, LOST_SHARE, lasting
from llm_serving_alerts.settings import Settings

# the nine that are left of ten carry a ninth more each: less makes no first token late
_FELT = 0.1


def of_model(dialect: Dialect, firing: str, missing: str) -> str:
    """Series by model with `node`, where one lost node had at least `missing` replicas of the model (an expression by model)."""
    by_model = dialect.labels(*MODEL)
    enough = f"({LOST_REPLICAS} > 0) >= on ({by_model}) group_left () ({missing})"
    only = f"{enough} and on ({by_model}) count by ({by_model}) ({enough}) == 1"
    return _with_node(by_model, firing, only)


def of_burn(dialect: Dialect, burning: str, excused: str) -> str:
    """Series by model with `node`, where a lost one explains that first tokens are late or requests fail: behind NodeLost that is one page.
    Beside them the series of `excused`, which goes without what `unless_lately` leaves out."""
    by_model = dialect.labels(*MODEL)
    # as it is now, like NodeLost: the share may be a moment older, and would ring when that has ended
    lost = f"topk by ({by_model}) (1, {LOST_SHARE} >= {_FELT:g} and on ({dialect.key('node')}) {LOST_NODES} == 1)"
    return clauses(
        ("a lost node explains it", f"({burning}) + on ({by_model}) group_left (node) {lost} * 0"),
        ("or nothing that was lost lately does", f"or {excused}"),
    )


def unless_lately(dialect: Dialect, settings: Settings, window_seconds: float) -> str:
    """Leaves out models of which a node was lost within the window, or whose replicas are back for too short a time to have settled: what
    goes on longer is another page."""
    settles = settings.alerts["ReplicaOutlier"]["settle"]
    lately = dialect.apply_over_time("max_over_time", LOST_SHARE, window_seconds + settles)
    return f" unless on ({dialect.labels(*MODEL)}) {lately} >= {_FELT:g}"


def of_target(dialect: Dialect, settings: Settings, firing: str) -> str:
    """Series by target with `node`, where one that the target spans is lost."""
    of_target, of_node = dialect.key("target"), dialect.key("node")
    # as long as NodeLost waits: a label that comes and goes with each outage would make a new alert of each
    while_lost = lasting(dialect, LOST_NODES, settings, "NodeLost")
    lost = f"max by ({dialect.key('target', 'node')}) ({NODES} and on ({of_node}) {while_lost} == 1)"
    return _with_node(of_target, firing, f"topk by ({of_target}) (1, {lost})")


def _with_node(on: str, firing: str, lost: str) -> str:
    # the two have other labels: VictoriaMetrics would fill gaps of the first from an `or on` of the second
    return f"({firing}) + on ({on}) group_left (node) ({lost}) * 0 or ({firing}) unless on ({on}) ({lost})"
