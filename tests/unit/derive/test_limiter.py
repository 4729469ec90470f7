"""The limiter: each row of its table, a verdict that does not flap, requests that wait, and an engine that stands still."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.catalogue import standstill as declared
from llm_serving_exporter.catalogue.health import ASKED_WHETHER_LIVE
from llm_serving_exporter.derive import limiter
from llm_serving_exporter.derive.derive import derive
from llm_serving_exporter.derive.figures import DeriveSettings
from llm_serving_exporter.derive.limiter import (
    HOLD_SECONDS,
    LONGEST_DOUBT_SECONDS,
    MARGIN,
    Judged,
    decide_limiter,
    gather_evidence,
    gather_rest,
    judge_limiter,
    list_lacking_signals,
)
from llm_serving_exporter.derive.standstill import Standstill, advance_standstill, measure_standstill, says_it_at_once
from llm_serving_exporter.docgen.limiter_picture import list_questions, list_states
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.derived import Cap, Limiter, Range, Roofline, Verdict
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import EngineWindow, Window
from llm_serving_exporter.settings.config import LimiterConfig
from tests.support.builders.engine_roofline import roofline
from tests.support.builders.snapshots import engine_of
from tests.support.builders.windows import all_of, engine, held, window
from tests.support.models.rooflines import Published, rows
from tests.support.models.roofs import H100, LLAMA_8B, served
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.yaml_text import load_yaml

# --- The limiter: each row of its table on published replicas and on evidence by hand; a verdict that does not flap; its pages


PAGE = (ROOT / "docs/internals-limiter.md").read_text()
WELL = {"busy": 1.0, "requests_waiting": 0.0, "kv_cache_usage": 0.5, "preemptions_per_second": 0.0}


def well(*evidence: dict[str, float], **changes: float) -> dict[str, float]:
    """A busy replica in which nothing waits, with this evidence."""
    return {**WELL, **{name: value for each in evidence for name, value in each.items()}, **changes}


# --- published replicas -----------------------------------------------------------------------------------------------------


def gather(windows: list[EngineWindow], rooflines: list[Roofline], *, contradicted: bool = False) -> dict[str, float]:
    """The evidence of engines that count nothing late."""
    judged = [Judged(one, roof, one, contradicted) for one, roof in zip(windows, rooflines, strict=True)]
    return {**gather_evidence(judged), **gather_rest(judged)}


def replica(row: Published, **gauges: float) -> dict[str, float]:
    """The evidence of a minute of a row's replica, by its counters."""
    tokens = row.tokens_per_second * 60
    requests = tokens / row.output if row.output else 0.0
    decoded = tokens - requests
    done = window(
        decoded=decoded, steps=tokens / row.batch, seconds_per_token=row.batch / row.tokens_per_second, prompts=requests,
        prefill=requests * row.prompt, finished=requests, prompt=row.prompt, output=row.output,
        **{**held(max(row.context, 1.0), row.batch), **gauges},
    )  # fmt: skip
    # one size of answers, so that the histogram says the row's own context
    if not requests:
        done = EngineWindow(
            tuple(
                engine(
                    decoded=one.inter_token_latency_seconds.count,
                    steps=one.engine_steps_total,
                    seconds_per_token=row.batch / row.tokens_per_second,
                    request_prompt_tokens=all_of(row.context, 100.0),
                    request_generation_tokens=all_of(1.0, 100.0),
                    requests_running=row.batch,
                )
                for one in done.readings
                if one.inter_token_latency_seconds is not None
            ),
            60.0,
        )
    hardware = Hardware(row.roof.peaks, row.roof.parallel)
    return gather([done], [roofline(done, (), row.facts, hardware).roofline])


EXPECTED = {
    Limiter.BANDWIDTH: ("1", "2", "3", "5", "6", "16", "17", "18", "23"),
    Limiter.COMPUTE: ("26", "27", "28"),
    # on eight GPUs, or of few active parameters, at batch 1: a step takes milliseconds however few bytes it moves
    Limiter.OVERHEAD: ("20", "22", "34"),
}


@check_rows(("row", "state"), [(row, state) for state, told in EXPECTED.items() for row in rows(*told)], ids=str)
def test_published_replicas(row: Published, state: Limiter) -> None:
    assert decide_limiter(replica(row)) is state


def test_the_same_model_turns_from_bandwidth_to_compute_with_its_batch() -> None:
    """Row 25: batch 128 with long answers, batch 1,024 with short ones."""
    assert [decide_limiter(replica(row)) for row in rows("25")] == [Limiter.BANDWIDTH, Limiter.COMPUTE]


