"""The price file: every way to state a price, and every mistake at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.model.cost import (
    Method,
    Pool,
    PoolKind,
    PoolUse,
    Power,
    PriceBook,
    Rate,
    RateKind,
    Scope,
    SpendRate,
)
from llm_serving_exporter.model.hardware import Efficiency
from llm_serving_exporter.model.target import NodePlace
from llm_serving_exporter.settings.prices import read_prices
from llm_serving_exporter.settings.problems import Place
from tests.support.builders.configuration import load_flags
from tests.support.paths import ROOT
from tests.support.rows import check_rows

EXAMPLE = ROOT / "deploy/prices.example.yml"
FOLDER = Path(__file__).parent / "bad_prices"
# 2026-11-12T06:00:00Z and 2026-11-01T00:00:00Z by `date -u +%s`
NOVEMBER_12, NOVEMBER_1 = 1_794_463_200.0, 1_793_491_200.0


def read(tmp_path: Path, text: str) -> tuple[PriceBook | None, list[str]]:
    path = tmp_path / "prices.yml"
    path.write_text(text)
    problems: list[Problem] = []
    book = read_prices(str(path), Place("prices.yml", "", problems))
    return book, [str(problem) for problem in problems]


@check_rows(
    "text",
    [
        "pools:\n" + "  - {kind: quantity, gpus: many}\n" * 250,
        "prices:\n" + "  - {gpu_name: H100, usd_per_gpu_hour: much}\n" * 250,
        "nodes:\n" + "  - {node: a, zone: []}\n" * 250,
    ],
)
def test_more_faults_than_are_reported(tmp_path: Path, text: str) -> None:
    """Beyond the last that is reported, nothing that is wrong is taken for right."""
    book, problems = read(tmp_path, text)
    assert book is None
    assert len(problems) == 201
    assert problems[-1].startswith("prices.yml: there are more than 200 problems")


def test_the_example() -> None:
    config = load_flags("--target", "a:1", "--cost.price-file", str(EXAMPLE))
    book = config.prices
    found = [(one.scope, one.value, one.rate, one.from_unix_seconds) for one in book.statements]
    assert found == [
        (Scope.GPU_MODEL, "H100 SXM 80GB", "reserved", None),
        (Scope.GPU_MODEL, "H100 SXM 80GB", "reserved", NOVEMBER_12),
        (Scope.NODE, "gpu-17", "spot", NOVEMBER_1),
        (Scope.NODE, "gpu-18", "spot", NOVEMBER_1),
        (Scope.GPU_MODEL, book.statements[4].value, "on_demand", None),
        (Scope.TARGET, "chat-decode-0", "owned", None),
        (Scope.GPU_MODEL, "H200 SXM 141GB", "pool", None),
    ]
    assert book.statements[4].value.startswith("A100")
    # 27.45 / 8; 320,000 x 1.15 / (4 x 8760) / 8; 39.80 / 8
    amounts = [2.49, 2.19, 1.30, 1.30, 3.43125, 1.312785, 4.975]
    assert [one.usd_per_gpu_hour for one in book.statements] == pytest.approx(amounts, rel=1e-6)
    assert set(book.rates) == {
        Rate("reserved", RateKind.RESERVED, True, 64),
        Rate("owned", RateKind.OWNED, False),
        Rate("spot", RateKind.SPOT),
        Rate("on_demand", RateKind.ON_DEMAND),
        Rate("pool", RateKind.POOL),
    }
    # 26 / 8; 9,600 / 8 GPUs / 14 days; $40 an hour
    assert [(one.kind, one.gpus, one.usd_per_gpu_hour, one.usd_per_hour) for one in book.pools] == [
        (PoolKind.QUANTITY, 16.0, 3.25, 0.0),
        (PoolKind.WINDOW, 8.0, pytest.approx(9600 / 8 / (14 * 24)), 0.0),
        (PoolKind.SPEND, 0.0, 0.0, 40.0),
    ]
    assert [name for name, _ in book.nodes] == ["gpu-31", "gpu-32"]
    assert book.power == Power(0.12, 1.3, 350.0)
    assert book.budget_usd_per_month == 250_000.0
    assert config.attribution.method is Method.ROOFLINE
    assert config.attribution.efficiency == Efficiency()


def test_a_path_of_the_configuration_file_starts_at_its_folder(tmp_path: Path) -> None:
    (tmp_path / "prices.yml").write_text("prices: [{target: a, usd_per_gpu_hour: 1}]")
    (tmp_path / "exporter.yml").write_text("targets: [http://a:1]\ncost: {price_file: prices.yml, method: flat}")
    config = load_flags("--config.file", str(tmp_path / "exporter.yml"))
    assert config.prices is not None
    assert config.attribution.method is Method.FLAT


def test_another_price_is_another_configuration(tmp_path: Path) -> None:
    path = tmp_path / "prices.yml"
    hashes = set()
    for usd in (1, 2):
        path.write_text(f"prices: [{{target: a, usd_per_gpu_hour: {usd}}}]")
        hashes.add(load_flags("--target", "a:1", "--cost.price-file", str(path)).config_hash)
    assert len(hashes) == 2


@check_rows("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_a_mistake_is_told_at_its_place_with_what_to_do(path: Path) -> None:
    expected = [
        line.removeprefix("# expect ") for line in path.read_text().splitlines() if line.startswith("# expect ")
    ]
    problems: list[Problem] = []
    assert read_prices(str(path), Place("FILE", "", problems)) is None
    assert [str(problem) for problem in problems] == expected
    assert expected


def test_a_card_that_nobody_knows_can_be_named_as_on_the_series(tmp_path: Path) -> None:
    book, problems = read(tmp_path, "prices: [{gpu_model: Hyper 9000, usd_per_gpu_hour: 1}]")
    assert book is None
    assert "Hyper 9000" in problems[0]
    book, problems = read(tmp_path, "prices: [{gpu_name: Hyper 9000, usd_per_gpu_hour: 1}]")
    assert (book.statements[0].scope, book.statements[0].value) == (Scope.GPU_MODEL, "Hyper 9000")


def test_all_mistakes_are_told_at_once_and_the_rest_of_the_configuration_stands(tmp_path: Path) -> None:
    path = tmp_path / "prices.yml"
    path.write_text("prices: [{node: a}, {usd_per_gpu_hour: 1}]\nbudget_usd_per_month: much")
    config = load_flags("--target", "a:1", "--cost.price-file", str(path))
    assert (config.prices, len(config.price_problems), len(config.targets)) == (None, 3, 1)
    assert "no final newline" in config.price_warnings[0]
    config = load_flags("--target", "a:1", "--cost.price-file", str(tmp_path / "none.yml"))
    assert config.prices is None
    assert "does not exist" in str(config.price_problems[0])


def test_check_config_ends_with_1_where_the_price_file_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prices.yml"
    words = ["check-config", "--target", "http://a:1", "--cost.price-file", str(path)]
    path.write_text("prices: [{node: a, usd_per_gpu_hour: 1}]\n")
    assert main(words) == 0
    assert capsys.readouterr().err == ""
    path.write_text("prices: [{node: a, usd_per_gpu_hours: 1}]")
    assert main(words) == 1
    said = capsys.readouterr()
    assert f"error: {path}: prices[0]: no amount is given" in said.err
    assert "good, but for the price file, 1 target" in said.out
    # what is wrong with the configuration itself is told first
    assert main([*words, "--window", "soon"]) == 2


@check_rows(
    ("flag", "text"),
    [
        ("--cost.method", "guess"),
        ("--cost.decode-to-prefill-ratio", "0"),
        ("--cost.compute-efficiency", "1.5"),
        ("--cost.bandwidth-efficiency", "0"),
    ],
)
def test_bad_options_are_refused(flag: str, text: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        load_flags("--target", "a:1", flag, text)


POOLS = """
prices: [{gpu_model: H100 SXM, rate: pool, usd_per_gpu_hour: 4}]
pools:
  - {name: reserved, kind: quantity, instance_type: p5.48xlarge, instances: {count: 2, gpus: 8}, zone: us-east-1a,
     instance: {usd_per_hour: 20, gpus: 8}}
  - {name: gcp, kind: quantity, gpu_model: h100 sxm, gpus: 16, region: europe-west4, usd_per_gpu_hour: 2.1,
     from: 2026-11-12T06:00:00Z, until: 2027-11-12}
  - {name: block, kind: window, instance_type: p5.48xlarge, gpus: 8, usd: 960, from: 2026-11-01, until: 2026-11-02}
  - name: plan
    kind: spend
    usd_per_hour: 40
    rates:
      - {instance_type: p5.48xlarge, region: us-east-1, instance: {usd_per_hour: 24, gpus: 8}}
      - {gpu_name: Hyper 9000, usd_per_gpu_hour: 1}
