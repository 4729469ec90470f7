"""Ranks that share experts and have pages of their own: which replica a target is a part of, and whose tokens meet the experts."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.derive.bandwidth import ROOF_ROW
from llm_serving_exporter.derive.work import Roof, estimate_touched_experts, experts_touched
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.serving import add_target_health
from llm_serving_exporter.gpus.attribution import spread_engines
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import Identity, ModelSettings, ReplicaPart, Target
from llm_serving_exporter.targets.host import HostedTarget
from llm_serving_exporter.targets.several_servers import name_replica
from tests.support.builders.recordings import page
from tests.support.models.modelfolders import LLAMA, folder
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import hand_driven_host
from tests.support.servers.replica import Replica, readings

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
    [
        {"experts_shared": False},
        {"data_parallel_size": 2},
        {"config": LLAMA},
        {"config": {"model_type": "hyena"}},
    ],
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