def test_the_same_model_turns_to_prefill_interference_with_its_load() -> None:
    """Row 31: prompts of 9,400 tokens and answers of 652, with 23 and with 63 sequences."""
    assert [decide_limiter(replica(row)) for row in rows("31")] == [Limiter.OVERHEAD, Limiter.PREFILL_INTERFERENCE]


def test_the_same_model_turns_from_bandwidth_to_overhead_with_its_gpus() -> None:
    """Row 9: 1, 2, 4 and 8 GPUs at batch 1."""
    assert [decide_limiter(replica(row)) for row in rows("9")] == [Limiter.BANDWIDTH] * 3 + [Limiter.OVERHEAD]


@pytest.mark.parametrize("row", rows("26", "27", "28"), ids=str)
def test_a_saturated_replica_is_bound_by_compute_whatever_queues(row: Published) -> None:
    """Neither more KV nor a larger batch gives more tokens where the FLOPs take the time; and prefill, half of the work, is no
    interference where decode alone is beyond the ridge."""
    found = replica(row, requests_waiting=100.0, batch_limit_requests=row.batch, kv_cache_usage_ratio=0.99)
    assert found["batch_of_ridge"] > 1
    assert found["batch_utilization"] == pytest.approx(1.0)
    assert decide_limiter(found) is Limiter.COMPUTE
    assert decide_limiter({**found, "prefill_busy": 0.6}) is Limiter.COMPUTE


def test_the_reasons_that_the_page_gives_for_its_thresholds_hold() -> None:
    few_gpus = [replica(row) for row in (*rows(*EXPECTED[Limiter.BANDWIDTH]), *rows("9")[:3])]
    assert all(0.45 <= found["bandwidth"] <= 0.7 for found in few_gpus)
    assert all(1.4 <= round(found["decode_slowdown"], 1) <= 2.2 for found in few_gpus)
    bound_by_latency = [replica(row) for row in (*rows(*EXPECTED[Limiter.OVERHEAD]), rows("9")[3])]
    assert all(found["bandwidth"] < 0.365 for found in bound_by_latency)
    saturated = [replica(row)["compute"] for row in rows(*EXPECTED[Limiter.COMPUTE])]
    assert all(0.28 <= compute <= 0.52 for compute in saturated)


# --- row by row ---------------------------------------------------------------------------------------------------------------