nodes:
  - {node: [a, b], region: us-east-1, zone: us-east-1a, instance_type: p5.48xlarge}
  - {node: c, provider_id: "aws:///us-east-1a/i-1"}
"""


def test_pools_and_nodes(tmp_path: Path) -> None:
    book, problems = read(tmp_path, POOLS)
    assert problems == []
    assert book.rates == (Rate("pool", RateKind.POOL),)
    machine = PoolUse(instance_type="p5.48xlarge")
    assert book.pools == (
        Pool("reserved", PoolKind.QUANTITY, PoolUse(instance_type="p5.48xlarge", zone="us-east-1a"), 16.0, 2.5),
        Pool(
            "gcp", PoolKind.QUANTITY, PoolUse("H100 SXM 80GB", region="europe-west4"), 16.0, 2.1,
            # by `date -u +%s -d 2027-11-12`
            from_unix_seconds=NOVEMBER_12, until_unix_seconds=1_825_977_600.0,
        ),
        # $960 over 24 hours of 8 GPUs
        Pool(
            "block", PoolKind.WINDOW, machine, 8.0, 5.0,
            from_unix_seconds=NOVEMBER_1, until_unix_seconds=NOVEMBER_1 + 86_400.0,
        ),
        Pool(
            "plan", PoolKind.SPEND, usd_per_hour=40.0,
            rates=(
                SpendRate(PoolUse(instance_type="p5.48xlarge", region="us-east-1"), 3.0),
                SpendRate(PoolUse("Hyper 9000"), 1.0),
            ),
        ),
    )  # fmt: skip
    there = NodePlace("us-east-1", "us-east-1a", "p5.48xlarge")
    assert dict(book.nodes) == {"a": there, "b": there, "c": NodePlace(provider_id="aws:///us-east-1a/i-1")}


@check_rows(
    ("text", "said"),
    [
        (POOLS, None),
        ("prices: [{node: a, rate: pool, usd_per_gpu_hour: 4}]\n", "there are no pools"),
        (POOLS.replace("rate: pool, ", ""), "no price at the rate pool"),
    ],
)
def test_check_config_doubts_pools_without_a_price_and_prices_without_a_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str | None
) -> None:
    path = tmp_path / "prices.yml"
    path.write_text(text)
    assert main(["check-config", "--target", "http://a:1", "--cost.price-file", str(path)]) == 0
    err = capsys.readouterr().err
    assert (err == "") if said is None else (f"warning: {path}: " in err and said in err)
