"""N-1: whether the replicas that remain carry the demand of the last hour when the largest node goes. Unknown stays unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llm_serving_alerts.promql import HOUR, MINUTE, MODEL, MODEL_GPU, NODES, REPLICA, TARGET, Dialect, one_of, series
from llm_serving_alerts.records.baselines import BEST_TOKENS, BEST_WORK, CEILINGS
from llm_serving_alerts.records.history import LACKING, REPLICA_NODES, WHOLE, of_replica
from llm_serving_alerts.records.outliers import OUTLIER
from llm_serving_alerts.records.targets import KIND, list_replicas
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings

CAPACITY = "target:llm_serving_capacity:best"
ALL = "model:llm_serving_capacity:sum"
LOST = "model_node:llm_serving_capacity:sum"
LARGEST = "model:llm_serving_largest_node_replicas:max"
REMAINING = "model:llm_serving_n1_capacity:sum"
DEMAND = "model:llm_serving_demand:max1h"
LOAD = "model:llm_serving_load:ratio"
N1_LOAD = "model:llm_serving_n1_load:ratio"
SUFFICIENT = "model:llm_serving_n1_sufficient:bool"
REQUIRED = "model:llm_serving_required_replicas:ceil"
UNREADABLE = "model:llm_serving_unreadable_replicas:sum"
PRESENT = "model:llm_serving_present_replicas:sum"
# `work` is how prefill and decode of one engine are added up; `phases` is the answer for both
RESOURCES = ("prefill", "decode", "work", "kv", "concurrency")
# all of these must be known before anything is called sufficient
NEEDED = ("phases", "kv", "concurrency")
_READY = "target:llm_serving_ready:max == 1"
_SLOPE_SECONDS = HOUR / 2
_AT_SICK, _HANDED_ON_SECONDS = "model:llm_serving_requests_at_sick:sum", 10 * MINUTE


def node_loss(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Capacity of each ready replica by resource, what is left without the largest node, demand, and their ratio."""
    return (
        Group("llm-serving.node-loss.present", tuple(_present(dialect))),
        Group("llm-serving.node-loss.demand", tuple(_demand(dialect)), MINUTELY_SECONDS),
        Group(
            "llm-serving.node-loss.capacity",
            (*_capacity(dialect), *_records_without_largest_node(dialect, settings)),
            MINUTELY_SECONDS,
        ),
        Group("llm-serving.node-loss.load", (*_loads(dialect), *_required(dialect, settings)), MINUTELY_SECONDS),
    )


def _present(dialect: Dialect) -> Iterable[Record]:
    replicas = list_replicas(dialect)
    by_model, by_replica = dialect.labels(*MODEL), dialect.labels(*REPLICA)
    for record, states, of_its_targets, about in (
        (PRESENT, ("ready", "sleeping"), "min", "replicas that serve, or sleep and could be woken"),
        (UNREADABLE, ("unknown",), "max", "replicas that answer with a page that cannot be read, and may serve"),
    ):
        there = dialect.bare(series("target_state", one_of("state", states)), "target")
        each = of_replica(dialect, f"{replicas} * on ({dialect.key('target')}) group_left () {there}")
        whole = f"{of_its_targets} by ({by_replica}) ({each}) unless on ({by_replica}) {LACKING}"
        # a model none of whose replicas is whole has none, which is not nothing
        yield Record(record, f"sum by ({by_model}) ({whole} or on ({by_replica}) {LACKING} * 0)", about)


def _capacity(dialect: Dialect) -> Iterable[Record]:
    by_target, by_model, by_kind = dialect.labels(*TARGET), dialect.labels(*MODEL), dialect.labels(*MODEL_GPU)
    about = "what a ready replica can carry, by resource"

    def of_its_kind(best: str) -> str:
        each = f"({KIND} and on ({by_target}) {_READY}) * on ({by_kind}) group_left () max by ({by_kind}) ({best})"
        return f"max by ({by_target}) ({each})"

    # of its own phase alone: the few tokens of the other one are not what a replica of a split pool is limited by
    for phase, other in (("prefill", "decode"), ("decode", "prefill")):
        best = f'{BEST_TOKENS}{{phase="{phase}",role!="{other}"}}'
        yield Record(CAPACITY, of_its_kind(best), about, {"resource": phase})
    # reference seconds of two kinds of GPU are not the same seconds
    kinds = f"count by ({by_model}) (count by ({by_kind}) ({KIND} and on ({by_target}) {_READY}))"
    yield Record(CAPACITY, f"{of_its_kind(BEST_WORK)} and on ({by_model}) {kinds} == 1", about, {"resource": "work"})
    running, waiting, used = (
        f"target:llm_serving_{gauge}:sum" for gauge in ("requests_running", "requests_waiting", "kv_cache_used_tokens")
    )
    # room that nobody sees the use of is not known to be room
    for resource, total, seen in (
        ("kv", "kv_cache_capacity_tokens", used),
        ("concurrency", "batch_limit_requests", f"({running} + {waiting})"),
    ):
        expr = f"target:llm_serving_{total}:sum and on ({by_target}) {_READY} and on ({by_target}) {seen}"
        yield Record(CAPACITY, expr, about, {"resource": resource})


