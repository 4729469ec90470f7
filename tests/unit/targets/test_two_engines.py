"""Two engines on one card without MIG: real NVML calls over the stub, real pages over real HTTP, what the daemon publishes of both."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

from llm_serving_exporter.cost.meter import Resume
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.cost import Method
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import ModelSettings, Role, Target
from llm_serving_exporter.render.numbers import describe_price
from tests.support.builders.procfolders import OWN_PID_NAMESPACE, Process, write_proc_folder
from tests.support.builders.recordings import page
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.gpu_node import Exporter, Node
from tests.support.servers.replica import Replica

GIB = 1 << 30
# 3.6 USD an hour are a cent in ten seconds
PER_TICK = 0.01
CHAT, CODE, GREEN = 100, 200, 300  # pids of the servers; their engines, which use the card, are children
PIDS = (CHAT, CODE, GREEN)
# of a recording: at these pages requests run
WORKING = range(21, 36)


@pytest.fixture
def servers() -> Iterator[Mapping[str, Replica]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(Replica({"/metrics": page("vllm-0.32", 5)})) for name in ("chat", "code")}


def port(server: Replica) -> int:
    return int(server.url.rpartition(":")[2])


class Pair:
    """The two engines, and the exporter beside them. `chat` works at every tick, `code` has nothing to do."""

    def __init__(
        self, node: Node, servers: Mapping[str, Replica], namespace: str | None = None, **more: Mapping[str, Any]
    ) -> None:
        self.node, self.servers, self.worked = node, servers, 0
        named = {} if namespace is None else {"namespace": namespace}
        proc = write_proc_folder(
            node.folder / "host",
            *(Process(pid, ports=[port(server)]) for pid, server in zip(PIDS, servers.values(), strict=False)),
            *(Process(pid + 1, parent=pid) for pid in PIDS),
            **named,
        )
        self.exporter: Exporter = node.start(kubelet=False, proc=proc)
        host = self.exporter.host
        host.config = replace(host.config, cost=replace(host.config.cost, method=Method.FLAT))
        host.gpus.set_source(NvmlSource(xid_events=False, monotonic=self.exporter.clock.monotonic))
        for name, server in servers.items():
            self.add(Target(name, server.url, metrics_path="/metrics", interval_seconds=10.0, **more.get(name, {})))

    def add(self, target: Target) -> None:
        self.exporter.host.add_target(target)
        self.exporter.store.add_target(target)
        self.exporter.host.settle_targets()

    def use(self, *processes: tuple[object, ...]) -> None:
        self.node.state.processes("gpu0", *processes)

    def run(self, ticks: int) -> Scraped:
        """The page after so many ticks."""
        for _ in range(ticks):
            self.servers["chat"].routes = {"/metrics": page("vllm-0.32", WORKING[self.worked])}
            self.worked += 1
            found = self.exporter.tick()
        return found


def phases(found: Scraped, target: str) -> dict[str, float]:
    return {
        dict(labels)["phase"]: value for labels, value in found.series("cost_usd_total", target=target).items() if value
    }


def shares(found: Scraped) -> dict[str, tuple[str, float]]:
    series = found.series("gpu_target_share_ratio")
    return {dict(labels)["target"]: (dict(labels)["source"], value) for labels, value in series.items()}


def why(found: Scraped, signal: str, target: str) -> list[str]:
    return [dict(labels)["reason"] for labels in found.series("signal_available", signal=signal, target=target)]


def test_a_card_of_two_engines_is_paid_once_by_the_memory_of_each(node: Node, servers: Mapping[str, Replica]) -> None:
    pair = Pair(node, servers)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB))
    pair.run(1)
    found = pair.run(6)
    assert shares(found) == {"chat": ("process_memory", 0.75), "code": ("process_memory", 0.25)}
    assert found.total("cost_usd_total") == pytest.approx(6 * PER_TICK, abs=1e-9)
    assert found.total("gpu_seconds_total") == pytest.approx(60, abs=1e-9)
    assert found.total("target_gpus") == 1
    # the card itself is busy all the time; what each engine did is its own
    chat, code = phases(found, "chat"), phases(found, "code")
    assert {"prefill", "decode"} <= chat.keys()
    assert code == {"idle": pytest.approx(6 * PER_TICK / 4, abs=1e-9)}
    assert sum(chat.values()) == pytest.approx(6 * PER_TICK * 3 / 4, abs=1e-9)
    assert not found.series("gpu_busy_source", source="gpm")
    reading = pair.exporter.store.target("chat")
    assert reading.cost is not None
    said = "1 GPU x share 0.75 by the memory that its processes hold at $3.60 an hour (rate owned)"
    assert describe_price(reading, reading.cost) == said
    # the shares of a card are of its energy too
    before = pair.run(1).total("energy_joules_total")
    node.state.set("gpu0", energy_mj=123456789 + 400_000)
    after = pair.run(1)
    assert after.total("energy_joules_total") - before == pytest.approx(400)


def test_what_the_driver_measures_of_the_card_is_the_cards(node: Node, servers: Mapping[str, Replica]) -> None:
    pair = Pair(node, servers)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB))
    found = pair.run(3)
    for target in servers:
        assert not found.series("achieved_bandwidth_bytes_per_second", source="gpm", target=target)
        assert not found.series("bandwidth_ceiling_ratio", source="gpm", target=target)
        shared = found.series("signal_available", reason="gpu_shared", target=target)
        assert {dict(labels)["signal"] for labels in shared} == {
            "bandwidth_ceiling_ratio_gpm",
            "bandwidth_ceiling_ratio_dcgm",
        }
    card = node.state.uuid(0)
    assert found.value("gpu_dram_bandwidth_ratio", gpu=card) == pytest.approx(0.625)
    assert found.value("gpu_power_watts", gpu=card) == pytest.approx(612.345)


def test_the_other_engines_memory_is_not_other_memory_of_one(node: Node, servers: Mapping[str, Replica]) -> None:
    model = {"model": ModelSettings(name="meta-llama/Llama-3.1-8B-Instruct")}
    pair = Pair(node, servers, chat=model, code=model)
    node.state.set("gpu0", memory_used=60 * GIB)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 28 * GIB))
    pair.run(1)
    pair.exporter.host.targets["chat"].refresh_facts()
    found = pair.run(2)
    parts = {
        dict(labels)["part"]: value
        for labels, value in found.series("gpu_memory_bytes_estimate", target="chat").items()
    }
    assert sum(parts.values()) == 30 * GIB
    assert parts["other"] < 16 * GIB


def test_what_foreign_processes_hold_is_unattributed(node: Node, servers: Mapping[str, Replica]) -> None:
    pair = Pair(node, servers)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB), (999, 10 * GIB))
    pair.run(1)
    found = pair.run(5)
    assert shares(found) == {"chat": ("process_memory", 0.75), "code": ("process_memory", 0.25)}
    assert found.total("cost_usd_total") == pytest.approx(5 * PER_TICK, abs=1e-9)
    # a fifth of what is held on the card
    assert phases(found, "code") == pytest.approx(
        {"idle": 5 * PER_TICK / 4 * 0.8, "unattributed": 5 * PER_TICK / 4 * 0.2}, abs=1e-9
    )
    assert found.total("gpu_seconds_total") == pytest.approx(50, abs=1e-9)
    unknown = sum(found.series("gpu_seconds_total", state="unknown").values())
    assert unknown == pytest.approx(10, abs=1e-9)


def test_shares_follow_the_memory_from_pass_to_pass(node: Node, servers: Mapping[str, Replica]) -> None:
    pair = Pair(node, servers)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB))
    pair.run(3)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 30 * GIB), (CODE, 10 * GIB))
    found = pair.run(2)
    assert shares(found) == {"chat": ("process_memory", 3 / 7), "code": ("process_memory", 4 / 7)}
    assert found.total("cost_usd_total") == pytest.approx(4 * PER_TICK, abs=1e-9)


@pytest.mark.parametrize(
    ("listed", "failing"),
    [
        ([(CHAT + 1, "-"), (CODE + 1, 10 * GIB)], False),  # the driver does not say how much
        ([(CHAT + 1, 10 * GIB), (CODE + 1, 10 * GIB), (999, "-")], False),
        ([(CHAT + 1, 10 * GIB), (CODE + 1, 10 * GIB)], True),
    ],
)
def test_without_the_list_there_is_no_cost_until_shares_are_stated(
    node: Node, servers: Mapping[str, Replica], listed: list[tuple[object, ...]], failing: bool
) -> None:
    # the kubelet is not asked, the configuration names the card
    gpus = {"gpus": (node.state.uuid(0),)}
    pair = Pair(node, servers, chat=gpus, code=gpus)
    pair.use(*listed)
    if failing:
        node.state.fail("gpu0", "nvmlDeviceGetComputeRunningProcesses_v3", 4)  # no permission
    found = pair.run(3)
    assert shares(found) == {}
    assert not found.series("cost_usd_total")
    for target in servers:
        assert why(found, "cost_usd_total", target) == ["gpu_claimed_twice"]
    for target in list(pair.exporter.host.targets.values()):
        pair.exporter.host.remove_target(target.target.name)
        pair.add(replace(target.target, gpu_share=0.5))
    pair.run(1)
    found = pair.run(4)
    assert shares(found) == {"chat": ("configured", 0.5), "code": ("configured", 0.5)}
    assert found.total("cost_usd_total") == pytest.approx(5 * PER_TICK, abs=1e-9)


def test_pids_of_another_namespace_tell_nobodys_memory(node: Node, servers: Mapping[str, Replica]) -> None:
    """NVML lists the host's pids; what has these numbers here may be anything."""
    gpus = {"gpus": (node.state.uuid(0),)}
    pair = Pair(node, servers, OWN_PID_NAMESPACE, chat=gpus, code=gpus)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB), (48_000, 20 * GIB))
    found = pair.run(3)
    assert not found.series("cost_usd_total")
    assert why(found, "cost_usd_total", "chat") == ["gpu_claimed_twice"]


