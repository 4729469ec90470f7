"""GPM: ratios over the time between two passes, and every way in which there are none."""

from __future__ import annotations

import pytest

RATIOS = ("dram_bandwidth_ratio", "sm_activity_ratio", "tensor_activity_ratio")


def ratios(gpu):
    return tuple(getattr(gpu, name) for name in RATIOS)


def test_ratios_need_two_passes_and_cover_the_time_between(rig):
    (first,) = rig.read()
    assert ratios(first) == (None, None, None)
    assert {first.absent[name] for name in RATIOS} == {"no_window"}
    (second,) = rig.read(after=5.0)
    assert ratios(second) == pytest.approx((0.625, 0.88, 0.22))
    assert second.gpm_window_seconds == pytest.approx(5.0)
    assert not set(RATIOS) & set(second.absent)


def test_windows_follow_one_another_with_one_sample_a_pass(rig):
    for _ in range(6):
        rig.read()
    assert rig.stub.calls("nvmlGpmSampleGet") == 6
    assert rig.stub.calls("nvmlGpmMetricsGet") == 5
    assert rig.stub.live_samples == 2


def test_a_pass_within_100_ms_serves_the_previous_result(rig):
    rig.read()
    rig.read()
    rig.state.update("gpu0", {"gpm:10": 10.0})
    (soon,) = rig.read(after=0.05)
    assert (soon.dram_bandwidth_ratio, soon.gpm_window_seconds) == (pytest.approx(0.625), pytest.approx(5.0))
    (later,) = rig.read(after=0.07)  # 120 ms after the last sample
    assert (later.dram_bandwidth_ratio, later.gpm_window_seconds) == (pytest.approx(0.1), pytest.approx(0.12))


def test_a_gap_beyond_ten_minutes_starts_anew(rig):
    rig.read()
    (late,) = rig.read(after=601.0)
    assert ratios(late) == (None, None, None)
    assert late.absent["dram_bandwidth_ratio"] == "no_window"
    (next_one,) = rig.read(after=5.0)
    assert next_one.gpm_window_seconds == pytest.approx(5.0)


def test_a_ratio_above_1_is_not_clamped_and_nan_is_absent(rig):
    rig.state.update("gpu0", {"gpm:10": 104.0, "gpm:2": "nan"})
    rig.read()
    (gpu,) = rig.read()
    assert gpu.dram_bandwidth_ratio == pytest.approx(1.04)
    assert (gpu.sm_activity_ratio, gpu.absent["sm_activity_ratio"]) == (None, "no_data")
    assert gpu.tensor_activity_ratio == pytest.approx(0.22)


def test_a_metric_that_the_card_lacks_does_not_take_the_others_along(rig):
    rig.state.drop("gpu0", "gpm:5")
    rig.read()
    (gpu,) = rig.read()
    assert (gpu.tensor_activity_ratio, gpu.absent["tensor_activity_ratio"]) == (None, "not_supported")
    assert gpu.dram_bandwidth_ratio == pytest.approx(0.625)


def test_a_card_before_hopper_is_never_sampled(rig):
    rig.state.set("gpu0", gpm=0)  # its driver exports the symbols nevertheless
    rig.read()
    (gpu,) = rig.read()
    assert {gpu.absent[name] for name in RATIOS} == {"not_supported"}
    assert rig.stub.calls("nvmlGpmSampleAlloc") == rig.stub.calls("nvmlGpmSampleGet") == 0


@pytest.mark.parametrize(("code", "absent"), [(4, "no_permission"), (13, "not_supported"), (999, "error")])
@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"])
def test_a_refusal_leaves_the_other_readings_alone(rig, function, code, absent):
    rig.state.fail("gpu0", function, code) if function != "nvmlGpmSampleAlloc" else rig.state.fail(
        "sys", function, code
    )
    rig.read()
    (gpu,) = rig.read()
    assert {gpu.absent[name] for name in RATIOS} == {absent}
    assert gpu.power_watts == pytest.approx(612.345)


def test_a_failed_sample_widens_the_next_window(rig):
    rig.read()
    rig.state.fail("gpu0", "nvmlGpmSampleGet", 999)
    assert rig.read()[0].absent["dram_bandwidth_ratio"] == "error"
    rig.state.heal("gpu0")
    (gpu,) = rig.read()
    assert (gpu.dram_bandwidth_ratio, gpu.gpm_window_seconds) == (pytest.approx(0.625), pytest.approx(10.0))


def test_a_sample_that_is_not_supported_is_not_taken_again(rig):
    rig.state.fail("gpu0", "nvmlGpmSampleGet", 3)
    for _ in range(4):
        rig.read()
    assert rig.stub.calls("nvmlGpmSampleGet") == 1


def test_switched_off_no_gpm_function_is_called(rig):
    rig.open(gpm=False)
    rig.read()
    (gpu,) = rig.read()
    assert {gpu.absent[name] for name in RATIOS} == {"disabled"}
    functions = ("QueryDeviceSupport", "SampleAlloc", "SampleGet", "MigSampleGet", "MetricsGet", "SampleFree")
    assert {name: rig.stub.calls(f"nvmlGpm{name}") for name in functions} == dict.fromkeys(functions, 0)


def test_samples_are_freed_before_shutdown(rig):
    rig.read()
    rig.read()
    assert rig.stub.live_samples == 2
    rig.source.close()
    # the stub books a sample that outlives nvmlShutdown, or is freed after it, as misuse
    assert (rig.stub.live_samples, rig.stub.init_balance, rig.stub.misuse) == (0, 0, 0)
