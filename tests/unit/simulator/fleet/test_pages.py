"""The simulated pages against recorded ones, promtool, and the real pipeline against the fleet's own counts."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from llm_serving_exporter.model.snapshot import Absence
from llm_serving_simulator.fleet.books import Tally
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.pages import Writer
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Request
from tests.support.builders.recordings import page as recorded
from tests.support.builders.simfleet import EPOCH, TraceWorkload, small_fleet, watched
from tests.support.waiting import PATIENCE_SECONDS

# recorded with flags that are not on by default, or left out on purpose (see page_vllm)
_NOT_WRITTEN = ("vllm:kv_block_", "http_request_", "http_response_", "python_gc_", "process_virtual_memory")


def simulated(runtime: str, **engine: object) -> bytes:
    fleet = small_fleet(runtime=runtime, **engine)
    fleet.advance(120.0)
    page = fleet.page("r0")
    assert page is not None
    return page


def types(page: bytes) -> dict[str, str]:
    lines = (line.split() for line in page.decode().splitlines() if line.startswith("# TYPE"))
    return {words[2]: words[3] for words in lines}


def series(page: bytes, *without: str) -> set[tuple[str, tuple[str, ...]]]:
    """Sample names with their labels' names, in the order in which they stand."""
    found = set()
    for line in page.decode().splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels = tuple(part.partition("=")[0] for part in rest.rpartition("}")[0].split('",')) if rest else ()
            found.add((name.partition(" ")[0], labels))
    return {one for one in found if not one[0].startswith(without)}


def test_families_types_and_labels_are_those_of_the_recorded_vllm() -> None:
    mine, theirs = simulated("vllm"), recorded("vllm-0.32-mfu", 60)
    wanted = {name: kind for name, kind in types(theirs).items() if not name.startswith(_NOT_WRITTEN)}
    assert types(mine) == wanted
    # the recorded page has labels of cache_config_info in its version's order; ours may have a field of a later one
    left_out = (*_NOT_WRITTEN, "vllm:cache_config_info", "python_info")
    assert series(mine, *left_out) == series(theirs, *left_out)


def test_bucket_edges_are_those_of_the_recorded_vllm() -> None:
    def edges(page: bytes, name: str) -> list[str]:
        lines = [line for line in page.decode().splitlines() if line.startswith(f"vllm:{name}_bucket")]
        return [line.partition('le="')[2].partition('"')[0] for line in lines]

    mine, theirs = simulated("vllm", context_limit_tokens=2048), recorded("vllm-0.32-mfu", 60)
    names = [name.removeprefix("vllm:") for name, kind in types(mine).items() if kind == "histogram"]
    assert len(names) == 16
    for name in names:
        assert edges(mine, name) == edges(theirs, name), name


def test_families_types_and_labels_are_among_those_of_the_recorded_sglang() -> None:
    theirs = [recorded("sglang-0.5.23", number) for number in (58, 160)]
    known = {name: kind for page in theirs for name, kind in types(page).items()}
    mine = simulated("sglang")
    for name, kind in types(mine).items():
        assert known[name] == kind
    assert series(mine, "sglang:http_responses") <= series(theirs[0]) | series(theirs[1])


@pytest.mark.process
@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_promtool_has_nothing_to_say_but_what_it_says_of_the_real_names(runtime: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=simulated(runtime), capture_output=True, timeout=PATIENCE_SECONDS
    )
    said = [line for line in (done.stdout + done.stderr).decode().splitlines() if "should not contain ':'" not in line]
    assert all("_total" in line or "should not include type 'histogram'" in line for line in said), said
    assert len(said) <= 3


