"""One target over time: several servers behind one address, restarts, engine lives, gaps, quiet times, roles, a window for each signal."""

import random
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from llm_serving_exporter.derive.window import LAGGING_SECONDS, LONGEST_SECONDS, MOST_OLDER, REFRESHES_IN_A_WINDOW
from llm_serving_exporter.engines.mapping import Fingerprint, Mark, Row, Runtime
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import HttpSettings, Role, Target
from llm_serving_exporter.targets.pipeline import TargetPipeline
from tests.support.builders.golden_cases import MADE
from tests.support.builders.pipelines import make_pipeline
from tests.support.builders.recordings import page, recording
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import FaultServer
from tests.support.servers.replica import Replica, Routes, readings

# --- One target over time: side endpoints that hang, several servers behind one address, a path prefix


PAGE = page("vllm-0.32", 60)
MODELS = fault.page(b'{"data":[{"id":"tiny-llama","max_model_len":2048}]}', "application/json")
VERSION = fault.page(b'{"version":"0.32.0"}', "application/json")


def pipeline_of(url: str, path: str | None = None, now: list[float] | None = None) -> TargetPipeline:
    target = Target("a", url, metrics_path=path, interval_seconds=1.0, http=HttpSettings(timeout_seconds=0.7))
    return make_pipeline(target, now)


def test_a_side_endpoint_that_hangs_costs_no_page_and_is_asked_again_later() -> None:
    routes = {
        "/metrics": fault.page(PAGE),
        "/version": VERSION,
        "/v1/models": fault.silent(),
        "/server_info": fault.silent(),
    }
    with FaultServer(routes) as server, closing(pipeline_of(server.url)) as pipeline:
        assert pipeline.tick().page.up is True
        looked_for = ["/prometheus/metrics", "/metrics"]
        assert [request.path for request in server.requests] == looked_for
        pipeline.refresh_facts()
        # the first that hangs ends the round: the rest would cost the next page
        assert [request.path for request in server.requests] == [*looked_for, "/version", "/v1/models"]
        pipeline.refresh_facts()
        assert len(server.requests) == 4
        assert pipeline.tick().server.facts.version == "0.32.0"


def test_side_endpoints_stand_below_the_same_prefix_as_the_page() -> None:
    with (
        FaultServer({"/vllm/metrics": fault.page(PAGE), "/vllm/version": VERSION, "/vllm/v1/models": MODELS}) as server,
        closing(pipeline_of(server.url, "/vllm/metrics")) as pipeline,
    ):
        pipeline.tick()
        pipeline.refresh_facts()
        reading = pipeline.tick()
    assert (reading.server.facts.version, reading.server.facts.context_limit_tokens) == ("0.32.0", {"tiny-llama": 2048})


def test_an_endpoint_that_fails_once_is_asked_again_and_nothing_known_is_lost() -> None:
    now = [0.0]
    routes = {
        "/metrics": fault.page(PAGE),
        "/version": VERSION,
        "/v1/models": fault.status(500),
        "/server_info": fault.status(404),
    }
    with FaultServer(routes) as server, closing(pipeline_of(server.url, now=now)) as pipeline:
        pipeline.tick()
        pipeline.refresh_facts()
        server.behave("/v1/models", MODELS)
        server.behave("/version", fault.status(500))
        # beside other work an answer may come too late once more, and is then asked for later still
        for _ in range(1000):
            now[0] += 1.0
            reading = pipeline.tick()
            pipeline.refresh_facts()
            if reading.server.facts.context_limit_tokens:
                break
    assert (reading.server.facts.version, reading.server.facts.context_limit_tokens) == ("0.32.0", {"tiny-llama": 2048})


