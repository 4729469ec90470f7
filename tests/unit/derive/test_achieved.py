"""Achieved bandwidth by source: sums by hand, and the rules of facts model-math E.5."""

import pytest

from llm_serving_exporter.derive.bandwidth import (
    choose_ratio,
    differ,
    explain_ratio,
    measure_bandwidth,
    read_runtime_estimate,
)
from llm_serving_exporter.model.derived import BandwidthSource, Cause
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, ModelFacts, RecurrentLayers, Span
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import DeviceSample, EngineWindow
from tests.support.builders.windows import engine, window
from tests.support.models.roofs import GPT_OSS, H100, LLAMA_8B, flat, served, shape
from tests.support.rows import check_rows

SAMPLES = (DeviceSample(0.0, 4, gpm_ratio=0.4, dcgm_ratio=0.3), DeviceSample(5.0, 4, gpm_ratio=0.6))
SOUND = replace(served(LLAMA_8B), estimate_sound=True)


def test_measured_is_the_mean_ratio_of_the_peak_of_the_engines_gpus() -> None:
    """Two engines on four GPUs: each has two GPUs' share of what all four did."""
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, H100, 2.0) == pytest.approx(0.5 * 3.35e12 * 2)
    assert measure_bandwidth(BandwidthSource.DCGM, SAMPLES, H100, 4.0) == pytest.approx(0.3 * 3.35e12 * 4)


def test_measured_says_what_it_lacks() -> None:
    assert measure_bandwidth(BandwidthSource.GPM, (), H100, 2.0) is Absence.GPUS_UNKNOWN
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, Absence.GPUS_UNKNOWN, 2.0) is Absence.GPUS_UNKNOWN
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, GpuPeaks("?", None, ""), 2.0) is Absence.PEAK_UNKNOWN
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, H100, None) is Absence.GPUS_UNKNOWN


def estimated(total: float | None = 6e13, **more: object) -> EngineWindow:
    return window(decoded=100, steps=10, estimated_read_bytes_per_gpu=total, **more)


def test_the_engines_own_estimate_is_of_one_gpu() -> None:
    assert read_runtime_estimate(estimated(), SOUND, (0, 32), 2.0) == pytest.approx(6e13 * 2 / 60)


def test_the_estimate_says_what_it_lacks() -> None:
    assert read_runtime_estimate(estimated(None), SOUND, (0, 32), 2.0) is Absence.NOT_EXPORTED
    assert read_runtime_estimate(estimated(0.0), SOUND, (0, 32), 2.0) is Absence.NOT_CONFIGURED
    assert read_runtime_estimate(estimated(), Absence.MODEL_UNKNOWN, (0, 32), 2.0) is Absence.MODEL_UNKNOWN
    assert read_runtime_estimate(estimated(), SOUND, (0, 32), None) is Absence.GPUS_UNKNOWN
    fresh = EngineWindow((engine(estimated_read_bytes_per_gpu=1.0),), 0.0)
    assert read_runtime_estimate(fresh, SOUND, (0, 32), 2.0) is Absence.WARMING_UP


CHUNKED = shape((AttentionLayers(1, 2, 1, 0, 0, Span.CHUNKED, 8192),))
MLA = replace(LLAMA_8B, mla=True)


@check_rows(
    ("form", "version", "sound"),
    [
        (LLAMA_8B, None, True),
        (shape(GPT_OSS), (0, 29), False), (shape(GPT_OSS), (0, 30), True), (shape(GPT_OSS), None, False),
        (MLA, (0, 23), False), (MLA, (0, 24), True), (MLA, (1, 0), True),
        (CHUNKED, (0, 33), False),
        (shape(recurrent=(RecurrentLayers(1, 1, 1),)), (0, 33), False),
    ],
)  # fmt: skip
def test_the_estimate_is_shown_where_the_release_knows_the_layers(form, version, sound) -> None:
    model = replace(flat(1e9, form=form), estimate_sound=True)
    found = read_runtime_estimate(estimated(), model, version, 1.0)
    assert isinstance(found, float) is sound
    assert sound or found is Absence.NOT_SOUND


def test_the_estimate_is_not_shown_for_formats_that_it_miscounts_or_with_speculation() -> None:
    unsound: ModelFacts = replace(SOUND, estimate_sound=False)
    assert read_runtime_estimate(estimated(), unsound, (0, 32), 1.0) is Absence.NOT_SOUND
    assert (
        read_runtime_estimate(estimated(speculative_draft_tokens_total=5.0), SOUND, (0, 32), 1.0) is Absence.NOT_SOUND
    )


def test_measured_is_believed_before_worked_out_and_nothing_above_one() -> None:
    assert choose_ratio({"gpm": 0.4, "dcgm": 0.3, "model": 0.5, "runtime": 0.2}) == 0.4
    assert choose_ratio({"model": 0.5, "dcgm": 0.3}) == 0.3
    assert choose_ratio({"gpm": 1.01, "model": 0.5}) == 0.5
    assert choose_ratio({"model": 1.2, "runtime": 0.6}) is None
    assert choose_ratio({"runtime": 0.6}) is None


@check_rows(
    ("gpus", "formats", "told"),
    [(True, True, Cause.GPU_COUNT), (False, True, Cause.WEIGHT_FORMAT), (False, False, Cause.INPUTS)],
)
def test_the_likely_cause_of_an_impossible_ratio(gpus, formats, told) -> None:
    assert explain_ratio(assumed_gpus=gpus, assumed_formats=formats) is told


@check_rows(
    ("measured", "by_model", "told"),
    [
        (0.40, 0.51, True),
        (0.40, 0.49, False),
        (0.40, 0.31, False),
        (0.40, 0.29, True),
        (0.01, 0.05, False),
        (0.00, 0.20, True),
    ],
)
def test_two_sources_differ_by_a_quarter_of_what_is_measured(measured, by_model, told) -> None:
    assert differ(measured, by_model) is told
