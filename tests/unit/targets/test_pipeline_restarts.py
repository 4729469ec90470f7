"""A restart seen whatever the first pages of the new life show, and one address that answers for several servers."""

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.sample import FailureReason
from tests.support.builders.golden_cases import MADE
from tests.support.builders.recordings import page, recording
from tests.support.servers.replica import readings

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
    assert (last.server.runtime, last.server.facts.batch_limit_requests, last.server.facts.weight_bytes) == (
        "tgi",
        None,
        None,
    )
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