def test_several_replicas_behind_one_address_are_refused_not_mixed() -> None:
    now = [0.0]
    other = recording("vllm-0.32-spec").pages[40]
    with FaultServer({"/metrics": fault.page(PAGE)}) as server, closing(pipeline_of(server.url, now=now)) as pipeline:
        states = []
        for turn in range(8):
            server.behave("/metrics", fault.page(PAGE if turn % 2 else other))
            now[0] += 1.0
            states.append(pipeline.tick())
        last = states[-1]
        assert (last.page.up, last.server.state) == (False, State.UNKNOWN)
        assert last.page.last.reason is FailureReason.SEVERAL_SERVERS
        assert "list each replica" in last.page.problem
        # one server alone again: after a while it is believed
        for _ in range(30):
            now[0] += 1.0
            last = pipeline.tick()
        assert last.page.up is True


def test_one_failover_is_only_a_restart() -> None:
    now = [0.0]
    with FaultServer({"/metrics": fault.page(PAGE)}) as server, closing(pipeline_of(server.url, now=now)) as pipeline:
        for body in (recording("vllm-0.32-spec").pages[40], PAGE, PAGE):
            server.behave("/metrics", fault.page(body))
            now[0] += 1.0
            reading = pipeline.tick()
    assert (reading.page.up, reading.server.restarts_total) == (True, 1)


# --- A restart seen whatever the first pages of the new life show, and one address that answers for several servers


S = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
GAUGES = f"sglang:num_running_reqs{{{S}}} 1\n"


def sglang(prefill: int, decode: int) -> dict[str, str]:
    tokens = "".join(
        f'sglang:realtime_tokens_total{{{S},mode="{mode}"}} {value}\n'
        for mode, value in (("prefill_compute", prefill), ("decode", decode))
    )
    return {"/metrics": GAUGES + tokens}


def rates(found: list[TargetReading]) -> list[float]:
    return [
        rate
        for one in found
        if one.page.up and one.page.derived
        for engine in one.page.derived.engines
        for rate in engine.phase_tokens_per_second.values()
    ]


def test_counters_that_are_born_with_their_first_event_fall_over_a_page_without_them() -> None:
    steps = [sglang(1000, 2000), sglang(1100, 2100), {"/metrics": GAUGES}, sglang(50, 70), sglang(60, 90)]
    found = readings(steps)
    assert [one.server.restarts_total for one in found] == [0, 0, 0, 1, 1]
    assert [rates([one]) for one in found[3:]] == [[], [(60 - 50) / 10, (90 - 70) / 10]]


def test_counters_that_are_born_one_after_another_are_one_restart() -> None:
    """The second to be born fell too, from what the old life had counted."""
    prefill_alone = {"/metrics": f'{GAUGES}sglang:realtime_tokens_total{{{S},mode="prefill_compute"}} 5\n'}
    found = readings([sglang(1000, 2000), sglang(1100, 2100), prefill_alone, sglang(50, 70), sglang(60, 90)])
    assert [one.server.restarts_total for one in found] == [0, 0, 1, 1, 1]
    assert rates([found[3]]) == [(50 - 5) / 10, 70 / 10]


def test_the_same_with_an_outage_in_between() -> None:
    found = readings(
        [sglang(1000, 2000), sglang(1100, 2100), None, {"/metrics": GAUGES}, sglang(50, 70), sglang(60, 90)]
    )
    assert found[-1].server.restarts_total == 1
    assert [rates([one]) for one in found[4:]] == [[], [(60 - 50) / 10, (90 - 70) / 10]]


def test_a_front_end_that_starts_anew_is_seen_and_counts_from_its_own_zero() -> None:
    """Dynamo's recorded frontend, its first pages again after later ones."""
    run = recording("dynamo-1.6.1-frontend")
    numbers = (56, 60, 0, 8, 52, 56)
    found = readings([{"/metrics": run.pages[number]} for number in numbers])
    assert [one.server.restarts_total for one in found] == [0, 0, 0, 1, 1, 1]
    # page 8 has 680 tokens decoded, page 56 23459; prefill is counted on from page 8
    assert rates([found[3]]) == []
    assert rates([found[-1]]) == [208_826 / 20, (23_459 - 680) / 20]
    tokens = {engine.model_name: engine.prefill_tokens_total for engine in found[-1].page.snapshot.engines}
    assert tokens == {"tiny": 208_826}


