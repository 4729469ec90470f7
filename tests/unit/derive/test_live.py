"""Roofline, busy time, memory and limiter as `derive` makes them of a target's pages, tick by tick."""

import json
from pathlib import Path

import pytest

from llm_serving_exporter.derive.derive import DeriveSettings, derive
from llm_serving_exporter.derive.window import advance_window, has_restarted
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.derived import BusySeconds, Cause, Derived, Limiter
from llm_serving_exporter.model.hardware import GpuPeaks, Hardware, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import DeviceSample, Spans, Window
from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import snapshot_of
from tests.support.builders.windows import engine, held
from tests.support.models.roofs import H100, LLAMA_8B, flat, served, shape

LLAMA = served(LLAMA_8B)
HARDWARE = Hardware(H100, Parallel(), 1.0)
KNOWN = DeriveSettings(hardware=HARDWARE, models={"m": LLAMA})
INTERVAL = 5.0

Reading = EngineSnapshot | tuple[EngineSnapshot, ...]


def run(readings: list[Reading], settings: DeriveSettings | list[DeriveSettings] = KNOWN) -> list[Derived]:
    """Each tick's result, as the pipeline makes it."""
    window: Window | None = None
    results: list[Derived] = []
    for tick, reading in enumerate(readings):
        engines = reading if isinstance(reading, tuple) else (reading,)
        now = settings[tick] if isinstance(settings, list) else settings
        snapshot = Snapshot(engines, "vllm", 1e9 + tick * INTERVAL, tick * INTERVAL)
        again = window is not None and has_restarted(window.later, snapshot)
        window = advance_window(None if again else window, snapshot, Spans(60.0), now.device)
        results.append(derive(window, now, results[-1] if results and not again else None))
    return results


def decoding(ticks: int, **more: object) -> list[Reading]:
    """An engine that decodes 64 sequences at 100 steps a second, with 1,000 tokens each."""
    told = {**held(1000, 64), "seconds_per_token": 0.01, **more}
    return [engine(decoded=32_000.0 * tick, steps=500.0 * tick, **told) for tick in range(ticks)]


def busy_of(result: Derived) -> BusySeconds:
    (one,) = result.engines
    assert one.busy is not None
    return one.busy


# --- ticks ------------------------------------------------------------------------------------------------------------------


def test_the_first_page_knows_ceilings_and_nothing_of_now() -> None:
    (first,) = run(decoding(1))
    (one,) = first.engines
    assert one.roofline.bandwidth_ceiling == 3.35e12
    assert one.roofline.ratio == {}
    assert one.phase_reference_seconds_per_token.keys() == {"prefill", "decode"}
    assert one.gpu_memory_bytes["weights"] == LLAMA.weight_bytes
    assert first.signals["bandwidth_ceiling_ratio_model"] is Absence.WARMING_UP
    assert first.verdict.state is Limiter.UNKNOWN
    assert first.signals["limiter"] is Absence.WARMING_UP


def test_the_second_page_has_a_verdict() -> None:
    second = run(decoding(2))[1]
    assert second.verdict.state is Limiter.BANDWIDTH
    assert second.signals["limiter"] is Absence.AVAILABLE
    assert second.engines[0].roofline.ratio["model"] == pytest.approx(0.74, abs=0.01)


def test_busy_seconds_start_at_0_and_follow_the_ticks() -> None:
    results = run(decoding(5))
    assert [busy_of(result).decode for result in results] == pytest.approx([0, 5, 10, 15, 20])
    assert busy_of(results[-1]).prefill == 0


def test_the_tick_is_split_and_not_the_window() -> None:
    """A prompt of a million tokens in the third tick: the ticks before it stay decode's."""
    readings = decoding(3)
    assert isinstance(readings[2], EngineSnapshot)
    readings[2] = replace(
        readings[2],
        prefill_tokens_total=1e6,
        time_to_first_token_seconds=engine(prompts=100).time_to_first_token_seconds,
    )
    last = busy_of(run(readings)[-1])
    assert last.decode > 5
    assert last.prefill > 4
    assert last.prefill + last.decode == pytest.approx(10)


def test_time_before_a_long_prompt_is_booked_is_prefills() -> None:
    """Engines book a prompt at its first token: two ticks with a running request and nothing counted, then 40,000 tokens."""
    quiet = engine(requests_running=1.0)
    booked = engine(prompts=1, prefill=40_000, steps=1, requests_running=1.0)
    results = run([quiet, quiet, quiet, booked])
    assert busy_of(results[2]) == BusySeconds(pending_seconds=10.0)
    assert busy_of(results[3]) == BusySeconds(prefill=15.0)


def test_an_engines_restart_starts_the_counters_at_0() -> None:
    results = run([*decoding(3), *decoding(2)])
    assert [busy_of(result).decode for result in results] == pytest.approx([0, 5, 10, 0, 5])
    assert results[3].verdict.state is Limiter.UNKNOWN


