"""What a host without NVML is told: what still works, what does not, what to set."""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.render.sentences import explain_without_nvml
from tests.support.builders import views
from tests.support.builders.target_readings import change_reading

ABSENT = views.gpus(reason=FailureReason.NO_LIBRARY, detail="no library")


def known(name: str, gpus: TargetGpus | None = None) -> TargetReading:
    return change_reading(views.reading(name, [views.engine("m")]), total=gpus)


def test_where_nvml_works_or_only_fails_for_now_nothing_is_said() -> None:
    assert explain_without_nvml(views.gpus(views.gpu(0)), [known("a")]) == ()
    for reason in (
        FailureReason.DRIVER_MISMATCH,
        FailureReason.GPU_LOST,
        FailureReason.NVML,
        FailureReason.NO_PERMISSION,
    ):
        assert explain_without_nvml(views.gpus(reason=reason), [known("a")]) == ()


@pytest.mark.parametrize(
    "readings",
    [ABSENT, views.gpus(reason=FailureReason.NO_DRIVER), None],
    ids=["no library", "no driver", "switched off"],
)
def test_what_works_what_does_not_and_what_to_set(readings: object) -> None:
    works, needs, lacks = explain_without_nvml(readings, [known("a"), known("b")])
    assert "everything that the engines' pages say is still here: load, latency" in works
    assert needs.startswith(
        "For ceilings, rooflines with the bandwidth that the model must move, fit, the limiter and cost set gpu_model"
    )
    assert needs.endswith("gpu_model and gpu_count of a, b.")
    assert "power, energy, temperature" in lacks
    assert "device_exporter.url" in lacks


def test_targets_that_say_what_they_run_on_are_not_asked_again() -> None:
    told = known("a", TargetGpus(8, "Instinct MI300X"))
    assert "nothing is missing" in explain_without_nvml(ABSENT, [told])[1]
    # a number without a kind, and a kind without a number
    assert "of b, c." in explain_without_nvml(ABSENT, [told, known("b", TargetGpus(8)), known("c")])[1]
    many = explain_without_nvml(ABSENT, [known(f"t{number}") for number in range(9)])[1]
    assert many.endswith("of t0, t1, t2 and 6 more.")


def test_a_front_end_and_a_server_without_a_gpu_need_none() -> None:
    front = change_reading(known("front"), page_role=Role.FRONTEND)
    without = replace(known("cpu"), target=replace(known("cpu").target, gpus=()))
    assert explain_without_nvml(ABSENT, [front, without])[1].startswith("For ceilings")
    assert "front" not in explain_without_nvml(ABSENT, [front, without])[1]
    assert explain_without_nvml(ABSENT, [])[1].endswith("a target says what its GPUs are: gpu_model and gpu_count.")