def test_servers_in_turn_behind_one_address_that_do_not_say_when_they_started() -> None:
    steps = [
        sglang(1000 + tick, 2000 + tick) if tick % 2 else sglang(90_000 + tick, 70_000 + tick) for tick in range(9)
    ]
    found = readings(steps, seconds=5.0)
    assert found[-1].page.last.reason is FailureReason.SEVERAL_SERVERS
    assert found[-1].page.up is False


def test_a_server_that_goes_down_before_each_restart_is_not_several() -> None:
    """One that crashes again and again: several servers in turn answer without a pause."""
    steps = [step for tick in range(5) for step in (sglang(1000 - tick, 2000 - tick), None)]
    found = readings(steps[:-1], seconds=5.0)
    assert [one.page.up for one in found] == [True, False] * 4 + [True]
    assert found[-1].server.restarts_total == 4


def test_a_server_that_says_when_it_started_is_not_told_by_its_falls() -> None:
    """Each start is later than the one before: one server restarting, never another in turn."""
    page = """vllm:num_requests_running{{model_name="m"}} 1
vllm:generation_tokens_total{{model_name="m"}} {tokens}
process_start_time_seconds {start}
"""
    found = readings(
        [{"/metrics": page.format(tokens=1000 - tick, start=1_795_147_000 + 10 * tick)} for tick in range(8)]
    )
    assert [one.page.up for one in found] == [True] * 8
    assert found[-1].server.restarts_total == 7


def test_one_restart_under_load_is_not_several_servers() -> None:
    found = readings([sglang(1000, 2000), sglang(10, 20), sglang(20, 40), sglang(30, 60)], seconds=5.0)
    assert [one.page.up for one in found] == [True] * 4
    assert found[-1].server.restarts_total == 1


def test_errors_of_a_page_that_cannot_tell_them_make_no_service_level() -> None:
    """Before 0.5.7 SGLang counts requests and aborts, and no HTTP answers: 100 % good would be a lie."""
    labels = 'model_name="m"'
    old = f"sglang:num_running_reqs{{{labels}}} 1\nsglang:num_requests_total{{{labels}}} 10\n"
    found = readings([{"/metrics": old}] * 2)[-1]
    assert found.page.derived.signals["slo_errors"] == "not_exported"
    real = readings([{"/metrics": page("vllm-0.32", 60)}] * 2)[-1]
    assert real.page.derived.signals["slo_errors"] == ""


def test_another_runtime_at_the_address_inherits_nothing() -> None:
    """llama.cpp's four slots and its model's bytes are not TGI's."""
    run = recording("llamacpp-b11434")
    llama = {
        "/metrics": run.pages[60],
        "/props": run.members["json/props-0000.json"],
        "/v1/models": run.members["json/models-0000.json"],
    }
    tgi = {"/metrics": (MADE / "tgi.prom").read_bytes()}
    found = readings([llama, llama, tgi, tgi, tgi])
    assert found[1].server.facts.batch_limit_requests == 4
    last = found[-1]
    assert last.server.runtime == "tgi"
    assert last.server.facts.batch_limit_requests is None
    assert last.server.facts.weight_bytes is None
    assert last.page.snapshot.engines[0].batch_limit_requests is None
    assert last.server.restarts_total == 1


def test_a_server_whose_page_names_no_model_has_its_name_from_the_first_tick_on() -> None:
    run = recording("llamacpp-b11434")
    beside = {"/props": run.members["json/props-0000.json"], "/v1/models": run.members["json/models-0000.json"]}
    first, second = readings([{"/metrics": run.pages[number], **beside} for number in (60, 62)])
    for one in (first, second):
        assert [engine.model_name for engine in one.page.snapshot.engines] == ["tiny"]
    assert set(second.page.derived.engines[0].phase_tokens_per_second) == {"prefill", "decode"}