def test_what_is_stated_comes_first_and_the_rest_goes_by_memory(node: Node, servers: Mapping[str, Replica]) -> None:
    pair = Pair(node, servers, chat={"gpu_share": 0.4})
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB))
    pair.run(1)
    found = pair.run(4)
    assert shares(found) == {"chat": ("configured", 0.4), "code": ("process_memory", 0.6)}
    assert found.total("cost_usd_total") == pytest.approx(4 * PER_TICK, abs=1e-9)


def test_an_engine_that_is_down_goes_on_paying_its_part(node: Node, servers: Mapping[str, Replica]) -> None:
    pair = Pair(node, servers)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB))
    pair.run(3)
    servers["code"].refuse()
    pair.use((CHAT + 1, 30 * GIB))
    found = pair.run(4)
    assert shares(found) == {"chat": ("process_memory", 0.75), "code": ("process_memory", 0.25)}
    assert found.total("cost_usd_total") == pytest.approx(6 * PER_TICK, abs=1e-9)
    assert phases(found, "code") == pytest.approx({"idle": 2 * PER_TICK / 4, "down": 4 * PER_TICK / 4}, abs=1e-9)
    # both: the card is paid all the same
    pair.use()
    found = pair.run(1)
    assert found.total("cost_usd_total") == pytest.approx(7 * PER_TICK, abs=1e-9)
    # it has gone for good: all of the card is the other's
    pair.use((CHAT + 1, 30 * GIB))
    pair.exporter.host.remove_target("code")
    pair.exporter.host.settle_targets()
    before = sum(phases(found, "chat").values())
    found = pair.run(1)
    assert shares(found)["chat"] == ("whole", 1.0)
    assert sum(phases(found, "chat").values()) - before == pytest.approx(PER_TICK, abs=1e-9)


