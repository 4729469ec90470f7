"""Wide expert parallelism in the rules: ranks with pages of their own that share experts are one replica, which serves only whole."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pack.judging import ask, expect
from tests.pack.rulesets import committed_records
from tests.pack.test_rule_files import Series, line
from tests.support.quick import keep_quick

pytestmark = pytest.mark.process

MODEL = {"model_name": "deepseek", "role": "unified"}
OF_MODEL = '{model_name="deepseek", role="unified"}'
MINUTES, EVENT = 30, 10
READY, NODES = "model:llm_serving_ready_replicas:sum", "model:llm_serving_nodes:count"
LARGEST, LEFT = "model:llm_serving_largest_node_replicas:max", 'model:llm_serving_n1_capacity:sum{resource="kv"}'
PRESENT, ALIVE = "model:llm_serving_present_replicas:sum", "model:llm_serving_alive_targets:sum"
KNOWN, GPUS = "model:llm_serving_targets:count", "model:llm_serving_gpus:sum"


@dataclass(frozen=True)
class Rank:
    """A target of two ranks on two GPUs, and what becomes of it at minute 10: "down", "gone", "comes", or nothing."""

    number: int
    node: str
    replica: str
    event: str = ""
    ranks: int = 8

    def lasts(self, value: float) -> str:
        """Values of a series that is there while the target serves."""
        if self.event == "comes":
            return f"_x{EVENT} {value:g}x{MINUTES - EVENT}"
        return f"{value:g}x{EVENT - 1} stale" if self.event else f"{value:g}x{MINUTES}"

    def stays(self, value: float) -> str:
        """The same of one that is there while the target is configured."""
        return f"{value:g}x{MINUTES}" if self.event == "down" else self.lasts(value)


def write_rank(rank: Rank) -> Iterator[Series]:
    """What Prometheus has of it."""
    by = {"target": f"{rank.replica}-{rank.number}", "instance": "cluster:10077"}
    yield line("target_info", rank.stays(1), **by, **MODEL)
    yield line("target_node_info", rank.stays(1), **by, **MODEL, node=rank.node)
    yield line("target_gpus", rank.stays(2), **by, gpu_name="H200")
    yield line("target_start_time_seconds", rank.stays(0), **by)
    if rank.ranks > 2:
        for of, number in (("replica", rank.ranks), ("target", 2)):
            yield line("target_replica_ranks", rank.stays(number), **by, replica_name=rank.replica, of=of)
    for state, before, after in (("ready", 1, 0), ("down", 0, 1)):
        changes = f"{before}x{EVENT - 1} {after}x{MINUTES - EVENT}"
        yield line("target_state", changes if rank.event == "down" else rank.stays(before), **by, state=state)
    for engine in "01":
        of_engine = {**by, **MODEL, "engine": engine}
        for gauge, value in (
            ("kv_cache_capacity_tokens", 50_000),
            ("kv_cache_used_tokens", 5_000),
            ("batch_limit_requests", 32),
            ("requests_running", 4),
            ("requests_waiting", 0),
        ):
            yield line(gauge, rank.lasts(value), **of_engine)


def two_replicas(**events: str) -> list[Rank]:
    """Each of four targets on two nodes; `events` by the first replica's rank."""
    ranks = []
    for replica, nodes in (("ep-0", "ab"), ("ep-1", "cd")):
        for number in range(4):
            event = events.get(f"rank{number}", "") if replica == "ep-0" else ""
            ranks.append(Rank(number, nodes[number // 2], replica, event))
    return ranks


def of_model(record: str, at: str, value: float | None) -> dict[str, object]:
    labels = record.replace("{", '{model_name="deepseek", role="unified", ') if "{" in record else record + OF_MODEL
    return expect(record, at, {} if value is None else {_sorted(labels): value})


def _sorted(labels: str) -> str:
    name, _, inside = labels.partition("{")
    return f"{name}{{{', '.join(sorted(inside.rstrip('}').split(', ')))}}}"


def judge(
    folder: Path, ranks: Sequence[Rank], checks: Sequence[Mapping[str, object]], more: Series | None = None
) -> None:
    series = {name: values for rank in ranks for one in write_rank(rank) for name, values in one.items()}
    assert not ask(folder, series | (more or {}), checks, committed_records())


@pytest.mark.e2e
def test_two_replicas_of_eight_ranks_each(tmp_path: Path) -> None:
    """Whichever of its two nodes goes takes all 400,000 tokens of a replica's KV, and one replica of two."""
    of_node = 'model_node:llm_serving_capacity:sum{resource="kv"}'
    capacity = {
        _sorted(f'{of_node[:-1]}, model_name="deepseek", role="unified", node="{node}"}}'): 4e5 for node in "abcd"
    }
    checks = [
        of_model(READY, "8m", 2),
        of_model(KNOWN, "8m", 2),
        of_model(PRESENT, "8m", 2),
        of_model(ALIVE, "8m", 2),
        of_model(NODES, "8m", 4),
        of_model(GPUS, "8m", 16),
        expect(of_node, "8m", capacity),
        of_model(LARGEST, "8m", 1),
        of_model(LEFT, "8m", 4e5),
        of_model('model:llm_serving_demand:max1h{resource="kv"}', "8m", 8e4),
        of_model('model:llm_serving_n1_load:ratio{resource="kv"}', "8m", 0.2),
        of_model('model:llm_serving_required_replicas:ceil{reserve="none"}', "8m", None),
    ]
    judge(tmp_path, two_replicas(), checks)


LOST = {
    "a rank that is down": {"rank1": "down"},
    "a rank that is gone": {"rank1": "gone"},
    "a node": {"rank0": "down", "rank1": "down"},
    "a node with its pods": {"rank0": "gone", "rank1": "gone"},
    "the other node": {"rank2": "down", "rank3": "down"},
}  # fmt: skip


@pytest.mark.parametrize("events", keep_quick(LOST.values(), lambda events: "gone" in events.values()), ids=LOST)
def test_whatever_of_it_is_lost_the_replica_is(tmp_path: Path, events: Mapping[str, str]) -> None:
    """Ranks that answer still serve nobody: none of them is ready, and none of their KV counts."""
    checks = [
        of_model(READY, "18m", 1),
        of_model(PRESENT, "18m", 1),
        of_model(NODES, "18m", 2),
        of_model(GPUS, "18m", 8),
        of_model(LARGEST, "18m", 1),
        of_model('model:llm_serving_capacity:sum{resource="kv"}', "18m", 4e5),
        of_model(LEFT, "18m", None),
        expect('count(target:llm_serving_ready:max{target=~"ep-0.*"} == 1) or vector(0)', "18m", {"{}": 0}),
        expect('count(target:llm_serving_ready:max{target=~"ep-1.*"} == 1)', "18m", {"{}": 4}),
    ]
    if set(events.values()) == {"down"}:
        checks.append(of_model(ALIVE, "18m", 1))
    judge(tmp_path, two_replicas(**events), checks)


@pytest.mark.e2e
def test_from_two_replicas_to_three(tmp_path: Path) -> None:
    """The third stands on two nodes more: one of three may go."""
    third = [Rank(number, "ef"[number // 2], "ep-2", "comes") for number in range(4)]
    checks = [
        of_model(READY, "8m", 2),
        of_model(READY, "18m", 3),
        of_model(KNOWN, "18m", 3),
        of_model(NODES, "18m", 6),
        of_model(LARGEST, "18m", 1),
        of_model('model:llm_serving_capacity:sum{resource="kv"}', "18m", 1.2e6),
        of_model(LEFT, "18m", 8e5),
    ]
    judge(tmp_path, [*two_replicas(), *third], checks)


@pytest.mark.e2e
def test_siblings_that_nobody_reads(tmp_path: Path) -> None:
    """One target of each replica is read and never were more: it stands for its replica, and its part of the load for all of it."""
    read = [rank for rank in two_replicas() if rank.number == 0]
    checks = [
        of_model(READY, "18m", 2),
        of_model(LARGEST, "18m", 1),
        of_model(LEFT, "18m", 1e5),
        of_model('model:llm_serving_n1_load:ratio{resource="kv"}', "18m", 0.2),
    ]
    judge(tmp_path, read, checks)


def test_ranks_that_share_nothing_are_replicas_each(tmp_path: Path) -> None:
    """Data-parallel copies of a dense model: the exporter names no replica, and one that is lost is one of four."""
    copies = [Rank(number, "ab"[number // 2], "dense", "down" if number == 1 else "", ranks=2) for number in range(4)]
    checks = [
        of_model(READY, "8m", 4),
        of_model(LARGEST, "8m", 2),
        of_model(READY, "18m", 3),
        of_model(LEFT, "18m", 1e5),
    ]
    judge(tmp_path, copies, checks)


@pytest.mark.e2e
def test_a_name_of_more_ranks_than_a_replica_has(tmp_path: Path) -> None:
    """Two replicas under one name, as by a workload that has several: nobody knows which ranks belong together."""
    together = [Rank(number, "abcd"[number // 2], "all", "down" if number == 1 else "") for number in range(8)]
    judge(tmp_path, together, [of_model(READY, "8m", 8), of_model(READY, "18m", 7)])


def test_wanted_replicas_and_the_alerts(tmp_path: Path) -> None:
    """A node of one replica is lost: one of two wanted is missing, not four targets of two."""
    wanted = line("expected_replicas", f"2x{MINUTES}", **MODEL, instance="cluster:10077")
    down, missing = "model:llm_serving_down:ratio", "model:llm_serving_missing_replicas:sum"
    checks = [
        of_model(missing, "8m", 0),
        of_model(missing, "20m", 1),
        of_model(down, "8m", 0),
        of_model(down, "20m", 0.5),
    ]
    judge(tmp_path, two_replicas(rank0="down", rank1="down"), checks, wanted)