def test_a_counter_that_is_born_between_two_pages_counted_from_zero() -> None:
    """An idle SGLang shows gauges only: its first tokens are a rate at once, not when the window has passed."""
    found = readings([{"/metrics": GAUGES}, {"/metrics": GAUGES}, sglang(500, 300)])
    assert found[1].page.derived.signals["phase_tokens_per_second_prefill"] == "idle"
    assert found[-1].page.derived.engines[0].phase_tokens_per_second == {"prefill": 500 / 20, "decode": 300 / 20}


def test_a_counter_that_appears_for_another_reason_has_no_rate_yet() -> None:
    """vLLM 0.8's prefill is known once /version was read: what was counted before is not this window's."""
    page_0_8 = """vllm:num_requests_running{model_name="m"} 1
vllm:generation_tokens_total{model_name="m"} 10
vllm:prompt_tokens_total{model_name="m"} 900000
vllm:gpu_prefix_cache_queries_total{model_name="m"} 100
vllm:gpu_prefix_cache_hits_total{model_name="m"} 50
vllm:cache_config_info{block_size="16",num_gpu_blocks="2560"} 1
"""
    found = readings([{"/metrics": page_0_8}, {"/metrics": page_0_8, "/version": '{"version":"0.8.5"}'}] * 2)
    assert max(rates(found)) < 1000


# --- What is known of one engine life is not carried into the next


def triton(iterations: int, *, of_new_life: bool = False) -> Routes:
    page = (MADE / "triton_trtllm.prom").read_text()
    known = 'general_type="iteration_counter"} 5000\n'
    assert known in page
    page = page.replace(known, f'general_type="iteration_counter"}} {iterations}\n')
    if of_new_life:  # every other counter too is below what it was
        page = re.sub(r"^(nv_\w+(?:_success|_count|_us)\{.*) (\d+)$", r"\1 1", page, flags=re.MULTILINE)
    return {"/metrics": page}


def vllm(version: str, prompt_tokens: int) -> Routes:
    page = f"""vllm:num_requests_running{{model_name="m"}} 1
vllm:generation_tokens_total{{model_name="m"}} 10
vllm:prompt_tokens_total{{model_name="m"}} {prompt_tokens}
vllm:gpu_prefix_cache_queries_total{{model_name="m"}} 2000
vllm:gpu_prefix_cache_hits_total{{model_name="m"}} 1000
vllm:cache_config_info{{block_size="16",num_gpu_blocks="2560"}} 1
"""
    return {"/metrics": page, "/version": f'{{"version":"{version}"}}'}


def test_a_gauge_that_freezes_is_not_shown_because_the_old_life_moved() -> None:
    found = readings([triton(5000), triton(5001), triton(10, of_new_life=True), triton(11, of_new_life=True)])
    assert [one.server.restarts_total for one in found] == [0, 0, 1, 1]
    running = [one.page.snapshot.engines[0].requests_running for one in found if one.page.snapshot]
    assert running == [None, 48, None, 48]


def test_a_counter_that_is_read_otherwise_after_an_upgrade_counts_on_from_0() -> None:
    """Hits were blocks in 0.8 and are tokens in 0.9: their difference jumps by 15 of 16 of them."""
    old, new = (
        [vllm("0.8.5", 900_000 + 100 * tick) for tick in range(2)],
        [vllm("0.9.1", 900_200 + 100 * tick) for tick in range(3)],
    )
    found = readings([*old, None, *new])
    assert [one.server.facts.version for one in found] == [None, "0.8.5", "0.8.5", "0.8.5", "0.9.1", "0.9.1"]
    prefill = [one.page.snapshot.engines[0].prefill_tokens_total for one in found if one.page.up and one.page.snapshot]
    assert prefill == [None, 0, 100, 0, 100]
    assert found[-2].page.derived.window_seconds == 0
    assert found[-1].page.derived.engines[0].phase_tokens_per_second["prefill"] == 100 / 10


