"""What is known of one engine life is not carried into the next."""

import re

from tests.support.builders.golden_cases import MADE
from tests.support.servers.replica import Routes, readings


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
