"""A window for each signal: a counter that is booked late has a longer one, and what is live beside it has the configured one."""

from __future__ import annotations

import pytest

from llm_serving_exporter.derive.span import LAGGING_SECONDS
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Fingerprint, Mark, Row, Runtime
from tests.support.servers.replica import readings

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
    assert reading.derived is not None
    (derived,) = reading.derived.engines
    # the last half minute: of five minutes it would be (60 x 500 + 240 x 100) / 300
    assert derived.phase_tokens_per_second["prefill"] == pytest.approx(500.0)
    assert derived.batch_utilization_ratio == 0.5
    assert derived.phase_tokens_per_second["decode"] == pytest.approx(50.0)
    assert derived.preemptions_per_second == pytest.approx(0.2)
    assert reading.derived.window_seconds == LAGGING_SECONDS
    assert reading.derived.live_window_seconds == 30.0
    assert reading.derived.quality["phase_tokens_per_second_decode"] is Quality.LAGGING
    assert "phase_tokens_per_second_prefill" not in reading.derived.quality


def test_a_late_counter_is_taken_over_many_requests_all_the_same() -> None:
    """Ten minutes of tokens in a lump every minute: over half a minute the rate would be 0 or double."""
    texts = [f"acme_prefill_total 1\nacme_decode_total {3000 * (tick // 12)}\nacme_running 1\n" for tick in range(73)]
    found = readings([{"/metrics": text} for text in texts], seconds=5.0, window_seconds=30.0, runtimes=[ACME])[-6:]
    for reading in found:
        assert reading.derived is not None
        rate = reading.derived.engines[0].phase_tokens_per_second["decode"]
        assert rate == pytest.approx(50.0, rel=0.21)