def test_a_counter_that_is_back_after_an_upgrade_is_not_held_against_its_old_unit() -> None:
    """16 000 cached tokens were worked out from blocks; 1000 are as counted."""
    old, new = (
        [vllm("0.8.5", 900_000), vllm("0.8.5", 900_100)],
        [vllm("0.9.1", 900_200 + 100 * tick) for tick in range(3)],
    )
    whole = str(new[1]["/metrics"])
    without = "".join(line for line in whole.splitlines(keepends=True) if "cache_hits" not in line)
    found = readings([*old, None, new[0], {**new[1], "/metrics": without}, new[2]])
    cached = [
        one.page.snapshot.engines[0].cached_prompt_tokens_total for one in found if one.page.up and one.page.snapshot
    ]
    assert cached == [None, 16_000, 16_000, None, 1000]
    assert found[-1].server.restarts_total == 0


def test_an_endpoint_that_the_old_server_did_not_have_is_asked_again_after_a_restart() -> None:
    earlier, later = ((MADE / f"lightllm{which}.prom").read_bytes() for which in ("", "-later"))
    load = {"/token_load": '{"current_load": 0.25}'}
    found = readings(
        [{"/metrics": later}, {"/metrics": later}, {"/metrics": earlier, **load}, {"/metrics": earlier, **load}]
    )
    assert [one.server.restarts_total for one in found] == [0, 0, 1, 1]
    usage = [one.page.snapshot.engines[0].kv_cache_usage_ratio for one in found if one.page.snapshot]
    # refused for good, it would have been asked again a minute later
    assert usage == [None, None, 0.25, 0.25]


# --- Quiet times: a server that has had no request since it restarted, and a night without any
# No signal goes for a reason that would be a fault, and each figure has the reason of what it lacks.


# what quiet alone may bring
HARMLESS = {Absence.AVAILABLE, Absence.IDLE, Absence.WARMING_UP, Absence.NOT_CONFIGURED, Absence.STALE}
PATHS = {"trtllm-050f80de": "/prometheus/metrics"}
GPUS: dict[str, Any] = {"gpu_count": 2, "gpu_model": "H100 SXM"}


def read(run: str, *numbers: int) -> list[TargetReading]:
    pages = recording(run).pages
    return readings([{PATHS.get(run, "/metrics"): pages[number]} for number in numbers], **GPUS)


def signals(reading: TargetReading) -> dict[str, Absence]:
    return dict(reading.page.derived.signals)


def lost(found: list[TargetReading]) -> dict[str, Absence]:
    """Signals that were there at some page, and at the last are not, for a reason that may be a fault."""
    there = {signal for reading in found for signal, why in signals(reading).items() if not why}
    return {signal: why for signal, why in signals(found[-1]).items() if signal in there and why not in HARMLESS}


@check_rows(
    ("run", "busy"),
    [
        ("sglang-0.5.23", (36, 46)),
        ("trtllm-050f80de", (34, 46)),
        ("dynamo-1.6.1-worker", (52, 56)),
        ("lmdeploy-0.18.0", (34, 46)),
    ],
)
def test_a_server_that_restarted_and_has_had_no_request_since_has_lost_nothing(run: str, busy: tuple[int, int]) -> None:
    found = read(run, *busy, 0, 0)
    assert lost(found) == {}
    # it goes on as any other
    again = read(run, *busy, 0, 0, *busy)
    assert not signals(again[-1])["decode_tokens_total" if run != "dynamo-1.6.1-worker" else "requests_finished_total"]


