"""A window for each signal: a counter that is booked late has a longer one, and what is live beside it has the configured one."""

import random

import pytest

from llm_serving_exporter.derive.window import LAGGING_SECONDS, LONGEST_SECONDS, MOST_OLDER, REFRESHES_IN_A_WINDOW
from llm_serving_exporter.engines.mapping import Fingerprint, Mark, Row, Runtime
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality
from tests.support.rows import check_rows
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
