"""Endpoints asked at each tick: what a refusal means for the next ticks."""

import json
import re

from llm_serving_exporter.targets.page_source import FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.llamacpp import BUSY, IDLE, routes, slots
from tests.support.servers.replica import Answer, Replica, Routes, readings

PAGE = (TESTS / "made" / "lightllm.prom").read_bytes()
LOAD = "/token_load"
# the busy page with nothing running any more
RESTING = re.sub(r"(?m)^llamacpp:requests_processing .*$", "llamacpp:requests_processing 0", BUSY)


def steps(answer: Answer, ticks: int) -> list[Routes | None]:
    return [{"/metrics": PAGE, LOAD: answer}] * ticks


@check_rows("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again_at_once(status: int) -> None:
    with Replica() as server:
        found = readings(steps((status, "text/plain", b"busy"), 4), replica=server)
        assert server.asked.count(LOAD) == 4
    assert all(one.page.up for one in found)


@check_rows("status", [400, 401, 403, 404, 405, 410, 501])
def test_a_refusal_for_good_is_tried_again_after_a_minute_then_ever_more_seldom(status: int) -> None:
    assert (FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS) == (60.0, 600.0)
    with Replica() as server:
        # ticks at 60, 120 … 2280 s: asked at 60, and 60, 120, 240, 480, 600, 600 s later
        readings(steps((status, "application/json", b"{}"), 38), replica=server, seconds=60.0)
        assert server.asked.count(LOAD) == 7


def test_what_is_switched_on_later_is_seen_and_asked_at_each_tick_from_then_on() -> None:
    off, on = (404, "application/json", b"{}"), json.dumps({"current_load": 0.25})
    with Replica() as server:
        found = readings([*steps(off, 3), *steps(on, 7)], replica=server)
        assert server.asked.count(LOAD) == 1 + 4  # at 10 s, then from 70 s on
        usage = [one.page.snapshot.engines[0].kv_cache_usage_ratio for one in found if one.page.snapshot is not None]
        assert usage == [None] * 6 + [0.25] * 4
        # a refusal after that is the first again
        server.asked.clear()
        readings([*steps(off, 2), *steps(on, 2), *steps(off, 3)], replica=server, seconds=60.0)
        assert server.asked.count(LOAD) == 2 + 1 + 2  # at 60, 120, 240 s; then at 300, 360 s, not at 420 s


def test_a_server_at_rest_that_refused_is_not_taken_to_have_the_endpoint() -> None:
    off = (501, "application/json", b'{"error":{"code":501}}')
    found = readings([routes(BUSY, off), *[routes(RESTING, off)] * 8], runtime="llamacpp")
    assert [one.server.restarts_total for one in found] == [0] * 9
    for one in found[1:]:
        assert one.page.snapshot.engines[0].kv_cache_usage_ratio is None
        assert one.page.snapshot.engines[0].decode_tokens_live is None


def test_a_server_at_rest_says_what_it_had_last() -> None:
    said = json.dumps(slots(60))
    *_, last = readings([routes(BUSY, said), routes(RESTING, said)], runtime="llamacpp")
    assert last.page.snapshot.engines[0].kv_cache_usage_ratio == 0.0


def test_a_page_that_does_not_say_whether_the_server_works_says_nothing_of_its_cache() -> None:
    said = json.dumps(slots(60))
    unsaid = re.sub(r"(?m)^llamacpp:requests_processing .*\n", "", BUSY)
    with Replica() as server:
        *_, last = readings([routes(BUSY, said), routes(unsaid, said)], runtime="llamacpp", replica=server)
        assert server.asked.count("/slots") == 1
    assert last.page.snapshot.engines[0].kv_cache_usage_ratio is None


def test_a_server_that_came_back_is_not_taken_to_have_the_old_ones_cache() -> None:
    said = json.dumps(slots(60))
    steps = [routes(BUSY, said), routes(IDLE, said), routes(IDLE, said)]
    found = readings(steps, runtime="llamacpp")
    assert [one.server.restarts_total for one in found] == [0, 1, 1]
    engines = [one.page.snapshot.engines[0] for one in found if one.page.snapshot]
    # on the tick of the restart too
    assert [bool(one.kv_cache_capacity_tokens) for one in engines] == [True, False, False]


def test_a_server_that_came_back_without_slots_has_rates_from_its_first_tick_on() -> None:
    """A refusal before the restart was seen counts like one after it: tokens under way are counted on all its pages or on none."""
    working = re.sub(r"(?m)^(llamacpp:requests_processing) .*$", r"\1 1", IDLE)
    pages = [{"/metrics": page} for page in (BUSY, working, IDLE, IDLE)]
    *_, last = readings(pages, runtime="llamacpp")
    assert last.server.restarts_total == 1
    assert last.page.derived.engines[0].phase_tokens_per_second["decode"] == 0.0