QUEUED = well(requests_waiting=344.0, batch_utilization=1.0, compute=0.5, bandwidth=0.5, prefill_busy=0.4)
CAPPED = {"held_by_power": 0.9, "sm_clock": 0.7, "dram": 0.3}
CHUNKED = {"compute": 0.3, "bandwidth": 0.2, "prefill_busy": 0.6, "decode_slowdown": 4.0, "batch_of_ridge": 0.4}
TABLE = [
    ({}, Limiter.UNKNOWN),
    ({"requests_waiting": 9.0, "bandwidth": 0.7, "compute": 0.1}, Limiter.UNKNOWN),
    (well(busy=0.09), Limiter.STARVED),
    (well(busy=0.09, requests_waiting=3.0), Limiter.UNKNOWN),
    (well(CHUNKED), Limiter.PREFILL_INTERFERENCE),
    (well(CHUNKED, batch_of_ridge=1.2), Limiter.COMPUTE),
    (well(CHUNKED, prefill_busy=0.4), Limiter.COMPUTE),
    (well(CHUNKED, decode_slowdown=2.0), Limiter.COMPUTE),
    # a prefill replica has no decode that could wait
    (well(compute=0.5, bandwidth=0.05, prefill_busy=1.0), Limiter.COMPUTE),
    # prompts alone, of weights that the card has no fast path for
    (well(compute=0.18, bandwidth=0.08, prefill_busy=1.0), Limiter.COMPUTE),
    (well(compute=0.18, bandwidth=0.08, prefill_busy=0.8), Limiter.OVERHEAD),
    (well(compute=0.1, bandwidth=0.05, prefill_busy=1.0), Limiter.OVERHEAD),
    # preempted so often that it needs nobody who waits
    (well(preemptions_per_second=0.06, bandwidth=0.6, compute=0.1), Limiter.KV_CAPACITY),
    (well(preemptions_per_second=0.02, bandwidth=0.6, compute=0.1), Limiter.BANDWIDTH),
    # both low: launches make decode slow, not the little prefill that there is
    (well(CHUNKED, compute=0.05, bandwidth=0.05), Limiter.OVERHEAD),
    (well(compute=0.3, bandwidth=0.5), Limiter.BANDWIDTH),
    (well(compute=0.2, bandwidth=0.1), Limiter.OVERHEAD),
    # with the bandwidth's share suspect, which of the two is nearer is not known
    (well(compute=0.3), Limiter.UNKNOWN),
    (well(requests_waiting=4.0, kv_cache_usage=0.97, bandwidth=0.6, compute=0.1), Limiter.KV_CAPACITY),
    (well(requests_waiting=4.0, preemptions_per_second=0.1, bandwidth=0.6, compute=0.1), Limiter.KV_CAPACITY),
    (well(requests_waiting=4.0, kv_cache_usage=0.97), Limiter.KV_CAPACITY),
    (well(kv_cache_usage=0.97, bandwidth=0.6, compute=0.1), Limiter.BANDWIDTH),
    (well(requests_waiting=4.0, batch_utilization=1.0, bandwidth=0.6, compute=0.1), Limiter.BATCH_LIMIT),
    (well(batch_utilization=1.0, bandwidth=0.6, compute=0.1), Limiter.BANDWIDTH),
    (well(bandwidth=0.6), Limiter.BANDWIDTH),
    (well(bandwidth=0.2), Limiter.UNKNOWN),
    (well(), Limiter.UNKNOWN),
    # a long prefill is no standstill; one that lasts is, whatever else there is
    (well(standstill_seconds=310.0, bandwidth=0.0, compute=0.0), Limiter.STALLED),
    (well(standstill_seconds=310.0, requests_waiting=9.0, kv_cache_usage=0.99), Limiter.STALLED),
    # 20 prompts of 8 % of the KV cache each before an engine that has 7 % free
    (
        well(
            requests_waiting=20.0,
            kv_cache_usage=0.93,
            next_prompt_kv=0.08 / 0.07,
            batch_utilization=0.4,
            bandwidth=0.6,
            compute=0.1,
        ),
        Limiter.KV_CAPACITY,
    ),
    # the batch is full before the cache is
    (
        well(
            requests_waiting=20.0,
            kv_cache_usage=0.93,
            next_prompt_kv=1.2,
            batch_utilization=1.0,
            bandwidth=0.6,
            compute=0.1,
        ),
        Limiter.BATCH_LIMIT,
    ),
    (well(requests_waiting=20.0, next_prompt_kv=0.5, bandwidth=0.6, compute=0.1), Limiter.BANDWIDTH),
    # nobody waits for room, however full the cache is
    (
        well(
            requests_waiting=6.0,
            requests_deferred=6.0,
            kv_connector=1.0,
            kv_cache_usage=0.97,
            bandwidth=0.1,
            compute=0.1,
        ),
        Limiter.TRANSFER,
    ),
    (well(requests_waiting=6.0, requests_deferred=6.0, kv_connector=0.0, batch_utilization=1.0), Limiter.BLOCKED),
    (well(requests_waiting=6.0, requests_deferred=0.2, bandwidth=0.6, compute=0.1), Limiter.BANDWIDTH),
    # sequences that share a prefix, of 4,000 and of 1,000 tokens
    (well(attended_kv=12.0, bandwidth=0.46, compute=0.1), Limiter.ATTENTION),
    (well(attended_kv=2.0, bandwidth=0.1, compute=0.1), Limiter.ATTENTION),
    (well(attended_kv=4.4, bandwidth=0.6, compute=0.1), Limiter.BANDWIDTH),
    (well(attended_kv=1.3, bandwidth=0.3, compute=0.1), Limiter.OVERHEAD),
    # prompts alone: what their activations move does not count against compute, and beside decode it does
    (well(prefill_busy=1.0, bandwidth=0.69, activations=0.5, compute=0.5), Limiter.COMPUTE),
    (well(prefill_busy=0.4, bandwidth=0.69, activations=0.5, compute=0.5), Limiter.BANDWIDTH),
    # a full batch below the ridge comes before compute that is not near what kernels reach, as in a queue on an H100
    ({**QUEUED, "batch_of_ridge": 0.9}, Limiter.BATCH_LIMIT),
    ({**QUEUED, "batch_of_ridge": 1.1}, Limiter.COMPUTE),
    ({**QUEUED, "batch_of_ridge": 0.9, "compute": 0.61, "bandwidth": 0.3}, Limiter.COMPUTE),
    ({**QUEUED, "batch_of_ridge": 0.9, "kv_cache_usage": 0.97}, Limiter.KV_CAPACITY),
    # a cap in place of what says how well the hardware is used
    (well(CAPPED, bandwidth=0.3, compute=0.6, prefill_busy=1.0), Limiter.POWER),
    (well(CAPPED, bandwidth=0.6, compute=0.1), Limiter.POWER),
    (well(CAPPED, bandwidth=0.1, compute=0.1), Limiter.POWER),
    (well(CAPPED, held_by_power=0.0, held_by_thermal=0.9, bandwidth=0.6, compute=0.1), Limiter.POWER),
    (well(CAPPED), Limiter.POWER),
    (well(CAPPED, held_by_power=0.5, bandwidth=0.6, compute=0.1), Limiter.BANDWIDTH),
    (well(CAPPED, dram=0.75, bandwidth=0.75, compute=0.1), Limiter.BANDWIDTH),
    ({**QUEUED, **CAPPED, "batch_of_ridge": 0.9}, Limiter.BATCH_LIMIT),
    (well(CAPPED, requests_waiting=5.0, kv_cache_usage=0.99, bandwidth=0.6, compute=0.1), Limiter.KV_CAPACITY),
    # whether memory binds is not known, so whether the cap does is not
    (well(held_by_power=0.9, compute=0.6), Limiter.UNKNOWN),
    # nothing is done that a clock could slow down
    (well(CAPPED, busy=0.05), Limiter.STARVED),
]


