"""Servers without metrics (Ollama, DeepSpeed-MII, any other): up or down, their GPUs, and of everything else the reason, never a 0."""

import json
from pathlib import Path

import pytest

from llm_serving_exporter.commands.once import as_document_of, as_table
from llm_serving_exporter.engines.hooks.llamacpp import read_ollama_models, read_ollama_page
from llm_serving_exporter.model.derived import Limiter
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import GAUGE_FIELDS, Absence, ServerFacts
from tests.nvml_stub.stub import StubState, stub_environment
from tests.support.rows import check_rows
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.replica import Replica, Routes, readings

# what is taken from the GPUs alone, whatever runs on them
OF_GPUS = {
    "bandwidth_ceiling_bytes_per_second": Absence.GPUS_UNKNOWN,
    "bandwidth_ceiling_ratio_gpm": Absence.GPUS_UNKNOWN,
    "bandwidth_ceiling_ratio_dcgm": Absence.GPUS_UNKNOWN,
}
VERSION = '{"version":"0.33.0"}'


def loaded(*models: tuple[str, int, int, str]) -> str:
    """`/api/ps` of Ollama 0.33 (facts runtimes-others 14): name, bytes in VRAM, context, quantisation."""
    entries = [
        {
            "name": name, "model": name, "size": vram + 1000, "digest": "0" * 12, "size_vram": vram, "context_length": context,
            "details": {"family": "llama", "parameter_size": "8B", "quantization_level": level}, "expires_at": "2026-11-20T00:00:00Z",
        }
        for name, vram, context, level in models
    ]  # fmt: skip
    return json.dumps({"models": entries})


LLAMA, PHI = ("llama3:8b", 5_000_000_000, 4096, "Q4_K_M"), ("phi4:14b", 9_000_000_000, 16384, "Q8_0")


def last(routes: Routes, **target: object) -> TargetReading:
    return readings([routes] * 3, **target)[-1]


def unexplained(one: TargetReading) -> dict[str, Absence]:
    """Signals with another reason than that the runtime says nothing."""
    return {signal: why for signal, why in one.page.derived.signals.items() if why is not Absence.NO_METRICS}


@check_rows(
    ("runtime", "routes"),
    [
        ("gpu-only", {"/health": "ok"}),
        ("gpu-only", {"/health": '{"status":"fine"}'}),
        ("gpu-only", {"/health": (200, "text/html", b"")}),
        ("deepspeed-mii", {"/health": "{}"}),
        ("deepspeed-mii", {"/healthz": "{}"}),  # its REST gateway
    ],
)
def test_any_answer_is_up_and_nothing_is_said_of_the_work(runtime: str, routes: Routes) -> None:
    one = last(routes, runtime=runtime)
    assert (one.page.up, one.server.state, one.server.runtime) == (True, State.READY, runtime)
    assert unexplained(one) == OF_GPUS
    assert len(one.page.derived.signals) > 60
    assert {
        "limiter", "slo_itl", "slo_errors", "batch_utilization_ratio", "latency_ttft", "compute_ceiling_ratio",
    } <= set(one.page.derived.signals)  # fmt: skip
    assert (one.page.derived.verdict.state, one.page.derived.verdict.evidence) == (Limiter.UNKNOWN, {})
    assert "publishes nothing about its work" in as_table(one, everything=True)


@pytest.mark.parametrize("runtime", ["gpu-only", "deepspeed-mii", "ollama"])
def test_no_answer_is_down_and_an_error_is_not_up(runtime: str) -> None:
    for routes in ({}, {"/health": (500, "text/plain", b""), "/healthz": (500, "text/plain", b"")}):
        one = last(routes, runtime=runtime)
        assert one.page.up is False
        assert one.page.snapshot is None


def test_another_health_path_is_the_setting() -> None:
    one = last({"/status/live": "ok"}, runtime="gpu-only", metrics_path="/status/live")
    assert one.page.up
    assert one.server.metrics_url.endswith("/status/live")


def test_they_are_never_guessed() -> None:
    """Without the setting a health page is nobody's."""
    one = last({"/health": "ok", "/api/ps": loaded(LLAMA)})
    assert one.page.up is False
    assert one.server.runtime == ""


def test_loaded_models_show_their_memory_and_context() -> None:
    one = last({"/api/ps": loaded(LLAMA, PHI), "/api/version": VERSION}, runtime="ollama")
    assert [
        (e.model_name, e.engine, e.model_gpu_memory_bytes, e.context_limit_tokens) for e in one.page.snapshot.engines
    ] == [("llama3:8b", "0", 5e9, 4096), ("phi4:14b", "0", 9e9, 16384)]
    assert one.server.facts.version == "0.33.0"
    assert one.server.facts.quantization is None  # two formats are no format
    available = {"model_gpu_memory_bytes", "context_limit_tokens"}
    assert unexplained(one) == dict.fromkeys(available, Absence.AVAILABLE)
    assert one.page.derived.verdict.state is Limiter.UNKNOWN
    table = as_table(one)
    assert "llama3:8b" in table
    assert "4.66 GiB" in table
    for engine in as_document_of(one)["engines"]:
        assert {name for name in GAUGE_FIELDS if engine[name] is not None} == available


