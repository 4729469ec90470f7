"""The price file, and objectives out of the settings file of the alert rules: what is read, what wins, every mistake at its place."""

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
from llm_serving_exporter.settings.config import SloConfig
from llm_serving_exporter.settings.prices import read_prices
from llm_serving_exporter.settings.problems import Place
from tests.support.builders.configuration import load_flags, load_text, problems_of
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


# --- SLO thresholds out of the settings file of the alert rules ---


RULES = Path(__file__).parent / "rules.yml"
TARGET = "targets: ['http://a:1']\n"
FROM_FILE = "targets: ['http://a:1']\nslo: {file: rules.yml}\n"
VARIABLE = "LLM_SERVING_EXPORTER_SLO_"


def rules(folder: Path, text: str) -> Path:
    path = folder / "rules.yml"
    path.write_text(text)
    return path


def test_the_thresholds_are_the_files() -> None:
    config = load_flags("--target", "a:1", "--slo.file", str(RULES))
    assert config.slo == SloConfig(ttft_seconds=0.5, itl_seconds=None, e2e_seconds=30.0, errors=True)


def test_a_relative_path_starts_at_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: 1s}}\n")
    monkeypatch.chdir(Path(__file__).parent)  # where a rules.yml with another threshold is
    assert load_text(tmp_path, FROM_FILE).slo.ttft_seconds == 1.0
    assert load_text(tmp_path, TARGET, "--slo.file", "rules.yml").slo.ttft_seconds == 0.5


def test_a_threshold_that_the_file_does_not_have_is_the_default(tmp_path: Path) -> None:
    for text in ("slo: {itl: {threshold: 50ms}}\n", "slo: {itl: {threshold: 50ms}, ttft: , e2e: {objective: 0.9}}\n"):
        rules(tmp_path, text)
        assert load_text(tmp_path, FROM_FILE).slo == SloConfig(itl_seconds=0.05)


def test_off_in_the_file_wins_over_a_default_that_is_on(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: off}}\n")
    assert SloConfig().ttft_seconds is not None
    assert load_text(tmp_path, FROM_FILE).slo.ttft_seconds is None


def test_what_else_is_in_the_file_is_not_the_exporters(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {errors: {threshold: 1s}, itl: {objective: many, of: x}, later: {}}\nalerts: [1, 2]\n")
    config = load_text(tmp_path, FROM_FILE)
    assert (config.slo, config.warnings) == (SloConfig(), ())


def test_a_slip_of_the_pen_is_warned_of_because_the_default_would_be_counted_by(tmp_path: Path) -> None:
    path = rules(tmp_path, "slo: {tftt: 3, itl: {treshold: x, objective: many}}\n")
    config = load_text(tmp_path, FROM_FILE)
    assert config.slo == SloConfig()
    assert config.warnings == (
        f"{path}: slo.tftt: not read, because this key is not known; did you mean ttft?",
        f"{path}: slo.itl.treshold: not read, because this key is not known; did you mean threshold?",
    )


def test_an_explicit_threshold_wins_and_a_warning_names_both_places(tmp_path: Path) -> None:
    path = rules(tmp_path, "slo: {ttft: {threshold: 1s}, itl: {threshold: 50ms}, e2e: {threshold: 30s}}\n")
    text = "targets: ['http://a:1']\nslo: {file: rules.yml, ttft: 2.5s}\n"
    config = load_text(tmp_path, text, "--slo.e2e", "off", environ={VARIABLE + "ITL": "100ms"})
    assert config.slo == SloConfig(ttft_seconds=2.5, itl_seconds=0.1, e2e_seconds=None)
    assert config.warnings == (
        f"{path}: slo.ttft.threshold: not used, because {tmp_path}/config.yml: slo.ttft takes its place",
        f"{path}: slo.itl.threshold: not used, because environment variable {VARIABLE}ITL takes its place",
        f"{path}: slo.e2e.threshold: not used, because flag --slo.e2e takes its place",
    )


def test_thresholds_of_the_file_are_held_against_the_buckets_too(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: 3s}}\n")
    (warning,) = load_text(tmp_path, FROM_FILE).warnings
    assert warning.startswith("slo.ttft: 3 s lies between the bucket edges 2.5 s and 5 s")


def test_the_hash_follows_the_thresholds_wherever_they_stand(tmp_path: Path) -> None:
    plain = load_text(tmp_path, TARGET + "slo: {ttft: 1s}\n").config_hash
    rules(tmp_path, "slo: {ttft: {threshold: 1s, objective: 0.99}}\n")
    assert load_text(tmp_path, FROM_FILE).config_hash == plain
    rules(tmp_path, "# for the rules only\nslo: {ttft: {threshold: 1000ms, objective: 0.999}}\n")
    assert load_text(tmp_path, FROM_FILE).config_hash == plain
    rules(tmp_path, "slo: {ttft: {threshold: 750ms, objective: 0.99}}\n")
    assert load_text(tmp_path, FROM_FILE).config_hash != plain


SLO_EXAMPLE = "Write slo: {ttft: {threshold: 2.5s}} into it, or do not give slo.file."


@check_rows(
    ("text", "problem"),
    [
        (None, "the file does not exist. Check the path."),
        ("", f"there is no section slo in this file, which CONFIG: slo.file names. {SLO_EXAMPLE}"),
        ("alerts: {}\n", f"there is no section slo in this file, which CONFIG: slo.file names. {SLO_EXAMPLE}"),
        ("- slo\n", f"there is no section slo in this file, which CONFIG: slo.file names. {SLO_EXAMPLE}"),
        ("slo:\n  # ttft: 1s\n", f"there is no section slo in this file, which CONFIG: slo.file names. {SLO_EXAMPLE}"),
        ("slo: 2.5s\n", f"slo: must be a mapping (key: value), not text. {SLO_EXAMPLE}"),
        ("slo: {ttft: 2.5s}\n", "slo.ttft: must be a mapping (key: value), not text. Write ttft: {threshold: 2.5s}, or off for 2.5s."),
        (
            "slo: {e2e: {threshold: 30}}\n",
            'slo.e2e.threshold: the duration "30" has no unit. Write 30s for seconds, 30ms for milliseconds. '
            "To count no events for this SLO write off.",
        ),
        (
            "slo: {itl: {threshold: }}\n",
            "slo.itl.threshold: the key has no value. Write a duration such as 2.5s, or off, or remove the line.",
        ),
        (
            "slo: {itl: {threshold: [1s]}}\n",
            "slo.itl.threshold: must be a duration such as 2.5s, or off, not a list. Write a single value.",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_no_good_is_refused_with_its_place_and_what_to_do(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    if text is not None:
        rules(tmp_path, text)
    expected = f"{tmp_path}/rules.yml: " + problem.replace("CONFIG", f"{tmp_path}/config.yml")
    assert problems_of(tmp_path, FROM_FILE) == [expected]


def test_a_file_that_is_not_yaml_is_refused_where_it_is_not(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: 1s}\n")
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, FROM_FILE)
    (problem,) = caught.value.problems
    assert problem.file.startswith(f"{tmp_path}/rules.yml")
    assert problem.fix