@pytest.mark.parametrize(("run", "busy", "last"), [("sglang-0.5.23", (36, 46), 46), ("trtllm-050f80de", (34, 46), 160)])
def test_a_night_without_requests_takes_nothing_but_what_is_stale(run: str, busy: tuple[int, int], last: int) -> None:
    assert lost(read(run, *busy, *[last] * 20)) == {}


def test_the_limiter_goes_with_the_requests_that_run() -> None:
    """TensorRT-LLM's gauges are of the last request; that its page has no steps to count is another matter."""
    night = signals(read("trtllm-050f80de", 34, 46, *[160] * 20)[-1])
    assert night["requests_running"] is Absence.STALE
    assert night["bandwidth_ceiling_ratio_model"] is not Absence.STALE
    assert night["limiter"] is Absence.STALE
    rest = signals(read("trtllm-050f80de", 0, 0)[-1])
    assert rest["limiter"] is Absence.IDLE


# --- Pages that are missing between two that came: over more than three intervals no rate is worked out, and the engine's life goes on


INTERVAL = 5.0
ENGINE_PAGE = """# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
"""


class Watched:
    """A pipeline whose engine generates 100 tokens a second of its clock while it works."""

    def __init__(self, replica: Replica, pipeline: TargetPipeline, now: list[float]) -> None:
        self._replica, self._pipeline, self._now = replica, pipeline, now
        self.tokens, self.running = 5000.0, 4

    def tick(self, after: float = INTERVAL, *, answers: bool = True) -> TargetReading:
        self._now[0] += after
        self.tokens += 100.0 * after if self.running else 0.0
        page = ENGINE_PAGE.format(tokens=self.tokens, running=self.running)
        self._replica.routes = {"/metrics": page} if answers else {}
        return self._pipeline.tick()


@contextmanager
def watched() -> Iterator[Watched]:
    now = [100.0]
    with Replica() as replica:
        pipeline = make_pipeline(Target("a", replica.url, interval_seconds=INTERVAL), now)
        try:
            found = Watched(replica, pipeline, now)
            for _ in range(4):
                found.tick()
            yield found
        finally:
            pipeline.close()


def window_seconds(reading: TargetReading) -> float:
    return reading.page.derived.window_seconds


def decode_rate(reading: TargetReading) -> float | None:
    return reading.page.derived.engines[0].phase_tokens_per_second.get("decode")


@pytest.mark.parametrize("asleep", [16.0, 3600.0, 20 * 365 * 86_400.0])
def test_a_gap_starts_the_window_again_and_the_counters_go_on(asleep: float) -> None:
    with watched() as target:
        # the machine slept, and the engine with it
        before = target.tokens
        target.running = 0
        found = target.tick(asleep)
        assert found.server.restarts_total == 0
        assert window_seconds(found) == 0
        assert decode_rate(found) is None
        assert found.page.snapshot.engines[0].decode_tokens_total == before
        target.running = 4
        found = target.tick()
        assert window_seconds(found) == INTERVAL
        assert decode_rate(found) == pytest.approx(100.0)
        assert found.server.restarts_total == 0


@check_rows(("missed", "kept"), [(1, True), (2, True), (3, False), (8, False)])
def test_an_outage_of_more_than_three_intervals_is_a_gap(missed: int, kept: bool) -> None:
    with watched() as target:
        for _ in range(missed):
            assert target.tick(answers=False).page.up is False
        found = target.tick()
        assert found.page.up is True
        assert window_seconds(found) == (INTERVAL * (4 + missed) if kept else 0)
        assert found.server.restarts_total == 0
        assert decode_rate(target.tick()) == pytest.approx(100.0)


def test_what_was_done_in_a_gap_is_no_work_of_the_first_tick_after_it() -> None:
    with watched() as target:
        target.running = 0
        found = target.tick(3600.0)
        assert found.page.derived.engines[0].tick.busy is False
        target.running = 4
        found = target.tick(3600.0)
        assert found.page.derived.engines[0].tick.busy is True


