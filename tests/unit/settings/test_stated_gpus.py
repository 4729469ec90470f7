"""What flags say of the GPUs of the servers that --target names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.cost.terms import find_price
from llm_serving_exporter.model.cost import Price, PriceBook
from tests.support.builders.configuration import load_flags, problems_of_flags
from tests.support.builders.recordings import page
from tests.support.rows import check_rows
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.replica import Replica

TWO = ("--target", "http://gpu-1:8000", "--target", "http://gpu-2:8000")


def test_each_server_of_target_has_such_gpus_at_that_price() -> None:
    config = load_flags(*TWO, "--gpu-model", "H100 SXM", "--gpu-count", "4", "--gpu-price", "2.99")
    assert [(one.gpu_model, one.gpu_count) for one in config.targets] == [("H100 SXM", 4)] * 2
    assert isinstance(config.prices, PriceBook)
    for one in config.targets:
        found = find_price(config.prices, one.name, (), "H100 SXM 80GB", 0.0)
        assert isinstance(found, Price)
        assert (found.usd_per_gpu_hour, found.rate.name) == (2.99, "on_demand")


def test_variables_say_the_same() -> None:
    environ = {
        "LLM_SERVING_EXPORTER_TARGET": "http://gpu-1:8000",
        "LLM_SERVING_EXPORTER_GPU_COUNT": "2",
        "LLM_SERVING_EXPORTER_GPU_PRICE": "1.5",
    }
    config = load_flags(environ=environ)
    assert config.targets[0].gpu_count == 2
    assert config.prices.statements[0].usd_per_gpu_hour == 1.5


def test_they_win_over_the_defaults_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("target_defaults: {gpu_count: 8, gpu_model: A100 SXM}\n")
    config = load_flags("--config.file", str(file), "--target", "http://gpu-1:8000", "--gpu-count", "2")
    assert (config.targets[0].gpu_count, config.targets[0].gpu_model) == (2, "A100 SXM")


@pytest.mark.parametrize("flag", [("--gpu-model", "H100 SXM"), ("--gpu-count", "4"), ("--gpu-price", "2.99")])
def test_without_target_there_is_nothing_they_are_about(flag: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("targets: [{url: http://gpu-1:8000}]\n")
    (problem,) = problems_of_flags("--config.file", str(file), *flag)
    assert problem.startswith(f"flag {flag[0]}: it is about the servers of --target, and there are none. Give --target")


def test_a_price_file_beside_a_price_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.yml"
    file.write_text(
        "rates: {own: {kind: owned}}\nprices: [{gpu_model: H100 SXM 80GB, usd_per_gpu_hour: 2, rate: own}]\n"
    )
    (problem,) = problems_of_flags(*TWO, "--gpu-price", "2.99", "--cost.price-file", str(file))
    assert problem.startswith("flag --gpu-price: there is a price file as well. Leave one of them out")


def test_a_gpu_is_one_of_the_catalogue_or_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("gpu_models: [{name: House Card, memory: 96GB, bandwidth: 1.8TB/s}]\n")
    config = load_flags("--config.file", str(file), "--target", "http://gpu-1:8000", "--gpu-model", "House Card")
    assert config.targets[0].gpu_model == "House Card"
    (problem,) = problems_of_flags(*TWO, "--gpu-model", "House Card")
    assert problem.startswith("flag --gpu-model: GPU 'House Card' is not in the catalogue")


@check_rows("value", ["0", "-1", "nan", "two"])
def test_a_price_that_is_none_is_refused(value: str) -> None:
    (problem,) = problems_of_flags(*TWO, f"--gpu-price={value}")
    assert "USD above 0" in problem


def test_one_command_shows_what_a_server_elsewhere_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """The price of an hour of two GPUs, as `once` shows it and as its JSON says it."""
    with Replica({"/metrics": page("vllm-0.32", 60)}) as server:
        words = ["once", "--target", server.url, "--gpu-model", "H100 SXM", "--gpu-count", "2", "--gpu-price", "3.5"]
        # a stub of NVML that an earlier test has loaded stays in the process
        words += ["--gpu.enabled", "false"]
        assert main([*words, "--wait", "1s"]) == 0
        assert "  cost: 2 GPUs at $3.50 an hour (rate on_demand)" in capsys.readouterr().out
        assert main([*words, "--wait", "1s", "--json"]) == 0
        cost = json.loads(capsys.readouterr().out)["cost"]
    assert (cost["gpus"], cost["price_usd_per_gpu_hour"], cost["rate"]) == (2, 3.5, "on_demand")


@pytest.mark.process
def test_a_running_daemon_counts_by_it() -> None:
    with Replica({"/metrics": page("vllm-0.32", 60)}) as server:
        words = ("--target", server.url, "--gpu-count", "2", "--gpu-model", "H100 SXM", "--gpu-price", "3600")
        with Exporter(*words, "--scrape.interval", "1s") as exporter:
            counted = exporter.until(
                lambda page: sum(page.series("cost_usd_total", rate="on_demand").values()) > 0, "money is counted"
            )
    assert list(counted.series("gpu_price_usd_per_hour").values()) == [3600.0]
