"""`ceiling --from-prometheus` as a user asks it, of a real Prometheus whose records promtool has taken in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_serving_exporter.commands.what_if.capacity import Objective, least_replicas
from tests.support.builders.ceilings import asked, document
from tests.support.builders.watchedweek import FACTORS, MODEL, REPLICAS, REQUEST, USD, list_records, truth
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.tsdb import make_blocks

pytestmark = [pytest.mark.process]
HOURS = 48


def prometheus_of(folder: Path, *, load: float = 1.0, kept: str = "") -> PrometheusServer:
    source = folder / "records.om"
    source.write_text("".join(list_records(time.time() - 60, HOURS, load=load, kept=kept)))
    make_blocks(source, folder / "data")
    return PrometheusServer(folder, "")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_of(tmp_path_factory.mktemp("week"), load=1.0) as prometheus:
        yield prometheus.url


def words(url: str, *more: str) -> tuple[str, ...]:
    return ("--from-prometheus", url, "--model", MODEL, "--over", f"{HOURS}h", *more)


def test_what_the_steps_tell_is_what_they_were_made_of(url: str) -> None:
    found = document(*words(url))
    assert found["today"]["replicas"] == REPLICAS
    assert found["today"]["requests_per_second"] == pytest.approx(40, rel=0.02)
    assert found["today"]["input_tokens"] == pytest.approx(REQUEST.computed + REQUEST.cached, rel=0.01)
    assert found["bandwidth_efficiency"] == pytest.approx(1 / FACTORS[0], rel=0.1)
    assert found["compute_efficiency"] == pytest.approx(1 / FACTORS[1], rel=0.15)
    week = REPLICAS * USD * 168
    assert found["today"]["usd_per_week"] == pytest.approx(week, rel=0.01)
    # 24 requests/s in the mean
    tokens = 24 * (REQUEST.computed + REQUEST.cached + REQUEST.output) * 168 * 3600
    assert found["today"]["usd_per_million_tokens"] == pytest.approx(1e6 * week / tokens, rel=0.02)


@pytest.mark.parametrize("factor", [0.5, 1, 2, 4])
def test_replicas_for_other_traffic(url: str, factor: float) -> None:
    needed = least_replicas(truth(), REQUEST, Objective(0.99, {"ttft": 2.5}), 40 * factor)
    assert needed is not None
    found = document(*words(url, "--traffic", f"{factor:g}x"))["question"]
    assert abs(found["replicas_needed"] - needed[0]) <= (1 if factor > 1 else 0)
    assert found["replicas_with_reserve"] == found["replicas_needed"] + 1
    assert found["objectives_hold"]
    assert found["usd_per_week"] == pytest.approx(found["replicas"] * USD * 168)


def test_another_gpu_has_no_price_until_one_is_given(url: str) -> None:
    found = document(*words(url, "--gpu", "H200"))
    assert found["question"]["gpu"].startswith("H200")
    assert found["question"]["usd_per_week"] is None
    assert any("--price" in note for note in found["notes"])
    priced = document(*words(url, "--gpu", "H200", "--price", "3.5"))["question"]
    assert priced["usd_per_week"] == pytest.approx(priced["replicas"] * 3.5 * 168)


def test_smaller_weights_and_kv_leave_more_of_the_cache_and_are_no_measurement(url: str) -> None:
    before, found = document(*words(url)), document(*words(url, "--weights", "fp8", "--kv", "fp8"))
    assert found["question"]["kv_free_ratio"] > before["question"]["kv_free_ratio"]
    assert found["sure"] in ("scaled by ceilings", "assumed")


def test_too_few_replicas_do_not_carry_it(url: str) -> None:
    found = document(*words(url, "--replicas", "1", "--traffic", "8x"))["question"]
    assert (found["replicas"], found["carried"], found["objectives_hold"]) == (1, False, False)


def test_longer_prompts_need_more(url: str) -> None:
    before, found = document(*words(url))["question"], document(*words(url, "--input-tokens", "8000"))["question"]
    assert found["replicas_needed"] > before["replicas_needed"]
    assert found["input_tokens"] == pytest.approx(8000)


def test_the_table_has_today_beside_the_question(url: str) -> None:
    found = asked(*words(url, "--traffic", "2x"))
    assert (found.status, found.err) == (0, "")
    rows = {line[:26].strip(): line[26:].split() for line in found.out.splitlines()}
    assert rows["requests/s at the peak"] == ["40", "80"]
    assert rows["how sure"][0] in ("measured:", "assumed:")


def test_what_cannot_be_answered_says_what_to_do(url: str, tmp_path: Path) -> None:
    nobody = asked("--from-prometheus", url, "--model", "nope")
    assert (nobody.status, nobody.out) == (1, "")
    assert nobody.errors == [f"Prometheus has no record of a model nope: write one of {MODEL}"]
    assert "fit" in asked(*words(url, "--gpu", "RTX 4070")).err
    (tmp_path / "quiet").mkdir()
    with prometheus_of(tmp_path / "quiet", load=0.0) as quiet:
        (said,) = asked(*words(quiet.url)).errors
        assert "finished no request in the last 2 days: " in said
    with PrometheusServer(tmp_path / "empty", "") as empty:
        (said,) = asked(*words(empty.url)).errors
        assert said.startswith("Prometheus has no record of any model: load the recording rules")
    (said,) = asked(*words("http://127.0.0.1:9")).errors
    assert "--from-prometheus" in said


def test_records_alone_are_enough(tmp_path: Path) -> None:
    """Where long-term storage keeps no series of the exporter's own, sequences that run say how long a step takes."""
    with prometheus_of(tmp_path, kept=":llm_serving_") as prometheus:
        found = document(*words(prometheus.url, "--traffic", "2x"))
    assert found["windows"] > 1000
    assert found["bandwidth_efficiency"] == pytest.approx(1 / FACTORS[0], rel=0.15)
    assert found["question"]["replicas_needed"] >= found["today"]["replicas_needed"]
    assert any("no objective of latency is set" in note for note in found["notes"])


def test_wrong_flags_are_refused_before_anybody_is_asked() -> None:
    found = asked("--from-prometheus", "nowhere", "--traffic", "twice", "--over", "7")
    assert found.status == 2
    assert {error.split(":")[0] for error in found.errors} == {
        "flag --from-prometheus", "flag --traffic", "flag --over", "flag --model",
    }  # fmt: skip