@check_rows(("found", "state"), TABLE)
def test_the_first_row_that_holds(found: dict[str, float], state: Limiter) -> None:
    assert decide_limiter(found) is state


def test_every_state_is_reached() -> None:
    assert {state for _, state in TABLE} == set(Limiter)


@check_rows(("found", "state"), [(found, state) for found, state in TABLE if found])
def test_a_state_in_force_keeps_its_place_while_its_thresholds_are_nearly_met(
    found: dict[str, float], state: Limiter
) -> None:
    assert decide_limiter(found, state) is state


def test_the_margin() -> None:
    just_below = well(bandwidth=0.4 * (1 - MARGIN) + 1e-6, compute=0.01)
    assert decide_limiter(just_below) is Limiter.OVERHEAD
    assert decide_limiter(just_below, Limiter.BANDWIDTH) is Limiter.BANDWIDTH
    assert decide_limiter({**just_below, "bandwidth": 0.4 * (1 - MARGIN) - 1e-6}, Limiter.BANDWIDTH) is Limiter.OVERHEAD
    assert decide_limiter(well(busy=0.105), Limiter.STARVED) is Limiter.STARVED


def test_what_evidence_without_a_verdict_lacks() -> None:
    ratios = ("bandwidth_ceiling_ratio_model", "compute_ceiling_ratio")
    assert list_lacking_signals({}) == ("requests_running", *ratios)
    # what only tells the states apart is not asked for
    assert list_lacking_signals({"busy": 0.5}) == ratios
    assert list_lacking_signals(well(bandwidth=0.2)) == ratios[1:]
    assert list_lacking_signals(well(compute=0.3)) == ratios[:1]


# --- evidence -------------------------------------------------------------------------------------------------------------------

LLAMA, HARDWARE = served(LLAMA_8B), Hardware(H100, Parallel())
BUSY = window(decoded=64_000, steps=1000, seconds_per_token=0.04, **held(1000, 64), requests_waiting=2.0)
QUIET = window(engine="1", requests_running=0.0)


def judged(*windows: EngineWindow) -> dict[str, float]:
    return gather(windows, [roofline(one, (), LLAMA, HARDWARE).roofline for one in windows])


def test_evidence_of_one_engine() -> None:
    found = judged(BUSY)
    own = roofline(BUSY, (), LLAMA, HARDWARE).roofline
    assert found["busy"] == 1.0
    assert (found["requests_waiting"], found["kv_cache_usage"]) == (2.0, 0.5)
    assert found["bandwidth"] == own.ratio["model"]
    assert found["compute"] == own.compute_ratio
    assert found["decode_slowdown"] == pytest.approx(0.04 / own.step_floor_seconds)


def test_an_engine_that_did_nothing_does_not_make_the_others_look_busier() -> None:
    both = judged(BUSY, QUIET)
    assert both["busy"] == 0.5
    assert both["bandwidth"] == pytest.approx(judged(BUSY)["bandwidth"])
    assert both["compute"] == pytest.approx(judged(BUSY)["compute"])


def test_shares_are_of_the_time_in_which_an_engine_worked() -> None:
    half = EngineWindow((engine(requests_running=0.0), BUSY.first, BUSY.last, engine(requests_running=0.0)), 60.0)
    ratio = Roofline(ratio={"gpm": 0.3}, compute_ratio=0.1)
    found = gather([half], [ratio])
    assert (found["busy"], found["bandwidth"], found["compute"]) == (0.5, 0.6, 0.2)
    # a share of a few readings can say less than the work that was done
    assert gather([half], [Roofline(ratio={"gpm": 0.9})])["bandwidth"] == 1.0


