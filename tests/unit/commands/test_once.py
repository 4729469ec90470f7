"""`once`: two samples, the GPUs beside them, and what tokens cost or why that is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.commands.once import (
    GpuPasses,
    as_document_of,
    as_table,
    fit_config,
    fit_target,
    read_twice,
    run,
)
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.target import ModelSettings, Role, Target
from llm_serving_exporter.settings.config import Config
from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.recordings import page
from tests.support.servers.driven_exporter import HandClock, hand_driven_host
from tests.support.servers.replica import Replica

PRICES = PriceBook((PriceStatement(Scope.TARGET, "a", 3.6, "owned"),), (Rate("owned", RateKind.OWNED),))
BEFORE, AFTER = page("vllm-0.32", 50), page("vllm-0.32", 60)
MODEL = ModelSettings(config=demo_model_config())


class Cards:
    """Two GPUs that draw 100 W each."""

    def __init__(self, clock: HandClock | None = None) -> None:
        self.clock, self.reads = clock, 0

    def read(self) -> GpuReadings:
        self.reads += 1
        now = self.clock.seconds if self.clock is not None else 0.0
        gpus = tuple(
            GpuReading(
                GpuIdentity(f"GPU-{number}", number, "NVIDIA H100 80GB HBM3"),
                energy_joules_total=1000.0 + 100 * now,
                processes=(),
            )
            for number in range(2)
        )
        return GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", now, gpus)

    def close(self) -> None:
        """There is nothing to close."""


def read(later: bytes | None, prices: PriceBook | None = PRICES, wait: float = 10.0, **target: Any) -> TargetReading:
    """The reading of two samples, `wait` seconds apart, of which the second shows the page `later`; None = the server is away by then."""
    cards = Cards()
    host, clock = hand_driven_host(fit_config(Config(targets=(), prices=prices), wait), gpu_source=cards)
    cards.clock = clock
    with Replica({"/metrics": BEFORE}) as server:
        one = Target("a", server.url, metrics_path="/metrics", **{"model": MODEL, **target})

        def sleep(seconds: float) -> None:
            clock.seconds += seconds
            if later is None:
                server.refuse()
            else:
                server.show({"/metrics": later})

        try:
            hosted = host.add_target(fit_target(one, wait))
            host.settle_targets()
            found = read_twice(hosted, GpuPasses(host), wait, sleep)
        finally:
            host.close()
    assert cards.reads == 2, "the GPUs are read beside each sample"
    return found


def counted_tokens(body: bytes) -> float:
    """Sent and generated, as the page itself says."""
    lines = [
        line
        for line in body.decode().splitlines()
        if line.startswith(("vllm:prompt_tokens_total{", "vllm:generation_tokens_total{"))
    ]
    assert len(lines) == 2
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def absent(reading: TargetReading) -> str:
    """The lines of the table below "not available", all of them."""
    return as_table(reading, everything=True).partition("not available:")[2]


def test_tokens_between_the_two_samples_have_a_cost() -> None:
    found = read(AFTER)
    document = as_document_of(found)["cost"]
    (engine,) = document["engines"]
    assert (document["gpus"], document["gpu_name"], document["rate"]) == (2, "H100 SXM 80GB", "owned")
    assert document["price_usd_per_gpu_hour"] == 3.6
    assert found.page.derived is not None
    tokens = found.page.derived.engines[0].phase_tokens_per_second["decode"] * 10.0
    each = engine["cost_usd_per_million_tokens"]
    # 10 s of two GPUs at 3.6 USD an hour are 2 cents: all of it is prefill and decode
    prefill = found.page.derived.engines[0].phase_tokens_per_second["prefill"] * 10.0
    assert each["decode"]["busy"] * tokens + each["prefill"]["busy"] * prefill == pytest.approx(0.02 * 1e6)
    assert engine["energy_joules_per_token"] == pytest.approx(2000.0 * engine["tokens_per_usd"] ** -1 / 0.02)
    assert document["signals"]["cost_usd_per_million_tokens"] == ""

    table = as_table(found)
    assert "cost: 2 GPUs at $3.60 an hour (rate owned); busy time split by roofline" in table
    assert "    model tiny-llama, engine 0\n      prefill        $" in table
    assert " per million tokens\n" in table
    assert "J/token" in table
    assert "cost USD" not in absent(found)


def test_a_price_of_pools_is_before_commitments() -> None:
    found = read(
        AFTER, prices=PriceBook((PriceStatement(Scope.TARGET, "a", 4.0, "pool"),), (Rate("pool", RateKind.POOL),))
    )
    assert "cost: 2 GPUs at $4.00 an hour (rate pool, before commitments); busy" in as_table(found)
    document = as_document_of(found)["cost"]
    assert (document["rate"], document["before_commitments"]) == ("pool", True)
    assert as_document_of(read(AFTER))["cost"]["before_commitments"] is False


def test_where_no_token_was_counted_there_is_a_sentence_and_no_0() -> None:
    found = read(BEFORE)
    document = as_document_of(found)["cost"]
    assert document["engines"][0]["cost_usd_per_million_tokens"] == {}
    assert document["engines"][0]["cost_usd_per_request_mean"] is None
    assert "per million tokens\n" not in as_table(found)
    assert "$0" not in as_table(found)
    lines = absent(found)
    assert "In the 10 s between the two samples no token was counted, and without one there is no cost of one" in lines
    assert "try a longer --wait" in lines


def test_without_prices_the_setting_is_named() -> None:
    found = read(AFTER, prices=None)
    assert "  cost:" not in as_table(found)
    assert "Set cost.price_file to a file of what GPUs cost (docs/cost.md)" in absent(found)
    document = as_document_of(found)["cost"]
    assert (document["price_usd_per_gpu_hour"], document["rate"]) == (None, None)
    assert document["signals"]["cost_usd_total"] == "not_configured"


def test_a_price_for_others_is_no_price() -> None:
    others = PriceBook((PriceStatement(Scope.TARGET, "b", 3.6, "owned"),), PRICES.rates)
    assert "The price file states no price for its GPUs" in absent(read(AFTER, prices=others))


def test_without_the_models_facts_the_cost_is_not_split() -> None:
    found = read(AFTER, model=ModelSettings(config="/nowhere"))
    document = as_document_of(found)["cost"]
    assert document["engines"][0]["cost_usd_per_million_tokens"] == {}
    assert document["signals"]["cost_usd_per_million_tokens"] == "input_missing"
    assert "cost USD per million tokens" in absent(found)
    # 2 GPUs x 10 s at $3.60 an hour
    tokens = counted_tokens(AFTER) - counted_tokens(BEFORE)
    (row,) = [line for line in as_table(found).splitlines() if "all tokens" in line]
    assert float(row.partition("$")[2].split()[0]) == pytest.approx(1e6 * 0.02 / tokens, rel=0.01)
    assert row.endswith("per million tokens, sent and generated together")


def test_a_front_end_has_no_cost() -> None:
    assert "cost USD" in absent(read(AFTER, role=Role.FRONTEND))


def test_what_somebody_can_act_on_comes_first_and_the_rest_with_all() -> None:
    found = read(AFTER)
    short = as_table(found).partition("not available:")[2].strip().splitlines()
    every = absent(found).strip().splitlines()
    *acted, more = short
    assert acted == every[: len(acted)]
    assert all(word in "\n".join(acted) for word in ("Set slo.itl", "Set dcgm.url"))
    left = [line for line in every if line not in acted]
    assert any("only with speculative decoding" in line for line in left)
    hidden = sum(len(line.partition(": ")[0].split(", ")) for line in left)
    assert (
        more.strip()
        == f"{hidden} more signals are absent for reasons that pass or that nothing here changes: --all lists them"
    )
    # what can be acted on is never left out, and nothing is without a reason
    assert "--all" not in absent(found)
    assert len(as_table(read(AFTER, prices=None)).splitlines()) < 45


def test_all_is_a_flag_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with Replica({"/metrics": AFTER}) as server:
        words = ["once", "--target", f"{server.url}/metrics", "--wait", "100ms", "--no-gpu.enabled"]
        assert main(words) == 0
        short = capsys.readouterr().out
        assert main([*words, "--all"]) == 0
    every = capsys.readouterr().out
    assert "--all lists them" in short
    assert "--all" not in every
    assert len(every.splitlines()) > len(short.splitlines())


def test_a_share_of_the_gpus_is_said() -> None:
    assert "2 GPUs x share 0.25 at $3.60 an hour" in as_table(read(AFTER, gpu_share=0.25))


def test_a_long_wait_is_no_outage() -> None:
    """As far apart as `--wait` says, beyond the window and many intervals of the configuration."""
    found = read(AFTER, wait=600.0)
    assert as_document_of(found)["cost"]["engines"][0]["cost_usd_per_million_tokens"] != {}


def test_a_server_that_goes_between_the_samples_has_its_problem_and_no_cost() -> None:
    found = read(None)
    assert found.page.up is False
    assert "  cost:" not in as_table(found)
    assert "cost USD" not in as_table(found)


def test_no_target_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Config(targets=()), (), wait_seconds=0.0, as_json=False) == 1
    assert capsys.readouterr().err == "error: the configuration has no target to read now\n"


def test_the_command_reads_prices_from_their_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prices.yml").write_text("prices: [{gpu_model: L40S, usd_per_gpu_hour: 1.25}]")
    file = tmp_path / "exporter.yml"
    with Replica({"/metrics": AFTER}) as server:
        file.write_text(
            "gpu: {enabled: false}\ncost: {price_file: prices.yml}\n"
            f"targets: [{{url: '{server.url}', gpu_model: L40S, gpu_count: 1}}]\n"
        )
        words = ["once", "--config.file", str(file), "--wait", "0.1"]
        assert main(words) == 0
        table = capsys.readouterr().out
        assert main([*words, "--json"]) == 0
    assert "cost: 1 GPU at $1.25 an hour" in table
    assert json.loads(capsys.readouterr().out)["cost"]["price_usd_per_gpu_hour"] == 1.25
