"""Gauges that keep their last value while nothing ends are not shown as the state of now."""

from llm_serving_exporter.derive.history import drop_frozen, has_moved
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Snapshot


def snapshot(**engine: object) -> Snapshot:
    one = EngineSnapshot("m", "0", requests_running=5.0, requests_waiting=2.0, **engine)
    return Snapshot((one,), "any", 0.0, 0.0, freezes=frozenset({"requests_running"}))


def test_any_counter_is_a_sign_of_life() -> None:
    quiet = snapshot(decode_tokens_total=7.0)
    assert not has_moved(quiet, snapshot(decode_tokens_total=7.0))
    assert has_moved(quiet, snapshot(decode_tokens_total=8.0))
    assert has_moved(snapshot(requests_finished_total={"stop": 1.0}), snapshot(requests_finished_total={"stop": 2.0}))
    one, two = Histogram((1.0,), (1.0,), 1.0, 0.5), Histogram((1.0,), (2.0,), 2.0, 1.0)
    assert has_moved(snapshot(e2e_request_latency_seconds=one), snapshot(e2e_request_latency_seconds=two))


def test_a_first_page_says_nothing_about_when_it_was_true() -> None:
    assert not has_moved(None, snapshot(decode_tokens_total=7.0))


def test_only_what_freezes_goes_and_says_why() -> None:
    faded = drop_frozen(snapshot(decode_tokens_total=7.0))
    engine = faded.engines[0]
    assert (engine.requests_running, engine.requests_waiting, engine.decode_tokens_total) == (None, 2.0, 7.0)
    assert faded.absent["requests_running"] is Absence.STALE
