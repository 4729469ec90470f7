"""Several engines: ranks that are parts of one replica, two targets of one engine, two engines on one card without MIG."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.cost.meter import Resume
from llm_serving_exporter.derive.bandwidth import ROOF_ROW
from llm_serving_exporter.derive.work import Roof, estimate_touched_experts, experts_touched
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.serving import add_target_health
from llm_serving_exporter.gpus.attribution import spread_engines
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.cost import Method
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, ServerFacts, Snapshot
from llm_serving_exporter.model.target import Identity, ModelSettings, ReplicaPart, Role, Target
from llm_serving_exporter.render.numbers import describe_price
from llm_serving_exporter.targets.host import HostedTarget
from llm_serving_exporter.targets.several_servers import SameEngines, name_replica
from tests.support.builders.procfolders import OWN_PID_NAMESPACE, Process, write_proc_folder
from tests.support.builders.recordings import page
from tests.support.builders.target_readings import make_reading
from tests.support.models.modelfolders import LLAMA, folder
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import hand_driven_host
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.gpu_node import Exporter, Node
from tests.support.servers.replica import Replica, readings

# --- Ranks that share experts and have pages of their own: which replica a target is a part of, and whose tokens meet the experts


# a small Mixtral of 64 experts, of which a token passes 2
MOE = {
    "model_type": "mixtral", "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 1024, "vocab_size": 4096, "num_local_experts": 64, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
# two engines of a recorded vLLM server, both with 16 requests
BUSY = (8, 9, 12)


def moe(place: Path) -> ModelSettings:
    return ModelSettings(config=str(folder(place / "moe", MOE)))


def quiet(text: bytes, *engines: str) -> bytes:
    """The page with one request on these engines."""
    for engine in engines:
        label = f'vllm:num_requests_running{{engine="{engine}",model_name="tiny-llama"}} '.encode()
        assert text.count(label + b"16.0") == 1
        text = text.replace(label + b"16.0", label + b"1.0")
    return text


class Fleet:
    """Targets of one host, each with the recorded page, read in turn."""

    def __init__(
        self, stack: ExitStack, *targets: Target, quiet_on: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.host, self._clock = hand_driven_host()
        stack.enter_context(closing(self.host))
        self._quiet = quiet_on or {}
        self.servers: dict[str, Replica] = {}
        self.hosted: dict[str, HostedTarget] = {}
        for target in targets:
            server = stack.enter_context(Replica())
            self.servers[target.name] = server
            self.hosted[target.name] = self.host.add_target(replace(target, url=server.url))

    def read(self, numbers: tuple[int, ...] = BUSY) -> dict[str, TargetReading]:
        found: dict[str, TargetReading] = {}
        for number in numbers:
            self._clock.seconds += 10.0
            for name, hosted in self.hosted.items():
                if self.servers[name]._listening:
                    self.servers[name].show(
                        {"/metrics": quiet(page("vllm-0.32-dp2", number), *self._quiet.get(name, ()))}
                    )
                found[name] = hosted.tick()
                hosted.refresh_facts()
        return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def rank(name: str, settings: ModelSettings, **more: Any) -> Target:
    said: dict[str, Any] = {"data_parallel_size": 4, "tensor_parallel_size": 1, "gpu_model": "H200", "gpu_count": 2}
    return Target(name, "", model=settings, **{**said, "group": "ep-0", **more})


def roof_of(reading: TargetReading, engine: int = 0) -> Roof:
    """Of the engine so many places behind the first."""
    found = [roof for one in reading.page.derivation.tick_engines if (roof := one.figures.get(ROOF_ROW)) is not None][
        engine
    ]
    assert isinstance(found, Roof)
    return found


def shown_ranks(reading: TargetReading) -> dict[tuple[str, str], float]:
    """As published."""
    families = Families()
    add_target_health(families, reading, fresh=True, now_monotonic_seconds=0.0)
    return {
        (sample.labels["replica_name"], sample.labels["of"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "llm_serving_target_replica_ranks"
    }


def test_two_targets_of_a_group_are_one_replica(stack: ExitStack, tmp_path: Path) -> None:
    fleet = Fleet(stack, rank("a", moe(tmp_path)), rank("b", moe(tmp_path)))
    found = fleet.read()
    assert {name: one.server.replica_part for name, one in found.items()} == dict.fromkeys(
        "ab", ReplicaPart("ep-0", 4, 2, 4)
    )
    gpus = [one.gpus.total.count for one in found.values() if one.gpus.total is not None]
    assert gpus == [2, 2], "each has its own ranks' GPUs: four in all, not four each"
    assert shown_ranks(found["a"]) == {("ep-0", "replica"): 4.0, ("ep-0", "target"): 2.0, ("ep-0", "read"): 4.0}
    fleet.servers["b"].refuse()
    assert fleet.read((12, 12))["a"].server.replica_part == ReplicaPart("ep-0", 4, 2, 2)
    assert fleet.host._replicas.find_siblings("b") is None
    fleet.host.remove_target("a")
    fleet.host.settle_targets()
    assert fleet.host._replicas.find_siblings("a") is None
    fleet.host.remove_target("b")
    assert fleet.host._replicas.find_siblings("b") is None


def test_tokens_are_the_sum_of_what_is_read(stack: ExitStack, tmp_path: Path) -> None:
    """16 + 1 + 1 + 1 requests: the busy rank's experts meet 19, and each quiet one's too."""
    quiet_on = {"a": ("1",), "b": ("0", "1")}
    fleet = Fleet(stack, rank("a", moe(tmp_path)), rank("b", moe(tmp_path)), quiet_on=quiet_on)
    found = fleet.read()
    busy, idle = roof_of(found["a"], 0), roof_of(found["a"], 1)
    assert busy.parallel.token_ranks == pytest.approx(19 / 16, rel=0.05)
    assert idle.parallel.token_ranks == pytest.approx(19, rel=0.05)
    # each reads its quarter of the experts that all 19 touch
    touched = experts_touched(busy, 16)
    assert touched.expected == pytest.approx(estimate_touched_experts(64, 2, 19).expected, rel=0.05)
    assert busy.routed_bytes == pytest.approx(roof_of(found["b"]).routed_bytes)


def test_of_ranks_that_nobody_reads_the_own_ones_stand_for_all(stack: ExitStack, tmp_path: Path) -> None:
    """Two of four are read, 16 and 1 requests: 34 of four."""
    found = Fleet(stack, rank("a", moe(tmp_path)), quiet_on={"a": ("1",)}).read()
    assert found["a"].server.replica_part == ReplicaPart("ep-0", 4, 2, 2)
    assert roof_of(found["a"]).parallel.token_ranks == pytest.approx(34 / 16, rel=0.05)


def test_all_ranks_on_one_page_need_no_name(stack: ExitStack, tmp_path: Path) -> None:
    target = rank("a", moe(tmp_path), data_parallel_size=None, group="")
    found = Fleet(stack, target, quiet_on={"a": ("1",)}).read()["a"]
    assert found.server.replica_part is None
    assert roof_of(found).parallel.token_ranks == pytest.approx(17 / 16, rel=0.05)
    assert roof_of(found, 1).parallel.token_ranks == pytest.approx(17, rel=0.05)


def test_plans_do_not_depend_on_who_is_busy(stack: ExitStack, tmp_path: Path) -> None:
    """Reference seconds and capacities take all ranks for equally busy."""
    even = Fleet(stack, rank("a", moe(tmp_path))).read()["a"].page.derived
    uneven = Fleet(stack, rank("a", moe(tmp_path)), quiet_on={"a": ("1",)}).read()["a"].page.derived
    for one, other in zip(even.engines[-2:], uneven.engines[-2:], strict=True):
        assert one.phase_reference_seconds_per_token
        assert one.phase_reference_seconds_per_token == other.phase_reference_seconds_per_token
    assert even.engines[-1].roofline.decode_ceiling != uneven.engines[-1].roofline.decode_ceiling


@pytest.mark.parametrize(
    "changes",
    [{"experts_shared": False}, {"data_parallel_size": 2}, {"config": LLAMA}, {"config": {"model_type": "hyena"}}],
    ids=["whole copies", "all are on the page", "a dense model", "a model that is not known"],
)
def test_what_is_a_replica_by_itself(stack: ExitStack, tmp_path: Path, changes: Mapping[str, Any]) -> None:
    more = {name: value for name, value in changes.items() if name != "config"}
    target = rank("a", ModelSettings(config=str(folder(tmp_path / "model", changes.get("config", MOE)))), **more)
    assert Fleet(stack, target).read()["a"].server.replica_part is None


def test_whose_parts_targets_are() -> None:
    place = Identity(namespace="serving", workload="r1")
    assert name_replica(Target("a", "", group="ep-0", replica="serving/r1-0", identity=place)) == "ep-0"
    assert name_replica(Target("a", "", replica="serving/r1-0", identity=place)) == "serving/r1-0"
    assert name_replica(Target("a", "", identity=place)) == "serving/r1"
    assert name_replica(Target("a", "")) == ""


# --- what engines say, with the pages that they write ---------------------------------------------------------------------


SGLANG = {
    "model_path": "tiny",
    "served_model_name": "tiny-llama",
    "pp_size": 1,
    "context_length": 2048,
    "version": "0.5.23",
}


@check_rows(
    ("said", "layout", "gpus"),
    [
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True, "ep_size": 8}, Parallel(1, 1, 8, 8), 8),
        ({"tp_size": 16, "dp_size": 4, "enable_dp_attention": True}, Parallel(4, 1, 4, 16), 16),
        ({"tp_size": 2, "dp_size": 4, "enable_dp_attention": False}, Parallel(2, 1, 4), 8),
        ({"tp_size": 8, "dp_size": 1, "enable_dp_attention": False}, Parallel(8), 8),
    ],
)
def test_sglangs_own_word(tmp_path: Path, said: Mapping[str, Any], layout: Parallel, gpus: int) -> None:
    """Its tensor-parallel size is of the whole group under data-parallel attention, of one copy without."""
    info = json.dumps({**SGLANG, **said})
    steps = [{"/metrics": page("sglang-0.5.23", number), "/server_info": info} for number in (104, 104, 130)]
    reading = readings(steps, seconds=26.0, model=moe(tmp_path), gpu_model="H200")[-1]
    assert roof_of(reading).parallel == layout
    assert reading.gpus.total.count == layout.gpus == gpus
    assert reading.server.replica_part is None, "its one page has all ranks"


@check_rows(
    ("said", "layout", "gpus"),
    [
        ({"tensor_parallel_size": 1, "data_parallel_size": 2, "is_moe_model": True}, Parallel(1, 1, 2, 2), 2),
        ({"tensor_parallel_size": 4, "data_parallel_size": 2, "is_moe_model": True}, Parallel(4, 1, 2, 8), 8),
        ({"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "data_parallel_size": 2}, Parallel(4, 2, 2, 8), 16),
        ({"tensor_parallel_size": 2, "data_parallel_size": 2, "is_moe_model": False}, Parallel(2, 1, 2), 4),
    ],
)
def test_vllms_own_word(tmp_path: Path, said: Mapping[str, Any], layout: Parallel, gpus: int) -> None:
    """Its tensor-parallel size is of one rank, with and without expert parallelism. The recorded page shows both ranks."""
    info = json.dumps({"vllm_config": {"parallel_config": said}})
    steps = [{"/metrics": page("vllm-0.32-dp2", number), "/server_info": info} for number in (8, 8, 12)]
    reading = readings(steps, model=moe(tmp_path), gpu_model="H200")[-1]
    assert roof_of(reading).parallel == layout
    assert reading.gpus.total.count == layout.gpus == gpus


def test_what_tensorrt_llm_does_not_say_is_configured(tmp_path: Path) -> None:
    """enable_attention_dp over eight GPUs: each is a rank. Its page shows one engine, and names no sizes."""
    steps = [{"/prometheus/metrics": page("trtllm-050f80de", number)} for number in (46, 46, 60)]
    said: dict[str, Any] = {"tensor_parallel_size": 1, "data_parallel_size": 8, "gpu_count": 8}
    reading = readings(steps, model=moe(tmp_path), gpu_model="H200", model_name="deepseek", **said)[-1]
    assert roof_of(reading).parallel == Parallel(1, 1, 8, 8)
    assert reading.gpus.total.count == 8


def test_configuration_wins_over_the_servers_word_of_experts() -> None:
    told = spread_engines(Target("t", "", experts_shared=True), ServerFacts(experts_spread=False), 4, 4)
    assert told.parallel == Parallel(1, 1, 4, 4)


# --- Two targets of one pod whose pages are one engine's


START = 1_700_000_000.42


def target(port: int, uid: str = "u", gpus: int | None = None) -> Target:
    return Target(f"llm/a:{port}", f"http://10.0.0.1:{port}", identity=Identity(pod_uid=uid), gpu_count=gpus)


ENGINE, PROXY = target(8200, gpus=1), target(8000)


def read(of: Target, at: float, tokens: float, start: float | None = START, **more: float) -> TargetReading:
    finished = {"stop": tokens / 100}
    engine = EngineSnapshot("m", "0", decode_tokens_total=tokens, requests_finished_total=finished, **more)
    return make_reading(of, snapshot=Snapshot((engine,), "vllm", START + at, at, process_start_unix_seconds=start))


def test_a_page_between_two_pages_of_the_engine_is_the_engines() -> None:
    same = SameEngines()
    assert not same.update([read(ENGINE, 0, 100), read(PROXY, 3, 160)])
    assert same.update([read(ENGINE, 5, 200), read(PROXY, 3, 160)])
    assert same.repeats == {PROXY.name: ENGINE.name}
    # the other one is not read any more
    assert not same.update([read(ENGINE, 10, 300)])
    assert same.repeats == {PROXY.name: ENGINE.name}


def test_the_order_of_the_readings_does_not_matter() -> None:
    same = SameEngines()
    same.update([read(PROXY, 0, 100), read(ENGINE, 3, 160)])
    assert same.update([read(PROXY, 5, 200), read(ENGINE, 3, 160)])
    assert same.repeats == {PROXY.name: ENGINE.name}


@check_rows(
    ("low", "proxy", "high"),
    [
        ((0, 100), (3, 99), (5, 200)),  # fewer than before
        ((0, 100), (3, 201), (5, 200)),  # more than afterwards
        ((0, 0), (3, 0), (5, 0)),  # nothing that could tell them from each other
        ((4, 100), (3, 100), (5, 100)),  # not read between the two
    ],
)
def test_other_counts_are_another_engine(
    low: tuple[float, float], proxy: tuple[float, float], high: tuple[float, float]
) -> None:
    same = SameEngines()
    same.update([read(ENGINE, *low), read(PROXY, *proxy)])
    assert not same.update([read(ENGINE, *high), read(PROXY, *proxy)])
    assert same.repeats == {}


def test_another_start_other_families_or_another_pod_are_another_engine() -> None:
    for other in (
        read(PROXY, 3, 160, start=START + 0.01),
        read(PROXY, 3, 160, start=None),
        read(PROXY, 3, 160, preemptions_total=0.0),
        read(target(8000, uid="v"), 3, 160),
        read(target(8000, uid=""), 3, 160),
    ):
        same = SameEngines()
        same.update([read(ENGINE, 0, 100), other])
        assert not same.update([read(ENGINE, 5, 200), other])


def test_what_was_said_of_a_pod_ends_with_it() -> None:
    same = SameEngines()
    same.update([read(ENGINE, 0, 100), read(PROXY, 3, 160)])
    same.update([read(ENGINE, 5, 200), read(PROXY, 3, 160)])
    assert same.update([read(replace(ENGINE, identity=Identity(pod_uid="next")), 10, 1)])
    assert same.repeats == {}


# --- Two engines on one card without MIG: real NVML calls over the stub, real pages over real HTTP, what the daemon publishes of both


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