def test_facts_that_come_later_start_the_counters_then() -> None:
    unknown = replace(KNOWN, models={})
    results = run(decoding(4), [unknown, unknown, KNOWN, KNOWN])
    assert results[1].engines[0].busy is None
    assert results[1].signals["phase_busy_seconds_total"] is Absence.MODEL_UNKNOWN
    assert [busy_of(result).decode for result in results[2:]] == pytest.approx([0, 5])


def test_a_gap_in_the_facts_is_no_reset() -> None:
    """GPUs that NVML does not show for two ticks: that time waits for the tick that can be split."""
    gone = replace(KNOWN, hardware=Hardware(Absence.GPUS_UNKNOWN))
    results = run(decoding(5), [KNOWN, KNOWN, gone, gone, KNOWN])
    assert [busy_of(result).decode for result in results] == pytest.approx([0, 5, 5, 5, 20])
    assert results[3].signals["phase_busy_seconds_total"] is Absence.AVAILABLE


def test_without_a_compute_rate_busy_time_is_not_split() -> None:
    """Decode alone has a floor, prefill has none: booking all of it to decode would be wrong as soon as prompts come.

    Counters that stay at 0 while the engine works would be wrong too.
    """
    blind = replace(KNOWN, hardware=Hardware(GpuPeaks("?", 3.35e12, "nvml"), Parallel()))
    result = run(decoding(4), blind)[-1]
    assert [one.busy for one in result.engines] == [None]
    assert result.engines[0].roofline.ratio["model"] > 0
    for signal in ("phase_busy_seconds_total", "phase_reference_seconds_per_token"):
        assert result.signals[signal] is Absence.PEAK_UNKNOWN


def test_the_verdict_is_held_from_tick_to_tick() -> None:
    """A minute of decode, then nothing: the window forgets slowly, and the state changes once."""
    busy = decoding(13)
    last = busy[-1]
    assert isinstance(last, EngineSnapshot)
    results = run([*busy, *[replace(last, requests_running=0.0, kv_cache_usage_ratio=0.0)] * 20])
    states = [result.verdict.state for result in results if result.verdict is not None]
    changes = [state for tick, state in enumerate(states) if tick == 0 or state is not states[tick - 1]]
    assert changes == [Limiter.UNKNOWN, Limiter.BANDWIDTH, Limiter.STARVED]


# --- what is known and what is not ------------------------------------------------------------------------------------------------


def test_what_dcgm_exporter_repeats_between_its_collections_is_slow() -> None:
    result = run(decoding(2), replace(KNOWN, device=DeviceSample(5.0, 1, gpm_ratio=0.6, dcgm_ratio=0.5)))[1]
    assert result.quality["bandwidth_ceiling_ratio_dcgm"] is Quality.SLOW
    assert "bandwidth_ceiling_ratio_gpm" not in result.quality


def test_a_model_that_is_not_known_is_the_reason_of_what_needs_it() -> None:
    """Measured bandwidth does not, and is evidence enough."""
    device = DeviceSample(5.0, 1, gpm_ratio=0.6, memory_used_bytes=70e9)
    result = run(decoding(2), replace(KNOWN, models={}, device=device))[1]
    for signal in (
        "bandwidth_ceiling_ratio_model",
        "compute_ceiling_ratio",
        "gpu_memory_bytes_estimate",
        "phase_reference_seconds_per_token",
    ):
        assert result.signals[signal] is Absence.MODEL_UNKNOWN
    assert result.engines[0].roofline.ratio == {"gpm": 0.6}
    assert result.verdict.state is Limiter.BANDWIDTH


def test_an_input_that_is_missing_is_named_by_its_own_reason() -> None:
    bare = [replace(one, prefill_tokens_total=None) for one in decoding(2) if isinstance(one, EngineSnapshot)]
    result = run(list(bare))[1]
    assert result.signals["prefill_tokens_total"] is Absence.NOT_EXPORTED
    assert result.signals["bandwidth_ceiling_ratio_model"] is Absence.NOT_EXPORTED


def test_a_figure_is_no_better_than_what_it_is_made_from() -> None:
    snapshots = [
        Snapshot((one,), "vllm", 0.0, tick * INTERVAL, quality={"prefill_tokens_total": Quality.APPROXIMATE})
        for tick, one in enumerate(decoding(2))
        if isinstance(one, EngineSnapshot)
    ]
    result = derive(Window(tuple(snapshots)), KNOWN, None)
    assert result.quality["compute_ceiling_ratio"] is Quality.APPROXIMATE


