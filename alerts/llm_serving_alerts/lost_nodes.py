"""Which node an alert carries: the lost one that explains it, and none where nothing or more than one does."""

from __future__ import annotations

from llm_serving_alerts.promql import MINUTE, MODEL, NODES, Dialect
from llm_serving_alerts.records.presence import LOST_NODES, LOST_REPLICAS


def of_model(dialect: Dialect, firing: str, missing: str) -> str:
    """Series by model with `node`, where one lost node had at least `missing` replicas of the model (an expression by model)."""
    by_model = dialect.labels(*MODEL)
    enough = f"({LOST_REPLICAS} > 0) >= on ({by_model}) group_left () ({missing})"
    only = f"{enough} and on ({by_model}) count by ({by_model}) ({enough}) == 1"
    return _with_node(by_model, firing, only)


def of_target(dialect: Dialect, firing: str) -> str:
    """Series by target with `node`, where one that the target spans is lost."""
    of_target, of_node = dialect.key("target"), dialect.key("node")
    # as long as NodeLost waits: a label that comes and goes with each outage would make a new alert of each
    lasting = dialect.apply_over_time("min_over_time", LOST_NODES, 5 * MINUTE)
    lost = f"max by ({dialect.key('target', 'node')}) ({NODES} and on ({of_node}) {lasting} == 1)"
    return _with_node(of_target, firing, f"topk by ({of_target}) (1, {lost})")


def _with_node(on: str, firing: str, lost: str) -> str:
    # the two have other labels: VictoriaMetrics would fill gaps of the first from an `or on` of the second
    return f"({firing}) + on ({on}) group_left (node) ({lost}) * 0 or ({firing}) unless on ({on}) ({lost})"