def test_the_full_engine_counts_where_requests_wait() -> None:
    """A rank that is full while nobody waits there says nothing about those who wait elsewhere."""
    full = window(kv_cache_usage_ratio=0.99, batch_limit_requests=10.0, requests_running=10.0)
    queued = window(kv_cache_usage_ratio=0.3, batch_limit_requests=10.0, requests_running=2.0, requests_waiting=5.0)
    found = gather([full, queued], [Roofline(), Roofline()])
    assert (found["kv_cache_usage"], found["batch_utilization"], found["requests_waiting"]) == (0.3, 0.2, 5.0)
    found = gather([full, window(kv_cache_usage_ratio=0.3)], [Roofline(), Roofline()])
    assert found["kv_cache_usage"] == 0.99


def test_what_is_impossible_is_no_evidence() -> None:
    """Ratios above 1, and the floor of a decode that outran its ceiling; the engine's own estimate never is."""
    wrong = Roofline(ratio={"model": 1.3, "runtime": 0.5}, compute_ratio=1.2, decode_ratio=1.1, step_floor_seconds=0.01)
    found = gather([BUSY], [wrong])
    assert not {"bandwidth", "compute", "decode_slowdown"} & set(found)
    assert decide_limiter(found) is Limiter.UNKNOWN
    assert gather([BUSY], [Roofline(ratio={"model": 1.3, "gpm": 0.6})])["bandwidth"] == 0.6


def test_one_reading_is_no_evidence() -> None:
    assert gather([EngineWindow((engine(requests_running=0.0),), 0.0)], [Roofline()]) == {}


@given(st.lists(st.sampled_from((BUSY, QUIET, window(prompts=9, steps=9, prefill=9e3))), min_size=1, max_size=4))
def test_shares_lie_between_0_and_1(windows: list[EngineWindow]) -> None:
    found = judged(*windows)
    assert all(0 <= found[name] <= 1 for name in ("busy", "bandwidth", "compute", "prefill_busy") if name in found)


# --- over time --------------------------------------------------------------------------------------------------------------------

EVIDENCE = {
    "B": well(bandwidth=0.6, compute=0.05),
    "C": well(bandwidth=0.1, compute=0.5),
    "O": well(bandwidth=0.1, compute=0.05),
    "?": {},
}


def over_time(steps: str, interval: float = 5.0, first: Verdict | None = None) -> str:
    """The initials of the states in force, tick by tick."""
    verdict, states = first, ""
    for tick, one in enumerate(steps):
        verdict = judge_limiter(EVIDENCE[one], verdict, tick * interval)
        if verdict.state is verdict.candidate:
            assert verdict.evidence == EVIDENCE[one]
        # what is shown is what the state in force was decided on
        assert decide_limiter(verdict.evidence, verdict.state) is verdict.state
        states += "?" if verdict.state is Limiter.UNKNOWN else verdict.state.value[0].upper()
    return states


def test_a_steady_change_takes_effect_after_the_hold() -> None:
    assert HOLD_SECONDS == 15
    assert over_time("BBCCCCC") == "BBBBBCC"


def test_a_change_that_does_not_last_takes_none() -> None:
    assert over_time("BBCCCBCCCB") == "B" * 10


@check_rows("interval", [1.0, 5.0, 15.0, 60.0])
def test_candidates_that_alternate_with_the_state_in_force_never_flap(interval: float) -> None:
    assert over_time("BC" * 100, interval) == "B" * 200


def test_a_state_that_nothing_speaks_for_gives_way_although_others_take_turns() -> None:
    """A night's verdict must not stand over a morning that lies between two others; and it changes once."""
    assert LONGEST_DOUBT_SECONDS == 60
    states = over_time("B" + "CO" * 40)
    assert states[:13] == "B" * 13
    assert len(set(states[13:])) == 1
    assert states[13] in "CO"


def test_unknown_gives_way_at_once_and_is_not_entered_at_once() -> None:
    assert over_time("?B") == "?B"
    assert over_time("BB?B??B") == "BBBBBBB"
    assert over_time("B?????") == "BBBB??"


@given(st.text("BCO?", min_size=1, max_size=200), st.sampled_from((1.0, 5.0, 20.0)))
def test_known_states_change_no_sooner_than_after_the_hold(steps: str, interval: float) -> None:
    states = over_time(steps, interval)
    last = 0
    for tick in range(1, len(states)):
        if states[tick] != states[tick - 1]:
            if states[tick - 1] != "?":
                assert (tick - last) * interval >= HOLD_SECONDS
            last = tick


# --- the page ---------------------------------------------------------------------------------------------------------------------


def test_the_page_has_every_threshold_as_the_code_has_it() -> None:
    constants = {name: value for name, value in vars(limiter).items() if name.isupper() and isinstance(value, float)}
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| ([0-9.]+) \|", PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in told.items()} == constants