# --- Whose word decides a target's role, and what counts as an engine of it


def sglang_of_roles(*roles: str, **target: Any) -> TargetReading:
    """One data-parallel rank a role."""
    text = "".join(
        f'sglang:num_running_reqs{{engine_type="{role}",model_name="m",dp_rank="{rank}",moe_ep_rank="0",pp_rank="0",tp_rank="0"}} 1\n'
        for rank, role in enumerate(roles)
    )
    return readings([{"/metrics": text}] * 2, **target)[-1]


def silent(found: TargetReading) -> set[str]:
    return {signal for signal, why in found.page.derived.signals.items() if why is Absence.OTHER_ROLE}


def test_a_page_that_says_its_role_is_believed() -> None:
    found = sglang_of_roles("prefill", "prefill")
    assert (found.server.page_role, found.role) == (Role.PREFILL, Role.PREFILL)
    assert "slo_ttft" in silent(found)


def test_a_configured_role_wins_over_the_pages() -> None:
    found = sglang_of_roles("prefill", role=Role.UNIFIED)
    assert (found.server.page_role, found.role) == (Role.PREFILL, Role.UNIFIED)
    assert silent(found) == set()


def test_engines_of_different_roles_give_the_target_none() -> None:
    found = sglang_of_roles("prefill", "decode")
    assert [engine.role for engine in found.page.snapshot.engines] == ["prefill", "decode"]
    assert found.server.page_role is None
    assert silent(found) == set()


def test_what_has_no_engine_label_takes_no_share_of_the_gpus() -> None:
    """vLLM's refusals under data parallelism stand under engine "": two engines share two GPUs."""
    pages = [page("vllm-0.32-dp2", number) for number in (6, 6, 16)]
    found = readings([{"/metrics": one, "/version": '{"version":"0.32.0"}'} for one in pages], gpu_count=2)[-1]
    assert [(one.engine, one.is_engine) for one in found.page.snapshot.engines] == [
        ("", False),
        ("0", True),
        ("1", True),
    ]
    for engine in found.page.derived.engines[1:]:
        assert engine.phase_tokens_per_second["decode"] > 0
        assert engine.phase_tokens_per_second_per_gpu == engine.phase_tokens_per_second


# --- A window for each signal: a counter that is booked late has a longer one, and what is live beside it has the configured one


ACME = Runtime(
    name="acme",
    title="ACME",
    rows=(
        Row("prefill_tokens_total", ("acme_prefill_total",)),
        Row("decode_tokens_total", ("acme_decode_total",), quality=Quality.LAGGING),
        Row("requests_running", ("acme_running",)),
        Row("preemptions_total", ("acme_preemptions_total",), quality=Quality.SLOW, refresh_seconds=10.0),
    ),
    prefixes=("acme_",),
    fingerprints=(Fingerprint((Mark("acme_prefill_total"),)),),
)
BEFORE, AFTER = 60, 12  # ticks of 5 s: ten minutes at one pace, one at another


def pages() -> list[str]:
    """Prefill at 100 tokens/s and 4 requests, then at 500 and 8; decode at 50 all along; preemptions one a tick."""
    found, prefill = [], 0
    for tick in range(BEFORE + AFTER):
        fast = tick >= BEFORE
        prefill += 2500 if fast else 500
        found.append(
            f"acme_prefill_total {prefill}\nacme_decode_total {250 * tick}\nacme_running {8 if fast else 4}\n"
            f"acme_preemptions_total {tick}\n"
        )
    return found