def test_what_is_suspect_is_marked_with_its_cause_and_does_not_decide() -> None:
    """Nine times what an H100 can do; a hundred times would be implausible."""
    fast = [engine(decoded=400_000.0 * tick, steps=6_250.0 * tick, **held(1000, 64)) for tick in range(2)]
    result = run(list(fast))[1]
    for signal in ("bandwidth_ceiling_ratio_model", "decode_ceiling_ratio", "compute_ceiling_ratio"):
        assert result.quality[signal] is Quality.SUSPECT
        assert result.causes[signal] is Cause.INPUTS
    assert not {"bandwidth", "compute", "decode_slowdown"} & set(result.verdict.evidence)
    assert result.verdict.state is Limiter.UNKNOWN


def test_a_measured_source_decides_where_the_worked_out_one_is_suspect() -> None:
    fast = [engine(decoded=3_200_000.0 * tick, steps=50_000.0 * tick, **held(1000, 64)) for tick in range(2)]
    result = run(list(fast), replace(KNOWN, device=DeviceSample(5.0, 1, gpm_ratio=0.6)))[1]
    assert result.verdict.state is Limiter.BANDWIDTH
    assert "limiter" not in result.quality


def test_memory_of_one_of_two_engines_is_its_share() -> None:
    device = DeviceSample(5.0, 2, memory_used_bytes=120e9)
    pair = [(engine(**held(1000, 64)), engine(engine="1", **held(1000, 64)))] * 2
    result = run(list(pair), replace(KNOWN, device=device))[1]
    for one in result.engines:
        assert sum(one.gpu_memory_bytes.values()) == pytest.approx(60e9)


def test_an_encoder_has_prefill_and_reasons() -> None:
    settings = replace(KNOWN, models={"m": flat(1e9, form=shape(encoder=True))})
    readings = [engine(prompts=10.0 * tick, prefill=5000.0 * tick, steps=10.0 * tick) for tick in range(3)]
    result = run(list(readings), settings)[-1]
    (one,) = result.engines
    assert one.busy == BusySeconds(prefill=10.0)
    assert one.phase_reference_seconds_per_token.keys() == {"prefill"}
    assert one.roofline.compute_ratio is not None
    assert result.signals["decode_ceiling_tokens_per_second"] is Absence.NO_DECODE
    assert result.verdict.state is Limiter.OVERHEAD


# --- a real run -----------------------------------------------------------------------------------------------------------------------


def test_a_recorded_run_from_its_first_page_to_its_last() -> None:
    """vLLM on CPU, taken for an H100: no figure above 1, busy time as long as requests ran, one verdict for each kind of load."""
    run_ = recording("vllm-0.32-mfu")
    model = served(geometry(json.loads(Path(demo_model_config()).read_text())))
    settings = DeriveSettings(hardware=HARDWARE, models={"tiny-llama": replace(model, estimate_sound=True)})
    window, previous, states, seconds = None, None, set(), 0.0
    for number, page in run_.pages.items():
        snapshot = snapshot_of(page.decode(), at=run_.timestamps[number])
        before = window
        window = advance_window(window, snapshot, Spans(10.0))
        result = derive(window, settings, previous)
        (one,) = result.engines
        if previous is not None and before is not None:
            earlier, now = previous.engines[0].busy, one.busy
            moved = (
                now.prefill
                + now.decode
                + now.pending_seconds
                - earlier.prefill
                - earlier.decode
                - earlier.pending_seconds
            )
            tick = snapshot.monotonic_seconds - before.later.monotonic_seconds
            assert moved == pytest.approx(0) or moved == pytest.approx(tick)
            seconds += moved
        assert not result.causes
        states.add(result.verdict.state)
        previous = result
    assert previous is not None
    total = busy_of(previous)
    assert total.prefill + total.decode + total.pending_seconds == pytest.approx(seconds)
    assert total.decode > total.prefill > 0
    assert {Limiter.STARVED, Limiter.OVERHEAD, Limiter.KV_CAPACITY} <= states
    assert states <= {Limiter.UNKNOWN, Limiter.STARVED, Limiter.OVERHEAD, Limiter.KV_CAPACITY}


def test_data_parallel_engines_share_the_gpus_and_the_verdict() -> None:
    run_ = recording("vllm-0.32-dp2")
    model = served(LLAMA_8B)
    settings = DeriveSettings(hardware=Hardware(H100, Parallel(1, 1, 2, 2)), models={"tiny-llama": model})
    window = None
    for number in (8, 12, 16):
        window = advance_window(
            window, snapshot_of(run_.pages[number].decode(), at=run_.timestamps[number]), Spans(60.0)
        )
    assert window is not None
    result = derive(window, settings, None)
    ranks = [one for one in result.engines if one.engine in ("0", "1")]
    assert [one.roofline.bandwidth_ceiling for one in ranks] == [3.35e12, 3.35e12]
    assert all(one.roofline.ratio["model"] > 0 for one in ranks)
    (nobody,) = [one for one in result.engines if one.engine == ""]
    assert nobody.roofline.bandwidth_ceiling is None
    assert result.verdict.evidence["busy"] > 0.5