def test_the_picture_asks_for_every_state_in_the_order_of_the_table() -> None:
    table = re.findall(r"^\| \d+ \| `(\w+)` \|", PAGE.split("## The table")[1].split("## ")[0], re.MULTILINE)
    assert table[0] == "unknown"
    assert [state.value for state in list_states()] == table[1:]
    assert {*list_questions()} == {*Limiter} == {*list_states()}


def test_the_page_has_every_state_and_every_piece_of_evidence() -> None:
    table = PAGE.split("## The table")[1].split("## ")[0]
    assert {state.value for state in Limiter} == set(re.findall(r"^\| \d+ \| `(\w+)` \|", table, re.MULTILINE))
    concept = (ROOT / "docs/limiter.md").read_text()
    todo = concept.split("## What to do")[1].split("## ")[0]
    assert {state.value for state in Limiter} == set(re.findall(r"^\| `(\w+)` \|", todo, re.MULTILINE))
    names = set(re.findall(r"^\| `(\w+)` \|", PAGE.split("## The evidence")[1].split("## ")[0], re.MULTILINE))
    full = window(
        decoded=100, steps=10, prompts=5, prefill=500, cached=100, batch_limit_requests=10.0, preemptions_total=1.0,
        **held(100, 64),
    )  # fmt: skip
    waits = window(**{**held(100, 64), "requests_waiting": 4.0, "requests_deferred": 2.0})
    still = Judged(waits, Roofline(), waits, standstill=Standstill(0.0, 0.0, 400.0), prompt_tokens=500.0)
    capped = [gather_evidence([replace(still, roofline=Roofline(ratio={"gpm": 0.3}))], cap=cap) for cap in CAPS]
    prompts = window(steps=10, prompts=5, prefill=50_000, requests_running=2.0)
    assert names == {*judged(full), *gather_evidence([still]), *judged(prompts), *capped[0], *capped[1]}


CAPS = (Cap("power", 0.9, 1.383e9, 1.98e9, 698.0, 700.0), Cap("thermal", 0.9, 1.383e9, 1.98e9))


def test_what_is_known_of_a_cap_is_evidence_from_nearly_half_of_the_window_on() -> None:
    done = window(**held(100, 64))
    one = Judged(done, Roofline(ratio={"gpm": 0.3, "model": 0.1}), done)
    assert {**gather_evidence([one], cap=CAPS[0])}.items() >= {
        "held_by_power": 0.9, "sm_clock": pytest.approx(1383 / 1980), "dram": pytest.approx(0.3),
    }.items()  # fmt: skip
    assert not {"held_by_power", "sm_clock", "dram"} & {*gather_evidence([one], cap=replace(CAPS[0], share=0.4))}
    # without a measurement the most that it may be
    estimated = replace(one, roofline=Roofline(), find_range=lambda: Range(0.1, 0.2, 0.6))
    assert gather_evidence([estimated], cap=CAPS[0])["dram"] == pytest.approx(0.6)
    unknown = replace(one, roofline=Roofline(), find_range=lambda: Absence.MODEL_UNKNOWN)
    assert "dram" not in gather_evidence([unknown], cap=CAPS[0])


def test_a_cap_is_shown_with_the_verdict_that_rests_on_it() -> None:
    power = well(CAPPED)
    first = judge_limiter(power, None, 0.0, cap=CAPS[0])
    assert (first.state, first.cap) == (Limiter.POWER, CAPS[0])
    later = judge_limiter(well(bandwidth=0.6, compute=0.1), first, 5.0, cap=CAPS[1])
    assert (later.state, later.candidate, later.cap) == (Limiter.POWER, Limiter.BANDWIDTH, CAPS[0])


# --- What the limiter makes of requests that wait: whether the next would fit, and whether they wait for room at all


LLAMACPP = RUNTIMES["llamacpp"]


def of_waiting(one: EngineWindow, **more: object) -> dict[str, float]:
    return gather_evidence([Judged(one, Roofline(), one, **more)])