def _rising(dialect: Dialect) -> Mapping[str, str]:
    """The series that each resource's demand is the largest of."""
    return {
        "prefill": 'model:llm_serving_phase_tokens:rate5m{phase="prefill"}',
        "decode": 'model:llm_serving_phase_tokens:rate5m{phase="decode"}',
        "work": "model:llm_serving_reference_work:rate5m",
        "kv": "model:llm_serving_kv_cache_used_tokens:avg5m",
        "concurrency": "model:llm_serving_requests_in_system:avg5m",
        "running": "model:llm_serving_requests_running:avg5m",
    }


def _demand(dialect: Dialect) -> Iterable[Record]:
    by_target, by_model = dialect.labels(*TARGET), dialect.labels(*MODEL)
    waiting, waits = "model:llm_serving_requests_waiting:sum", "target:llm_serving_requests_waiting:sum"
    stands = f"{waits} > 0 and on ({by_target}) sum by ({by_target}) (target:llm_serving_phase_tokens:rate5m) == 0"
    sick = f"({OUTLIER} or on ({by_target}) {stands})"
    # with a restart they all come to its peers at once, for as long as it takes these to get through
    handed_on = dialect.apply_over_time("max_over_time", _AT_SICK, _HANDED_ON_SECONDS)
    not_for_room = " + ".join(
        f"({one} or {waiting} * 0)" for one in (f"sum by ({by_model}) ({waits} and on ({by_target}) {sick})", handed_on)
    )
    yield from write_records(f"""
        ## reference seconds of work that a model's replicas do per second
        model:llm_serving_reference_work:rate5m = sum by ({dialect.labels(*MODEL)}) (target:llm_serving_reference_work:rate5m)
        ## requests at replicas that are unlike their peers, or make no token while requests wait
        {_AT_SICK} = sum by ({by_model}) ((target:llm_serving_requests_running:sum + {waits}) and on ({by_target}) {sick})
        ## requests that run, or wait for room: what waits at a sick replica waits for it, also where a restart hands it on to the others
        model:llm_serving_requests_in_system:sum = model:llm_serving_requests_running:sum + clamp_min({waiting} - ({not_for_room}), 0)
    """)
    for name, level in (("requests_in_system", "sum"), ("requests_running", "sum"), ("kv_cache_used_tokens", "sum")):
        mean = dialect.apply_over_time("avg_over_time", f"model:llm_serving_{name}:{level}", 300)
        yield Record(f"model:llm_serving_{name}:avg5m", mean, f"mean of {name} over 5m")
    for resource, record in _rising(dialect).items():
        largest = dialect.apply_over_time("max_over_time", record, HOUR)
        about = "what was asked for at most within an hour, by resource"
        yield Record(DEMAND, f"sum by ({dialect.labels(*MODEL)}) ({largest})", about, {"resource": resource})


def _records_without_largest_node(dialect: Dialect, settings: Settings) -> Iterable[Record]:
    by_target, by_model, by_resource = (
        dialect.labels(*TARGET),
        dialect.labels(*MODEL),
        dialect.labels(*MODEL, "resource"),
    )
    ready = "model:llm_serving_ready_replicas:sum"
    by_replica = dialect.labels(*REPLICA)
    parts = f"count by ({by_model}) ({_READY})"
    # a replica whose capacity or node is not known would count as if it carried nothing, or could not be lost
    complete = f"on ({by_resource}) (count by ({by_resource}) ({CAPACITY}) == on ({by_model}) group_left () {parts})"
    placed = f"count by ({by_model}) ({_READY} and on ({by_target}) {NODES}) == on ({by_model}) {parts}"
    several = f"{LARGEST} < on ({by_model}) {ready}"
    total = f"sum by ({by_resource}) ({CAPACITY})"
    number = settings.node_loss.tolerate_nodes
    each = f"count by ({dialect.labels(*MODEL, 'node')}) ({REPLICA_NODES} and on ({by_replica}) {WHOLE} == 1)"
    # a replica on two lost nodes is taken away twice: what is left is never more than that
    yield from write_records(f"""
        ## ready replicas that the largest node takes with it; absent where the node of one is not known
        {LARGEST} = {_most(by_model, number, each)} and on ({by_model}) ({placed})
    """)
    largest = _most(by_resource, number, LOST)
    for resource in RESOURCES:
        # a replica of several targets goes with any node of them
        of_resource = f'{{resource="{resource}"}}'
        carried = f"sum by ({by_replica}) ({of_replica(dialect, CAPACITY + of_resource)})"
        one = f"{REPLICA_NODES} * on ({by_replica}) group_left () {carried}"
        expr = f"sum by ({dialect.labels(*MODEL, 'node')}) ({one})"
        yield Record(LOST, expr, "capacity that goes with a node, by resource", {"resource": resource})
    yield from write_records(f"""
        ## capacity of all ready replicas, by resource, where that of each is known
        {ALL} = {total} and {complete}
        ## capacity that is left without the largest node, by resource; absent where no replica would be left
        {REMAINING} = clamp_min({total} - on ({by_resource}) {largest}, 0) and {complete} and on ({by_model}) {several}
    """)