# what a real server of that kind with default flags does not say either
_NEVER = {
    "speculative_draft_tokens_total", "speculative_accepted_tokens_total", "model_gpu_memory_bytes", "slo_itl", "slo_e2e",
    "bandwidth_ceiling_ratio_gpm", "bandwidth_ceiling_ratio_dcgm", "bandwidth_ceiling_ratio_runtime",
}  # fmt: skip
_NEVER_SGLANG = {
    "requests_rejected_total", "request_prefill_time_seconds", "request_decode_time_seconds", "latency_prefill", "latency_decode",
}  # fmt: skip


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_the_pipeline_finds_every_signal_and_its_figures_are_the_fleets_own(runtime: str) -> None:
    # a KV cache small enough to preempt, so that SGLang's counter of retractions is born
    fleet = small_fleet(runtime=runtime, kv_blocks=560, context_limit_tokens=8192, rate=5.0)
    with watched(fleet, batch_limit_requests=None) as it:
        for _ in range(30):
            reading = it.tick()["r0"]
        assert reading.page.up, reading.page.problem
        assert reading.server.runtime == runtime
        derived, snapshot = reading.page.derived, reading.page.snapshot
        assert derived is not None
        assert snapshot is not None
        assert not snapshot.unmapped_families
        absent = {name for name, why in derived.signals.items() if why is not Absence.AVAILABLE}
        absent -= {"batch_ridge_size"}  # idle at this batch: no ridge
        assert absent <= _NEVER | (_NEVER_SGLANG if runtime == "sglang" else set())
        assert not derived.causes, "nothing is suspect"
        engine = derived.engines[0]
        truth = fleet.truth(it.clock.seconds - 60.0, it.clock.seconds)
        assert derived.window_seconds == pytest.approx(60.0)
        assert engine.phase_tokens_per_second["decode"] * 60.0 == pytest.approx(truth.decode_tokens, rel=0.02)
        prefill = truth.prefill_tokens if runtime == "vllm" else truth.counts.prefill_pass_tokens
        assert engine.phase_tokens_per_second["prefill"] * 60.0 == pytest.approx(prefill, rel=0.02)
        assert engine.prefix_cache_hit_ratio == pytest.approx(
            truth.counts.hit_tokens / truth.counts.queried_tokens, rel=0.02
        )
        roofline = engine.roofline
        bandwidth = fleet.replica("r0").spec.engine.cost.bandwidth
        assert roofline.ratio["model"] == pytest.approx(truth.counts.moved_bytes / 60.0 / bandwidth, rel=0.05)
        assert roofline.compute_ratio == pytest.approx(truth.counts.compute_seconds / 60.0, rel=0.05)
        # below what kernels reach: there is overhead, and prefill is bound by compute
        assert 0.4 < roofline.ratio["model"] < 0.8


def test_the_pipeline_sees_a_new_process_after_a_restart() -> None:
    fleet = small_fleet()
    with watched(fleet) as it:
        before = [it.tick()["r0"] for _ in range(3)][-1]
        fleet.restart("r0")
        loading = it.tick()["r0"]
        assert (loading.page.up, loading.server.state.value) == (False, "loading")
        assert "loading" in loading.page.problem
        after = [it.tick()["r0"] for _ in range(6)][-1]
        assert after.page.up
        assert after.server.restarts_total == 1
        assert before.server.start_unix_seconds == EPOCH
        assert after.server.start_unix_seconds == EPOCH + 30.0


def values(page: bytes, *names: str) -> list[float | None]:
    """The one sample of each name, None where the page has none."""
    lines = [line.rpartition(" ") for line in page.decode().splitlines() if not line.startswith("#")]
    found = {name.partition("{")[0]: float(value) for name, _, value in lines}
    return [found.get(name) for name in names]


def test_each_runtime_books_at_its_own_moments() -> None:
    request = Request(0.0, 1000, 2000, "p", 512)
    for runtime, under_way, at_the_end in (
        (
            "vllm",
            (
                "prompt_tokens_total",
                "num_requests_running",
                "prefix_cache_queries_total",
                "time_to_first_token_seconds_count",
            ),
            ("request_prompt_tokens_count", "request_queue_time_seconds_count", "e2e_request_latency_seconds_count"),
        ),
        (
            "sglang",
            ("num_running_reqs", "queue_time_seconds_count", "time_to_first_token_seconds_count"),
            ("prompt_tokens_total", "generation_tokens_total", "prompt_tokens_histogram_count"),
        ),
    ):
        spec = EngineSpec(runtime=runtime)
        fleet = Fleet([ReplicaSpec("r0", ("n0",), spec)], TraceWorkload([request]), epoch_unix_seconds=EPOCH)
        fleet.advance(5.0)
        page = fleet.page("r0")
        assert page is not None
        assert all(values(page, *(f"{runtime}:{name}" for name in under_way)))
        assert not any(values(page, *(f"{runtime}:{name}" for name in at_the_end)))
        (live,) = values(page, "vllm:generation_tokens_total") if runtime == "vllm" else [None]
        assert runtime == "sglang" or (live is not None and 0 < live < 2000)
        fleet.advance(60.0)
        page = fleet.page("r0")
        assert page is not None
        assert all(values(page, *(f"{runtime}:{name}" for name in at_the_end)))


def test_labels_are_in_order_with_le_among_them() -> None:
    writer = Writer({"engine": "0", "model_name": "m"})
    tally = Tally((0.5, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        tally.observe(value)
    writer.histogram("x", "What.", tally)
    assert writer.page().decode().splitlines()[2:] == [
        'x_bucket{engine="0",le="0.5",model_name="m"} 1.0',
        'x_bucket{engine="0",le="2.0",model_name="m"} 3.0',
        'x_bucket{engine="0",le="+Inf",model_name="m"} 4.0',
        'x_count{engine="0",model_name="m"} 4.0',
        'x_sum{engine="0",model_name="m"} 12.0',
    ]