def test_a_prompt_that_waits_is_held_against_what_is_free() -> None:
    """20 prompts of 8 % of the KV cache each, 7 % free; with half of each prompt in the prefix cache 4 % do."""
    waits = {"requests_waiting": 20.0, "kv_cache_usage_ratio": 0.93, "kv_cache_capacity_tokens": 100_000.0}
    found = of_waiting(window(**waits), prompt_tokens=8000.0)
    assert found["next_prompt_kv"] == pytest.approx(8 / 7)
    assert decide_limiter(found) is Limiter.KV_CAPACITY
    cached = window(**waits, prefix_cache_queries=1000.0, prefix_cache_hits=500.0)
    first = replace(cached.first, prefix_cache_queries=0.0, prefix_cache_hits=0.0)
    found = of_waiting(EngineWindow((first, cached.last), 60.0), prompt_tokens=8000.0)
    assert found["next_prompt_kv"] == pytest.approx(4 / 7)
    assert decide_limiter(found) is Limiter.UNKNOWN
    # nothing free at all is a number, too
    full = of_waiting(window(**{**waits, "kv_cache_usage_ratio": 1.0}), prompt_tokens=8000.0)
    assert decide_limiter(full) is Limiter.KV_CAPACITY


def test_what_is_not_known_of_a_prompt_that_waits_is_no_evidence() -> None:
    waits = {"requests_waiting": 20.0, "kv_cache_usage_ratio": 0.93, "kv_cache_capacity_tokens": 100_000.0}
    assert "next_prompt_kv" not in of_waiting(window(**waits))
    assert "next_prompt_kv" not in of_waiting(window(requests_waiting=9.0, kv_cache_usage_ratio=0.9), prompt_tokens=8e3)
    # where nobody waits there is no next prompt
    assert "next_prompt_kv" not in of_waiting(window(**{**waits, "requests_waiting": 0.0}), prompt_tokens=8000.0)


@check_rows(
    ("connector", "receives", "state"),
    [
        (1.0, False, Limiter.TRANSFER),
        (None, True, Limiter.TRANSFER),
        (None, False, Limiter.BLOCKED),
        (0.0, False, Limiter.BLOCKED),
    ],
)
def test_deferred_requests_wait_for_a_transfer_only_where_there_is_one(
    connector: float | None, receives: bool, state: Limiter
) -> None:
    waits = window(requests_waiting=5.0, requests_deferred=5.0, kv_connector=connector)
    assert decide_limiter(of_waiting(waits, receives_kv=receives)) is state


def test_llamacpps_requests_deferred_only_means_queued() -> None:
    """Its page says no reason: its queue is `requests_waiting`, and nothing is deferred."""
    page = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 9\n"
    one = engine_of(page, runtime=LLAMACPP)
    assert (one.requests_waiting, one.requests_deferred) == (9.0, None)


def test_a_gauge_of_running_requests_that_is_contradicted_is_no_evidence_of_room_in_the_batch() -> None:
    waits = window(requests_running=0.0, requests_waiting=9.0, batch_limit_requests=16.0)
    assert of_waiting(waits)["batch_utilization"] == 0.0
    assert "batch_utilization" not in of_waiting(waits, contradicted=True)


# --- Standstill, page by page: the cases of LLMServingStalled (tests/pack), and what is none. Truth by construction


STEP = 5.0
SPAN = declared.SPAN_SECONDS


def follow(pages: list[EngineSnapshot]) -> Standstill:
    """What is known after pages that are five seconds apart."""
    found = None
    for number, last in enumerate(pages):
        tick = EngineWindow((pages[number - 1], last), STEP) if number else None
        found = advance_standstill(found, tick, last, number * STEP)
    assert found is not None
    return found


def page(done: float = 100.0, running: float = 3.0, waiting: float = 0.0, **more: object) -> EngineSnapshot:
    return engine(decoded=done, steps=done, prefill=done, requests_running=running, requests_waiting=waiting, **more)


def still_for(seconds: float, **more: object) -> list[EngineSnapshot]:
    return [page(0.0), page(), *[page(**more) for _ in range(int(seconds / STEP))]]


def test_a_hung_engine_stands_still_once_the_span_is_over() -> None:
    assert measure_standstill(follow(still_for(SPAN - STEP)), SPAN) is None
    assert measure_standstill(follow(still_for(SPAN)), SPAN) == SPAN


def test_a_long_prefill_is_no_standstill() -> None:
    """128 Ki tokens at 2,000 a second: 65 s without a token, a step or a finish."""
    assert measure_standstill(follow(still_for(65.0)), SPAN) is None


def test_an_engine_at_rest_does_not_stand_still() -> None:
    assert measure_standstill(follow(still_for(4 * SPAN, running=0.0)), SPAN) is None


def test_requests_that_only_wait_count() -> None:
    assert measure_standstill(follow(still_for(SPAN, running=0.0, waiting=2.0)), SPAN) == SPAN


@pytest.mark.parametrize("moves", ["engine_steps_total", "prefill_tokens_total", "decode_tokens_total"])
def test_whatever_moves_ends_it(moves: str) -> None:
    pages = still_for(SPAN)
    pages.append(replace(pages[-1], **{moves: getattr(pages[-1], moves) + 1}))
    assert measure_standstill(follow(pages), SPAN) is None


