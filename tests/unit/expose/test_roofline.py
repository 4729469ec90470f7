"""The roofline's series: every one of them with its labels, and none where there is nothing."""

from __future__ import annotations

import pytest
from prometheus_client.samples import Sample

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.model.derived import EngineDerived, Limiter
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from tests.support.builders.limited import DECODING, LLAMA, reading
from tests.support.builders.target_readings import change_reading
from tests.support.models.roofs import flat, served, shape
from tests.support.models.shapes import shape_of

DECLARED = {metric.full_name.removesuffix("_total").removesuffix("_info"): metric for metric in names.ROOFLINE}
QWEN = served(shape_of("Qwen3-30B-A3B"))


def series(target: TargetReading) -> dict[str, list[Sample]]:
    """Samples of the roofline's chapters by the catalogue's name."""
    families = Families()
    serving.add_serving(families, target)
    return {family.name: family.samples for family in families if family.name in DECLARED}


def values(target: TargetReading, metric: str, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in series(target)[f"llm_serving_{metric}"]}


def test_each_series_has_the_labels_that_the_catalogue_declares() -> None:
    found = series(reading(DECODING, model=QWEN))
    for name, samples in found.items():
        for sample in samples:
            assert set(sample.labels) == {*DECLARED[name].labels, *DECLARED[name].identity_labels}, name
    # what a GPU could do stands with the GPUs, what sequences share has a test below; 83 steps a second of up to 57 GB are suspect
    assert set(DECLARED) - set(found) == {
        "llm_serving_gpu_peak_flops_per_second",
        "llm_serving_decode_ceiling_upper_tokens_per_second",
    }


def test_the_upper_ceiling_is_there_where_sequences_share_some_of_their_kv() -> None:
    target = reading({**DECODING, "cached": 1000.0, "finished": 64.0, "prompt": 4000.0, "output": 10.0})
    (expected,) = series(target)["llm_serving_decode_ceiling_tokens_per_second"]
    (upper,) = series(target)["llm_serving_decode_ceiling_upper_tokens_per_second"]
    assert upper.value > expected.value


def test_sources_stand_side_by_side() -> None:
    told = values(reading(DECODING), "bandwidth_ceiling_ratio", "source")
    assert told["gpm"] == 0.63
    assert told["model"] == pytest.approx(0.4365, abs=1e-4)
    achieved = values(reading(DECODING), "achieved_bandwidth_bytes_per_second", "source")
    assert achieved["gpm"] == pytest.approx(0.63 * 3.35e12)
    assert values(reading(DECODING), "bandwidth_ceiling_ratio_range", "bound").keys() == {"lower", "upper"}


def test_parts_and_bounds_and_phases() -> None:
    target = reading(DECODING, model=QWEN)
    assert values(target, "step_bytes_mean", "part").keys() == {
        "weights", "kv_read", "kv_written", "activations",
    }  # fmt: skip
    for metric in ("experts_touched_mean", "decode_context_tokens"):
        bounds = values(target, metric, "bound")
        assert bounds["lower"] <= bounds["expected"] <= bounds["upper"]
    assert values(target, "phase_busy_seconds", "phase") == pytest.approx(
        {"prefill": 60 * values(target, "phase_busy_ratio", "phase")["prefill"],
         "decode": 60 * values(target, "phase_busy_ratio", "phase")["decode"], "unattributed": 0.0}
    )  # fmt: skip
    assert values(target, "gpu_memory_bytes_estimate", "part").keys() >= {"weights", "kv"}


def test_steps_say_how_they_were_obtained() -> None:
    assert values(reading(DECODING), "engine_steps_per_second", "source") == {"counted": 5000 / 60}
    uncounted = reading({**{key: value for key, value in DECODING.items() if key != "steps"}, "steps": None})
    assert values(uncounted, "engine_steps_per_second", "source").keys() == {"inter_token_latency"}


def test_the_limiter_is_a_state_set_with_its_evidence() -> None:
    states = values(reading(DECODING), "limiter", "state")
    assert states == {**dict.fromkeys((state.value for state in Limiter), 0.0), "bandwidth": 1.0}
    evidence = values(reading(DECODING), "limiter_evidence", "evidence")
    assert evidence["bandwidth"] == 0.63
    assert evidence["busy"] == 1.0


def test_what_is_suspect_has_its_cause() -> None:
    impossible = reading({**DECODING, "decoded": 1.6e6, "steps": 25_000.0})
    found = {
        (sample.labels["signal"], sample.labels["cause"]) for sample in series(impossible)["llm_serving_signal_suspect"]
    }
    assert ("bandwidth_ceiling_ratio_model", "inputs") in found
    assert values(impossible, "bandwidth_ceiling_ratio", "source")["model"] > 1


def test_an_encoder_shows_no_decode_and_no_context_of_0() -> None:
    encoder = reading(
        {"prompts": 300.0, "prefill": 60_000.0, "steps": 300.0}, model=flat(1e9, form=shape(encoder=True))
    )
    found = series(encoder)
    for metric in (
        names.DECODE_CEILING,
        names.DECODE_RATIO,
        names.BATCH_RIDGE,
        names.DECODE_CONTEXT,
        names.TOKENS_PER_STEP,
        names.EXPERTS,
    ):
        assert metric.full_name not in found
    assert found[names.COMPUTE_RATIO.full_name][0].value > 0


def test_an_engine_of_which_nothing_is_known_shows_nothing() -> None:
    assert EngineDerived("m", "0").series == {}


def test_what_is_known_about_the_model() -> None:
    target = reading(DECODING, model=QWEN)
    assert values(target, "model_parameters", "kind") == {
        "total": 30_532_122_624, "active": 3_353_032_704, "decode_read": 3_041_867_776,
    }  # fmt: skip
    (kv,) = series(target)["llm_serving_model_kv_cache_bytes_per_token"]
    assert kv.value == 98_304
    (info,) = series(target)["llm_serving_model"]
    assert (info.labels["weight_format"], info.labels["family"]) == ("bf16", "qwen3_moe")
    assert values(target, "model_weight_bytes", "kind").keys() == {"computed"}
    indexed = change_reading(target, models={"m": replace(QWEN, checkpoint_bytes=61_064_245_248)})
    assert values(indexed, "model_weight_bytes", "kind")["checkpoint"] == 61_064_245_248


def test_a_long_origin_is_cut() -> None:
    long = change_reading(reading(DECODING), models={"m": replace(LLAMA, origin="/very" * 100)})
    (info,) = series(long)["llm_serving_model"]
    assert len(info.labels["origin"]) == serving.LONGEST_ORIGIN
