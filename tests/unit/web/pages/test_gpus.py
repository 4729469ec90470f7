"""The landing page: GPUs, and text from outside."""

import re

from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.target import Role
from tests.support.builders import views
from tests.support.builders.landingpage import landing_bytes, page_of
from tests.support.builders.target_readings import change_reading

# --- GPUs ---------------------------------------------------------------------------------------------------------


def test_gpus_with_units_and_what_slows_them():
    page = page_of(views.fleet())
    assert page.row("1 NVIDIA H100 80GB HBM3 GPU-1b1d5c9e chat-0") == [
        "1 NVIDIA H100 80GB HBM3 GPU-1b1d5c9e chat-0", "94 %", "58.4 %", "31 %", "698 of 700 W", "71.8 GiB of 79.6 GiB",
        "61 °C memory 74 °C", "power cap heat (hardware)",
    ]  # fmt: skip
    assert page.row("0 NVIDIA H100 80GB HBM3 GPU-0b1d5c9e chat-0")[-1] == "nothing"
    assert "driver 570.86.15 read 1 s ago" in page.card("GPUs")


def test_readings_that_a_gpu_does_not_have_are_dashes():
    bare = views.gpu(
        0, busy_ratio=None, dram_bandwidth_ratio=None, tensor_activity_ratio=None, power_watts=None, temperature_celsius={},
        memory_used_bytes=None, slowdown=None, absent={"power_watts": "not_supported"},
    )  # fmt: skip
    page = page_of(views.view(gpu_readings=views.gpus(bare)))
    assert page.row("0 NVIDIA H100 80GB HBM3 GPU-0b1d5c9e")[1:] == ["–"] * 7


def test_without_nvml_the_page_says_what_still_works_and_what_to_set():
    absent = views.gpus(reason=FailureReason.NO_LIBRARY, detail="libnvidia-ml.so.1 is not found")
    said = page_of(views.view(views.reading("chat-0", [views.engine("m")]), gpu_readings=absent)).card("GPUs")
    assert "NVML: libnvidia-ml.so.1 is not found" in said
    assert "everything that the engines' pages say is still here" in said
    assert "set gpu_model and gpu_count of chat-0." in said
    assert "device_exporter.url" in said
    assert "is still here" not in page_of(views.view(gpu_readings=views.gpus(views.gpu(0)))).text


def test_a_device_exporter_is_named_where_it_fails():
    failed = replace(views.gpus(reason=FailureReason.REFUSED, detail="connection refused"), source="device_exporter")
    page = page_of(views.view(gpu_readings=failed))
    assert "device exporter (device_exporter): connection refused" in page.card("GPUs")
    assert "device exporter failed" in page.text
    assert "NVML" not in page.card("GPUs")


def test_a_lost_gpu():
    page = page_of(views.view(gpu_readings=views.gpus(views.gpu(0, lost=True))))
    assert page.row("0 NVIDIA H100 80GB HBM3 GPU-0b1d5c9e")[1:] == ["lost", *["–"] * 6]
    assert "1 GPU lost" in page.text


def test_nvml_that_fails_says_what_to_do():
    failed = views.gpus(reason=FailureReason.NO_LIBRARY, detail="NVML Shared Library Not Found")
    card = page_of(views.view(gpu_readings=failed)).card("GPUs")
    assert "NVML: NVML Shared Library Not Found libnvidia-ml.so.1 is not there" in card


def test_no_gpu_and_gpus_off():
    assert "no GPU is visible" in page_of(views.view(gpu_readings=views.gpus())).card("GPUs")
    assert "gpu.enabled is off" in page_of(views.view()).card("GPUs")


def test_simulated_gpus_are_named_so():
    assert "simulated" in page_of(views.view(gpu_readings=replace(views.gpus(views.gpu(0)), source="simulated"))).card(
        "GPUs"
    )


def test_a_container_that_sees_some_of_the_nodes_gpus_says_so():
    seen = views.gpus(views.gpu(0))
    assert "seen by this container: 1 of the node's 8 GPUs" in page_of(views.view(gpu_readings=seen, node_gpus=8)).card(
        "GPUs"
    )
    for all_of_them in (1, None):
        assert "seen by this container" not in page_of(views.view(gpu_readings=seen, node_gpus=all_of_them)).text


def test_a_kubelet_that_does_not_answer_says_what_to_do():
    failed = Attempt(Stage.GPU, FailureReason.NO_PERMISSION, "<kubelet.sock>: run it with UID 0", views.NOW_UNIX, 0.0)
    card = page_of(views.view(gpu_readings=views.gpus(views.gpu(0)), kubelet=failed)).card("GPUs")
    assert "kubelet: <kubelet.sock>: run it with UID 0 The exporter may not read it" in card


def test_a_target_whose_gpus_are_not_known_says_why():
    page = page_of(views.fleet())
    assert "GPUs not known: the target's URL does not name this host" in page.card("moe-dp8")
    (parallel,) = (one for one in views.fleet().targets if one.target.name == "moe-dp8")
    for known in (
        change_reading(parallel, total=TargetGpus(8, "H200 SXM 141GB")),
        change_reading(parallel, page_role=Role.FRONTEND),
    ):
        assert "GPUs not known" not in page_of(views.view(known)).text


# --- what comes from outside --------------------------------------------------------------------------------------


def test_text_from_outside_is_text_and_bounded():
    evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    snapshot, derived = views.engine("m")
    engines = [
        (replace(snapshot, model_name=f"{evil}{n}"), replace(derived, model_name=f"{evil}{n}")) for n in range(2)
    ]
    failed = views.failure(FailureReason.STATUS, evil * 1000, 1.0)
    reading = views.reading(
        evil, engines, metrics_url=f"http://x/{evil}", runtime=evil, model_name=evil, problem=evil * 1000,
        last=failed, recent_failures=(failed, failed), uuids=(evil,), origin=evil,
    )  # fmt: skip
    bad_gpu = views.gpu(0)
    bad_gpu = replace(bad_gpu, identity=replace(bad_gpu.identity, name=evil, uuid=evil), slowdown={evil: True})
    view = views.view(
        reading, gpu_readings=replace(views.gpus(bad_gpu), driver_version=evil), discovery_problems=(evil,)
    )
    page = page_of(view, version=evil, telemetry_path=f"/{evil}", links=((evil, evil),))
    assert not page.tags & {"script", "img"}
    assert len(page.text) < 20_000


def test_the_page_loads_nothing_and_runs_nothing():
    html = landing_bytes(views.fleet()).decode()
    assert not re.search(r'\b(src|srcset|action)=|<script|<iframe|@import|url\(|<link [^>]*href="http', html)
    assert 'http-equiv="refresh" content="10"' in html


def test_text_that_is_no_unicode_does_not_break_the_page():
    assert "a\N{REPLACEMENT CHARACTER}" in page_of(views.view(views.reading("a\udcff", [views.engine("m")]))).text


def test_figures_that_are_no_numbers_are_dashes():
    nan = float("nan")
    one = views.engine("m", batch_utilization_ratio=nan, phase_tokens_per_second={"prefill": nan})
    card = page_of(views.view(views.reading("a", [one]))).card("a")
    assert "Prefill –" in card
    assert "nan" not in card