def _most(by: str, number: int, by_node: str) -> str:
    """What the largest node has, or the largest ones together."""
    return f"max by ({by}) ({by_node})" if number == 1 else f"sum by ({by}) (topk by ({by}) ({number}, {by_node}))"


def _loads(dialect: Dialect) -> Iterable[Record]:
    by_model, by_resource = dialect.labels(*MODEL), dialect.labels(*MODEL, "resource")
    for record, capacity, about in (
        (LOAD, ALL, "demand over capacity"),
        (N1_LOAD, REMAINING, "demand over what is left without the largest node"),
    ):
        yield Record(
            record, f"{DEMAND} / on ({by_resource}) ({capacity} > 0)", f"{about}, by resource; above 1 it does not fit"
        )
        yield Record(record, _phases(dialect, record), f"phases: {about}, of both together", {"resource": "phases"})
        largest = f'max by ({by_model}) ({record}{{resource!="work"}})'
        yield Record(record.replace(":ratio", ":max"), largest, f"{about}, of the scarcest resource that is known")
    most = N1_LOAD.replace(":ratio", ":max")
    known = f'count by ({by_model}) ({N1_LOAD}{{resource=~"{"|".join(NEEDED)}"}}) == {len(NEEDED)}'
    yield from write_records(f"""
        ## 1 where the largest node may go, 0 where not, absent where a resource is not known
        {SUFFICIENT} = ({most} <= bool 1) and on ({by_model}) ({most} > 1 or on ({by_model}) {known})
    """)


def _phases(dialect: Dialect, record: str) -> str:
    """Prefill and decode together. A replica of mixed load that was seen at its limit did so much work of both; where none was, the
    fractions of both add up, each of what its roofline promises. Without facts all that is known is what was done of both at once: then
    the larger fraction counts, which is right for as long as their mixture stays."""
    by_model = dialect.labels(*MODEL)
    fractions = f'{record}{{resource=~"prefill|decode",role="unified"}}'
    both = f"count by ({by_model}) ({fractions}) == 2"
    answers = [
        f'sum by ({by_model}) ({record}{{resource="work",role="unified"}})',
        f"(sum by ({by_model}) ({fractions}) and on ({by_model}) {both} and on ({by_model}) {CEILINGS})",
        f"(max by ({by_model}) ({fractions}) and on ({by_model}) {both})",
        *(f'sum by ({by_model}) ({record}{{resource="{role}",role="{role}"}})' for role in ("prefill", "decode")),
    ]
    return f" or on ({by_model}) ".join(answers)


def _required(dialect: Dialect, settings: Settings) -> Iterable[Record]:
    """Replicas for the demand and its growth until help comes. The queue is left out: it is what too few replicas make."""
    by_model, by_resource = dialect.labels(*MODEL), dialect.labels(*MODEL, "resource")
    wanted = "model:llm_serving_required_demand:max"
    lag = dialect.length(settings.node_loss.scale_lag_seconds)
    for resource, record in _rising(dialect).items():
        if resource == "concurrency":
            continue
        growth = f"clamp_min({dialect.apply_over_time('deriv', record, _SLOPE_SECONDS)}, 0) * {lag}"
        peak = dialect.apply_over_time("max_over_time", record, HOUR)
        expr = f"sum by ({by_model}) ({peak} + ({growth} or {record} * 0))"
        about = "demand of the last hour and what the present slope adds until a new replica serves"
        yield Record(wanted, expr, about, {"resource": "concurrency" if resource == "running" else resource})
    ratio = "model:llm_serving_required:ratio"
    known = f'count by ({by_model}) ({ratio}{{resource=~"{"|".join(NEEDED)}"}}) == {len(NEEDED)}'
    needed = f'clamp_min(ceil(max by ({by_model}) ({ratio}{{resource!="work"}}) - 1e-9), 1) and on ({by_model}) {known}'
    yield from write_records(f"""
        ## replicas that the demand needs, by resource
        {ratio} = {wanted} / on ({by_resource}) ({ALL} > 0) * on ({by_model}) group_left () model:llm_serving_ready_replicas:sum
        ## phases: of both together
        {ratio}{{resource="phases"}} = {_phases(dialect, ratio)}
        ## replicas that the demand needs
        {REQUIRED}{{reserve="none"}} = {needed}
        ## with reserve nodes: and those of the largest node besides
        {REQUIRED}{{reserve="nodes"}} = sum by ({by_model}) ({REQUIRED}{{reserve="none"}}) + on ({by_model}) {LARGEST}
    """)