def test_a_restart_of_the_exporter_while_one_is_down_pays_no_part_twice(
    node: Node, servers: Mapping[str, Replica]
) -> None:
    pair = Pair(node, servers)
    pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB))
    pair.run(2)
    servers["code"].refuse()
    pair.use((CHAT + 1, 30 * GIB))
    before = pair.run(1).total("cost_usd_total")
    kept = pair.exporter.host.costs.keep(lambda at: at)
    # the process that had seen both has gone: nothing says any more which GPU the other one had
    again = node.start(kubelet=False, proc=node.folder / "host")
    again.host.config = pair.exporter.host.config
    again.host.costs.put_kept(Resume(one, again.clock.monotonic(), 15.0) for one in kept.values())
    targets = [hosted.target for hosted in pair.exporter.host.targets.values()]
    pair.exporter = again
    for target in targets:
        pair.add(target)
    after = [pair.run(1).total("cost_usd_total") for _ in range(4)]
    assert [later - earlier for earlier, later in pairwise([before, *after])] == pytest.approx([PER_TICK] * 4, abs=1e-9)


def test_who_comes_in_the_place_of_one_that_stopped_has_its_part(node: Node, servers: Mapping[str, Replica]) -> None:
    with Replica({"/metrics": page("vllm-0.32", 5)}) as green:
        pair = Pair(node, {**servers, "green": green})
        pair.use((CHAT + 1, 30 * GIB), (CODE + 1, 10 * GIB))
        before = pair.run(3).total("cost_usd_total")
        assert before == pytest.approx(2 * PER_TICK, abs=1e-9)
        servers["code"].refuse()
        pair.use((CHAT + 1, 30 * GIB), (GREEN + 1, 20 * GIB))
        found = pair.run(3)
        assert shares(found) == {"chat": ("process_memory", 0.6), "green": ("process_memory", 0.4)}
        assert found.total("cost_usd_total") == pytest.approx(5 * PER_TICK, abs=1e-9)
        assert why(found, "cost_usd_total", "code") == ["gpu_claimed_twice"]


def test_a_front_end_in_front_of_an_engine_has_no_part(node: Node, servers: Mapping[str, Replica]) -> None:
    gpus = {"gpus": (node.state.uuid(0),)}
    pair = Pair(node, servers, chat=gpus, code={**gpus, "role": Role.FRONTEND})
    pair.use((CHAT + 1, 30 * GIB))
    pair.run(1)
    assert pair.run(3).total("cost_usd_total") == pytest.approx(3 * PER_TICK, abs=1e-9)
