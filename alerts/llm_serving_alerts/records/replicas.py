"""Which targets are one replica: ranks with pages of their own that share one set of experts (wide expert parallelism).

Such a replica serves only whole: while a rank is missing, none of it does. Every other target is a replica by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import HOUR, NODES, REPLICA, Dialect, clauses, series
from llm_serving_alerts.rules import Record

REPLICAS = "target:llm_serving_replica:info"
WHOLE = "replica:llm_serving_ready:min"
LACKING = "replica:llm_serving_lacking_ranks:sum"
REPLICA_NODES = "replica:llm_serving_node:info"
_OWN = "target:llm_serving_own_ready:max"
_RANKS = "replica:llm_serving_ranks:max"
_SHOWN = "replica:llm_serving_shown_ranks:sum"
_NAMED = 'replica_name!=""'


def of_replica(dialect: Dialect, by_target: str) -> str:
    """Series by target with their replica as a label."""
    return f"{by_target} * on ({dialect.key('target')}) group_left (replica_name) {REPLICAS}"


def join_ranks(dialect: Dialect, replicas: str, ready: str) -> Iterator[Record]:
    """Replicas with their ranks. `replicas`: every target that is no front end; `ready`: 1 or 0 by target."""
    of_target, by_replica = dialect.key("target"), dialect.labels(*REPLICA)

    def ranks(of: str) -> str:
        each = dialect.bare(series("target_replica_ranks", _NAMED, of=of), "target", "replica_name")
        return f"({_OWN} * 0 + on ({of_target}) group_left (replica_name) {each})"

    yield Record(
        _OWN,
        f"{replicas} * on ({of_target}) group_left () {ready}",
        "1 for a target that is ready, 0 for another; front ends left out",
    )
    yield Record(_RANKS, f"max by ({by_replica}) {ranks('replica')}", "ranks that a replica of several targets has")
    yield Record(
        _SHOWN, f"sum by ({by_replica}) {ranks('target')}", "those of them that are on the pages of its targets"
    )
    whole = f"{ranks('target')} unless on ({by_replica}) {_SHOWN} > {_RANKS}"
    one = f"topk by ({of_target}) (1, max by ({dialect.key('target', 'replica_name')}) ({whole})) > bool 0"
    itself = dialect.bare(series("target_info"), "target")
    parts = clauses(
        ("ranks that share experts, unless one name stands for more than a replica has", f"({one})"),
        (
            "or the target by itself",
            f'or on ({of_target}) label_replace({itself}, "replica_name", "$1", "target", "(.+)")',
        ),
    )
    yield Record(REPLICAS, dialect.with_own(parts), "1 for each target, with the replica that it is a part of")
    before = dialect.apply_over_time("max_over_time", _SHOWN, HOUR)
    yield Record(
        LACKING,
        clauses(
            ("ranks that were there within the hour, and are not", f"{before} - {_SHOWN} > 0"),
            ("of a replica that has not all of them", f"and on ({by_replica}) {_SHOWN} < {_RANKS}"),
        ),
        "ranks of a replica that have gone, where some have",
    )
    own = of_replica(dialect, _OWN)
    yield Record(
        WHOLE,
        f"min by ({by_replica}) ({own}) unless on ({by_replica}) {LACKING} or on ({by_replica}) {LACKING} * 0",
        "1 for a replica all of whose ranks serve, 0 for another",
    )
    yield Record(
        "target:llm_serving_ready:max",
        f"max by ({dialect.labels('target', 'model_name', 'role')}) "
        f"({of_replica(dialect, f'({_OWN} * 0 + 1)')} * on ({by_replica}) group_left () {WHOLE})",
        "1 for a replica that serves, 0 for one that does not; of ranks that share experts, whether all of them do",
    )
    yield Record(
        REPLICA_NODES,
        f"max by ({dialect.labels(*REPLICA, 'node')}) ({of_replica(dialect, NODES)})",
        "1 for each node that a replica spans",
    )