def test_a_finish_is_progress_and_an_abort_is_none() -> None:
    pages = still_for(SPAN, requests_finished_total={"stop": 5.0, "abort": 0.0})
    pages[:2] = [replace(one, requests_finished_total={"stop": 5.0, "abort": 0.0}) for one in pages[:2]]
    gave_up = replace(pages[-1], requests_finished_total={"stop": 5.0, "abort": 1.0})
    finished = replace(pages[-1], requests_finished_total={"stop": 6.0, "abort": 0.0})
    assert measure_standstill(follow([*pages, gave_up]), SPAN) == SPAN + STEP
    assert measure_standstill(follow([*pages, finished]), SPAN) is None


def test_requests_that_come_and_go_count_over_twice_the_span() -> None:
    """Clients give up after a minute and others come: at every third page nobody is there."""
    turns = [page(running=0.0 if number % 3 == 2 else 2.0) for number in range(int(2 * SPAN / STEP))]
    assert measure_standstill(follow([page(0.0), page(), *turns[: len(turns) // 2]]), SPAN) is None
    assert measure_standstill(follow([page(0.0), page(), *turns]), SPAN) == 2 * SPAN
    # seldom there: that is little traffic, not a standstill
    seldom = [page(running=2.0 if number % 3 == 2 else 0.0) for number in range(int(2 * SPAN / STEP))]
    assert measure_standstill(follow([page(0.0), page(), *seldom]), SPAN) is None


def test_clients_that_give_up_without_being_let_in_count() -> None:
    turns = [
        page(running=0.0, requests_finished_total={"abort": float(min(3, number // 20))})
        for number in range(int(2 * SPAN / STEP))
    ]
    begun = [page(0.0), page(requests_finished_total={"abort": 0.0})]
    assert measure_standstill(follow([*begun, *turns]), SPAN) == 2 * SPAN
    fewer = [replace(one, requests_finished_total={"abort": 2.0}) for one in turns]
    assert measure_standstill(follow([*begun, *fewer]), SPAN) is None


def test_a_gap_begins_a_new_count() -> None:
    before = follow(still_for(SPAN))
    assert measure_standstill(advance_standstill(before, None, page(), 10_000.0), SPAN) is None


@check_rows(
    ("quality", "says"),
    [
        ({}, True),
        ({"requests_running": Quality.SLOW}, False),
        ({"decode_tokens_total": Quality.LAGGING}, True),
        ({"decode_tokens_total": Quality.LAGGING, "engine_steps_total": Quality.SLOW}, False),
    ],
)
def test_only_live_signals_tell(quality: dict[str, Quality], says: bool) -> None:
    assert says_it_at_once(page(), quality) is says
    assert not says_it_at_once(replace(page(), requests_running=None), {})


def test_an_engine_that_was_put_to_sleep_does_not_stand_still() -> None:
    assert not says_it_at_once(replace(page(), awake=0.0), {})
    assert says_it_at_once(replace(page(), awake=1.0), {})


def test_the_limiter_calls_it_stalled_after_the_span_and_its_hold() -> None:
    states: list[Limiter] = []
    before = None
    pages = still_for(SPAN + 60)
    for number in range(2, len(pages) + 1):
        recent = pages[max(0, number - 13) : number]
        first = number - len(recent)
        snapshots = tuple(
            Snapshot((one,), "vllm", 1e9 + (first + place) * STEP, (first + place) * STEP)
            for place, one in enumerate(recent)
        )
        before = derive(Window(snapshots), DeriveSettings(), before)
        states.append(before.verdict.state)
    assert Limiter.STALLED not in states[: int(SPAN / STEP)]
    assert states[-1] is Limiter.STALLED
    assert before.verdict.evidence["standstill_seconds"] >= SPAN


def test_rule_and_limiter_rest_on_one_declaration() -> None:
    settings = load_yaml((ROOT / "alerts/llm_serving_alerts/settings.yml").read_text())
    assert settings["alerts"]["Stalled"]["range"] == "5m"
    assert SPAN == 300.0 == LimiterConfig().stalled_after_seconds
    (expr,) = [
        rule["expr"]
        for group in load_yaml((ROOT / "alerts/rendered/alerts.yml").read_text())["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "LLMServingStalled"
    ]
    assert all(name in expr for name in (*declared.MOVES, declared.SAYS_WHAT_RUNS, *declared.SAYS_WHAT_IS_DONE))
    assert f">= {declared.GIVEN_UP_FROM}" in expr
    assert {declared.SAYS_WHAT_RUNS, *declared.SAYS_WHAT_IS_DONE} <= ASKED_WHETHER_LIVE
