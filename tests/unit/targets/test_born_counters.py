"""Counters that are born above 0: their beginning is published, where the page before proves it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from prometheus_client.samples import Sample

from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.model.reading import TargetReading
from tests.support.servers.replica import readings

L = 'engine="0",model_name="m"'


def page(*counters: str) -> dict[str, str]:
    return {
        "/metrics": "\n".join(
            (f"vllm:num_requests_running{{{L}}} 1", f"vllm:prompt_tokens_total{{{L}}} 100", *counters, "")
        )
    }


TOKENS = f"vllm:generation_tokens_total{{{L}}} "
STOPPED = f'vllm:request_success_total{{{L},finished_reason="stop"}} '
ABORTED = f'vllm:request_success_total{{{L},finished_reason="abort"}} '


def samples_of(reading: TargetReading) -> dict[str, list[Sample]]:
    """What our page has of the target, by the sample's name."""
    families = Families()
    serving.add_serving(families, reading)
    found: dict[str, list[Sample]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def published(reading: TargetReading, name: str) -> dict[str, float]:
    """Values of a counter on our page, by the label that is its own."""
    found = samples_of(reading)
    return {sample.labels.get("reason", ""): sample.value for sample in found.get(f"llm_serving_{name}", ())}


def play(*pages: dict[str, str] | None, seconds: float = 5.0) -> Sequence[TargetReading]:
    return readings(pages, seconds=seconds, runtime="vllm")


def test_a_counter_that_is_born_at_n_begins_at_0_for_a_minute() -> None:
    found = play(page(), page(), page(TOKENS + "500"), *(page(TOKENS + str(500 + 10 * tick)) for tick in range(1, 14)))
    values = [published(reading, "decode_tokens_total").get("") for reading in found]
    # it was not there, then 0 for the page that it came with and those of the next minute, then what the engine says
    assert values[:2] == [None, None]
    assert values[2:14] == [0.0] * 12
    assert values[14:] == [620.0, 630.0]
    # what is worked out from it is not delayed
    assert found[3].derived is not None
    assert found[3].derived.engines[0].phase_tokens_per_second["decode"] > 0


def test_a_new_reason_begins_at_0_beside_one_that_was_there() -> None:
    found = play(page(STOPPED + "7"), page(STOPPED + "8"), page(STOPPED + "9", ABORTED + "4"))
    assert published(found[-1], "requests_finished_total") == {"stop": 9.0, "abort": 0.0}


def test_the_first_page_is_a_baseline() -> None:
    (found,) = play(page(TOKENS + "500"))
    assert published(found, "decode_tokens_total") == {"": 500.0}


def test_after_a_gap_it_is_a_baseline_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = play(page(), None, None, page(TOKENS + "500"))
    assert published(found[-1], "decode_tokens_total") == {"": 500.0}
    assert "decode_tokens_total: first seen after a gap" in caplog.text


def test_a_cut_page_invents_no_events() -> None:
    """A page without the counter between two that have it."""
    found = play(page(TOKENS + "500"), page(), page(TOKENS + "510"))
    assert published(found[-1], "decode_tokens_total") == {"": 510.0}


def test_an_engine_that_comes_with_its_counters_is_a_baseline() -> None:
    other = 'vllm:num_requests_running{engine="1",model_name="m"} 1\nvllm:generation_tokens_total{engine="1",model_name="m"} 90'
    found = play(page(TOKENS + "500"), page(TOKENS + "500", other))
    values = {
        sample.labels["engine"]: sample.value for sample in samples_of(found[-1])["llm_serving_decode_tokens_total"]
    }
    assert values == {"0": 500.0, "1": 90.0}