def test_one_format_of_all_is_the_servers() -> None:
    one = last({"/api/ps": loaded(LLAMA), "/api/version": VERSION}, runtime="ollama")
    assert one.server.facts.quantization == "Q4_K_M"


def test_nothing_loaded_is_up_and_idle() -> None:
    one = last({"/api/ps": '{"models":[]}', "/api/version": VERSION}, runtime="ollama")
    assert (one.page.up, one.server.state) == (True, State.READY)
    assert [(engine.model_name, engine.engine) for engine in one.page.snapshot.engines] == [("", "0")]
    assert unexplained(one) == {**OF_GPUS, "model_gpu_memory_bytes": Absence.IDLE, "context_limit_tokens": Absence.IDLE}


def test_a_model_that_is_loaded_and_unloaded_is_no_restart() -> None:
    empty, full = {"/api/ps": '{"models":[]}'}, {"/api/ps": loaded(LLAMA)}
    found = readings([empty, full, full, empty, empty], runtime="ollama")
    assert [one.page.up for one in found] == [True] * 5
    assert found[-1].server.restarts_total == 0
    assert [one.page.snapshot.engines[0].model_name for one in found if one.page.snapshot is not None] == [
        "", "llama3:8b", "llama3:8b", "", "",
    ]  # fmt: skip
    # what is asked beside a page is known at the next
    assert [one.server.facts.quantization for one in found] == [None, None, "Q4_K_M", "Q4_K_M", None]


@check_rows("body", ['{"error":"no"}', "[]", '{"models":5}', "5"])
def test_other_json_is_not_ollamas(body: str) -> None:
    one = last({"/api/ps": (200, "application/json", body.encode())}, runtime="ollama")
    assert one.page.up is False
    assert one.page.last.reason is FailureReason.UNKNOWN_RUNTIME
    assert "other JSON" in one.page.last.detail


@pytest.mark.parametrize(
    "answer",
    [
        {"models": [None, 5, {}, {"name": 7}]},
        {"models": [{"name": "m", "size_vram": "much", "context_length": True, "details": 3}]},
    ],
)
def test_odd_entries_give_no_figures(answer: object) -> None:
    assert [key.name for key, _ in read_ollama_page(answer)] == ["ollama:loaded_models"]
    assert read_ollama_models(answer, ServerFacts()).quantization is None


def test_a_model_kept_in_main_memory_takes_none_of_the_gpu() -> None:
    one = last({"/api/ps": loaded(("m", 0, 2048, "Q4_0"))}, runtime="ollama")
    assert one.page.snapshot.engines[0].model_gpu_memory_bytes == 0  # what Ollama says, not what nobody knows


@pytest.mark.process
def test_the_daemon_shows_their_gpus_and_no_figure_of_work(nvml_library: Path, tmp_path: Path) -> None:
    state = StubState(tmp_path / "state", gpus=2)
    config = tmp_path / "exporter.yml"
    with (
        Replica({"/health": "ok"}) as server,
        Replica({"/api/ps": loaded(LLAMA, PHI), "/api/version": VERSION}) as ollama,
    ):
        config.write_text(
            f"targets: [{{url: '{server.url}', name: any, runtime: gpu-only, gpus: [0]}}, "
            f"{{url: '{ollama.url}', name: home, runtime: ollama, gpus: [1]}}]"
        )
        arguments = ("--config.file", str(config), "--scrape.interval", "200ms")
        with Exporter(*arguments, env=stub_environment(nvml_library, state.path), gpus=True) as exporter:
            exporter.until(
                lambda page: (
                    len(page.series("gpu_target_info")) == 2
                    and bool(page.series("bandwidth_ceiling_ratio", target="any"))
                ),
                "GPUs of both",
            )
            page = exporter.after_ticks(6)
            for target, gpu in (("any", 0), ("home", 1)):
                assert page.value("target_up", target=target) == 1
                assert page.value("gpu_target_info", target=target, gpu=state.uuid(gpu)) == 1
                assert page.value("gpu_power_watts", gpu=state.uuid(gpu)) > 0
                assert page.value("limiter", target=target, state="unknown") == 1
                assert page.value("signal_available", target=target, signal="decode_tokens_total") == 0
            assert page.value("target_info", target="home", runtime="ollama", version="0.33.0") == 1
            # the memory traffic of the GPU that the target has to itself is its own
            assert page.value("bandwidth_ceiling_ratio", target="any", source="gpm") == pytest.approx(0.625)
            assert page.total("model_gpu_memory_bytes", target="home") == 14e9
            published = {name.removeprefix("llm_serving_") for name, _ in page.samples}
            work = (
                "_tokens_total", "requests_", "phase_", "window_latency", "slo_", "time_to_", "kv_cache", "batch_",
                "decode_",
            )  # fmt: skip
            assert not [name for name in published if any(part in name for part in work)]
            landing = exporter.get("/").text
            assert "phi4:14b" in landing
            assert "publishes nothing about its work" in landing