def test_live_signals_keep_the_configured_window_beside_a_late_and_a_slow_one() -> None:
    steps = [{"/metrics": text} for text in pages()]
    reading = readings(steps, seconds=5.0, window_seconds=30.0, runtimes=[ACME], batch_limit_requests=16)[-1]
    (derived,) = reading.page.derived.engines
    # the last half minute: of five minutes it would be (60 x 500 + 240 x 100) / 300
    assert derived.phase_tokens_per_second["prefill"] == pytest.approx(500.0)
    assert derived.batch_utilization_ratio == 0.5
    assert derived.phase_tokens_per_second["decode"] == pytest.approx(50.0)
    assert derived.preemptions_per_second == pytest.approx(0.2)
    assert reading.page.derived.window_seconds == LAGGING_SECONDS
    assert reading.page.derived.live_window_seconds == 30.0
    assert reading.page.derived.quality["phase_tokens_per_second_decode"] is Quality.LAGGING
    assert "phase_tokens_per_second_prefill" not in reading.page.derived.quality


def test_a_late_counter_is_taken_over_many_requests_all_the_same() -> None:
    """Ten minutes of tokens in a lump every minute: over half a minute the rate would be 0 or double."""
    texts = [f"acme_prefill_total 1\nacme_decode_total {3000 * (tick // 12)}\nacme_running 1\n" for tick in range(73)]
    found = readings([{"/metrics": text} for text in texts], seconds=5.0, window_seconds=30.0, runtimes=[ACME])[-6:]
    for reading in found:
        rate = reading.page.derived.engines[0].phase_tokens_per_second["decode"]
        assert rate == pytest.approx(50.0, rel=0.21)


PERIODS = (0.0, 4.0, 7.0, 11.0, 23.0, 41.0)
FIELDS = ("prefill_tokens_total", "decode_tokens_total", "preemptions_total")


@check_rows("seed", range(6))
def test_counters_of_different_periods_each_settle_within_a_window_of_their_own(seed: int) -> None:
    """Each is brought up to date every so often, and all change their pace at once: none waits for another's window, none is excused."""
    rng = random.Random(seed)
    periods = dict(zip(FIELDS, rng.sample(PERIODS, 3), strict=True))
    interval, changes = rng.choice((2.0, 5.0)), 700.0
    before, after = (dict(zip(FIELDS, (rng.uniform(50, 500) for _ in FIELDS), strict=True)) for _ in range(2))
    rows = tuple(
        replace(
            row,
            quality=Quality.SLOW if periods.get(row.field) else Quality.LIVE,
            refresh_seconds=periods.get(row.field) or None,
        )
        for row in ACME.rows
    )
    longest = max([30.0, *(min(LONGEST_SECONDS, period * REFRESHES_IN_A_WINDOW) for period in periods.values())])

    def count(field: str, at: float) -> float:
        at = at if not periods[field] else at // periods[field] * periods[field]
        return before[field] * min(at, changes) + after[field] * max(0.0, at - changes)

    times = [interval * tick for tick in range(int((changes + longest + 60.0) / interval))]
    names = {row.field: row.samples[0] for row in rows}
    steps = [
        {"/metrics": "".join(f"{names[field]} {count(field, at)}\n" for field in FIELDS) + "acme_running 1\n"}
        for at in times
    ]
    found = readings(steps, seconds=interval, window_seconds=30.0, runtimes=[replace(ACME, rows=rows)])
    for at, reading in zip(times, found, strict=True):
        (one,) = reading.page.derived.engines
        said = {
            FIELDS[0]: one.phase_tokens_per_second.get("prefill"),
            FIELDS[1]: one.phase_tokens_per_second.get("decode"),
            FIELDS[2]: one.preemptions_per_second,
        }
        for field, period in periods.items():
            own = max(30.0, period * REFRESHES_IN_A_WINDOW)
            # with the reading that the window begins with, of those that are kept, and what the page is behind
            settled = own + interval + period + 2 * longest / MOST_OLDER
            for pace, since in ((before, 0.0), (after, changes)):
                ends = changes if pace is before else times[-1] + 1
                if since + settled <= at < ends:
                    assert said[field] == pytest.approx(pace[field], rel=1 / REFRESHES_IN_A_WINDOW + 0.005), (field, at)
