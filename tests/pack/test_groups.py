"""Replicas over several nodes in the rules: two groups of two nodes with eight GPUs each, by one exporter or by one a node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pack.judging import ask, expect
from tests.pack.rulesets import committed_records

MODEL = {"model_name": "chat", "role": "unified"}
# leader's and worker's node of each group
GROUPS = (("node-0", "node-1"), ("node-2", "node-3"))
MINUTES = 20
LOST_AT = 10
Series = dict[str, str]


def line(name: str, values: str, **labels: str) -> Series:
    written = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return {f"llm_serving_{name}{{{written}}}": values}


def always(value: float) -> str:
    return f"{value:g}x{MINUTES}"


def write_fleet(by_daemonset: bool) -> Iterator[Series]:
    """What Prometheus has of both groups; at minute 10 the second one's worker goes, and with it the replica."""
    for number, nodes in enumerate(GROUPS):
        name = f"serving/lws-{number}:8000"
        is_lost = number == 1
        by = {"target": name, "instance": f"{nodes[0]}:10077" if by_daemonset else "cluster:10077"}
        yield line("target_info", always(1), **by, **MODEL)
        yield line("target_gpus", always(16), **by, gpu_name="H100")
        yield line("target_start_time_seconds", always(0), **by)
        for state, before, after in (("ready", 1, 0), ("down", 0, 1)):
            values = f"{before}x{LOST_AT - 1} {after}x{MINUTES - LOST_AT}" if is_lost else always(before)
            yield line("target_state", values, **by, state=state)
        of_engine = {**by, **MODEL, "engine": "0"}
        for gauge, value in (
            ("kv_cache_capacity_tokens", 100_000),
            ("kv_cache_used_tokens", 10_000),
            ("batch_limit_requests", 64),
            ("requests_running", 4),
            ("requests_waiting", 0),
        ):
            gone = f"{value:g}x{LOST_AT - 1} stale" if is_lost else always(value)
            yield line(gauge, gone, **of_engine)
        for node in nodes:
            yield line("target_node_info", always(1), **by, **MODEL, node=node)
            instance = f"{node}:10077"
            if by_daemonset and node != nodes[0]:
                # as the exporter beside a worker writes it: it knows neither model nor role
                unknown = {"target": name, "instance": instance, "model_name": "", "role": "unified", "node": node}
                yield line("target_node_info", always(1), **unknown)
            for card in range(8 if by_daemonset else 0):
                claim = {"gpu": f"GPU-{node}-{card}", "target": name, "instance": instance}
                yield line("gpu_target_info", always(1), **claim, origin="kubelet")
                yield line("gpu_target_share_ratio", always(1), **claim)


@pytest.mark.process
@pytest.mark.parametrize("by_daemonset", [False, True], ids=["one exporter of the cluster", "one a node"])
def test_two_groups_of_two_nodes(tmp_path: Path, by_daemonset: bool) -> None:
    series = {name: values for one in write_fleet(by_daemonset) for name, values in one.items()}
    of_model = '{model_name="chat", role="unified"}'
    kv = 'model_node:llm_serving_capacity:sum{resource="kv"}'
    by_node = {
        f'model_node:llm_serving_capacity:sum{{model_name="chat", role="unified", node="{node}", resource="kv"}}': 1e5
        for nodes in GROUPS
        for node in nodes
    }
    left = 'model:llm_serving_n1_capacity:sum{resource="kv"}'
    checks = [
        expect("sum(target:llm_serving_gpus:max)", "8m", {"{}": 32}),
        expect("model:llm_serving_gpus:sum", "8m", {f"model:llm_serving_gpus:sum{of_model}": 32}),
        expect("count(target:llm_serving_node:info)", "8m", {"{}": 4}),
        expect("model:llm_serving_nodes:count", "8m", {f"model:llm_serving_nodes:count{of_model}": 4}),
        expect("model:llm_serving_ready_replicas:sum", "8m", {f"model:llm_serving_ready_replicas:sum{of_model}": 2}),
        # each of the four nodes takes one replica with it, the worker's as well as the leader's
        expect(kv, "8m", by_node),
        expect(
            "model:llm_serving_largest_node_replicas:max",
            "8m",
            {f"model:llm_serving_largest_node_replicas:max{of_model}": 1},
        ),
        expect(left, "8m", {f'{left[:-1]}, model_name="chat", role="unified"}}': 1e5}),
        expect('target:llm_serving_claims:count or gpu:llm_serving_claims:count', "8m", {}),
        # one worker lost is one replica lost
        expect("model:llm_serving_ready_replicas:sum", "18m", {f"model:llm_serving_ready_replicas:sum{of_model}": 1}),
        expect("model:llm_serving_nodes:count", "18m", {f"model:llm_serving_nodes:count{of_model}": 2}),
        expect("model:llm_serving_gpus:sum", "18m", {f"model:llm_serving_gpus:sum{of_model}": 16}),
        expect(left, "18m", {}),
    ]  # fmt: skip
    assert not ask(tmp_path, series, checks, committed_records())
