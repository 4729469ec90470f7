"""History against the fleet's own counts, and against the tool that takes it in."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest

from llm_serving_simulator.fleet.history import Watch
from llm_serving_simulator.fleet.scenario import Slo
from tests.support.builders.fleet_history import Form, Written, write_history
from tests.support.builders.simfleet import EPOCH, small_fleet
from tests.support.waiting import PATIENCE_SECONDS

NAMES = (
    "llm_serving_decode_tokens_total", "llm_serving_prefill_tokens_total", "llm_serving_time_to_first_token_seconds_bucket",
    "llm_serving_target_info", "llm_serving_expected_replicas", "llm_serving_bandwidth_ceiling_ratio", "llm_serving_slo_events_total",
)  # fmt: skip


def written(form: Form = Form.OPENMETRICS, minutes: int = 10, **more: object) -> tuple[str, Written]:
    fleet = small_fleet(2, rate=1.0)
    watch = Watch(fleet, interval_seconds=60.0, wanted=NAMES, slo=Slo(ttft=0.1), expected_replicas=2)
    out = io.StringIO()
    found = write_history(
        fleet,
        watch,
        out,
        until_seconds=60.0 * minutes,
        interval_seconds=60.0,
        form=form,
        **more,
    )
    return out.getvalue(), found


def values(text: str, name: str) -> dict[float, float]:
    """Sums over the series of a name, by time."""
    found: dict[float, float] = {}
    for line in text.splitlines():
        if line.startswith(name + "{"):
            value, stamp = line.rpartition("} ")[2].split()
            found[float(stamp)] = found.get(float(stamp), 0.0) + float(value)
    return found


def test_what_is_written_is_what_the_fleet_did() -> None:
    text, found = written(labels={"job": "llm"})
    fleet = small_fleet(2, rate=1.0)
    fleet.advance(600.0)
    truth = fleet.truth(60.0, 600.0)
    assert found == Written(11, len(text.splitlines()) - 1)
    for name, expected in (("decode", truth.decode_tokens), ("prefill", truth.prefill_tokens)):
        series = values(text, f"llm_serving_{name}_tokens_total")
        assert list(series) == [EPOCH + 60.0 * point for point in range(11)]
        assert series[EPOCH + 600.0] - series[EPOCH + 60.0] == expected
    good = sum(seconds <= 0.1 for seconds in truth.ttft_seconds)
    counted = [
        line for line in text.splitlines() if 'slo="ttft"' in line and 'outcome="good"' in line and "_events_" in line
    ]
    last = sum(float(line.split()[-2]) for line in counted[-2:])
    assert last == good + sum(seconds <= 0.1 for seconds in fleet.truth(0.0, 60.0).ttft_seconds)
    assert {line.partition("{")[0] for line in text.splitlines()[:-1]} == set(NAMES)
    assert all('job="llm"' in line for line in text.splitlines()[:-1])
    assert text.endswith("# EOF\n")


def test_victoriametrics_lines_have_milliseconds_and_no_end() -> None:
    text, _ = written(Form.VICTORIAMETRICS, minutes=1)
    stamps = {line.split()[-1] for line in text.splitlines()}
    assert stamps == {"1800000000000", "1800000060000"}


def test_a_caller_may_add_recorded_series() -> None:
    def recorded(
        unix_seconds: float, samples: list[tuple[str, object, float]]
    ) -> list[tuple[str, dict[str, str], float]]:
        total = sum(value for name, _, value in samples if name == "llm_serving_decode_tokens_total")
        return [("model:decode_tokens:total", {"a": 'quo"te'}, total)]

    text, _ = written(minutes=2, more=recorded)
    assert 'model:decode_tokens:total{a="quo\\"te"}' in text
    assert list(values(text, "model:decode_tokens:total").values()) == list(
        values(text, "llm_serving_decode_tokens_total").values()
    )


@pytest.mark.process
def test_promtool_makes_blocks_of_it(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    text, found = written(minutes=5, labels={"job": "llm"})
    (tmp_path / "history.om").write_text(text)
    command = [
        promtool,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(tmp_path / "history.om"),
        str(tmp_path / "data"),
    ]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    (tmp_path / "data" / "wal").mkdir()  # a database has one
    dump = subprocess.run(
        [promtool, "tsdb", "dump", str(tmp_path / "data")], capture_output=True, timeout=PATIENCE_SECONDS
    )
    # dump writes a line a sample
    assert len(dump.stdout.splitlines()) == found.samples


def test_without_a_choice_everything_is_exported_and_with_gpus_theirs_too() -> None:
    fleet = small_fleet(1)
    watch = Watch(fleet, interval_seconds=10.0, gpus=True)
    for second in range(0, 61, 10):
        fleet.advance(float(second))
        samples = list(watch.samples())
    names = {name for name, _, _ in samples}
    assert {"llm_serving_limiter", "llm_serving_gpu_energy_joules_total", "llm_serving_target_up"} <= names
    sources = {
        labels["source"]: value for name, labels, value in samples if name == "llm_serving_bandwidth_ceiling_ratio"
    }
    nodes = {labels["node"] for name, labels, _ in samples if name == "llm_serving_gpu_up"}
    assert nodes == {"n0"}
    # two ways to the same figure: what the GPU counted, and the exporter's arithmetic over the engine's counters
    assert sources["gpm"] == pytest.approx(sources["model"], rel=0.25)


def test_a_replica_that_is_gone_vanishes_after_three_intervals() -> None:
    fleet = small_fleet(2)
    watch = Watch(fleet, interval_seconds=10.0, wanted=("llm_serving_requests_running", "llm_serving_target_up"))
    seen = []
    for second in range(0, 91, 10):
        fleet.advance(float(second))
        if second == 30:
            fleet.lose_node("n1")
        samples = {(name, labels["target"]): value for name, labels, value in watch.samples()}
        seen.append((("llm_serving_requests_running", "r1") in samples, samples["llm_serving_target_up", "r1"]))
    assert [up for _, up in seen] == [1.0] * 3 + [0.0] * 7
    assert [there for there, _ in seen] == [True] * 6 + [False] * 4


def test_side_endpoints_answer_while_their_replica_can_be_reached() -> None:
    fleet = small_fleet(2, rate=1.0)
    watch = Watch(fleet, interval_seconds=60.0)
    lost, well = fleet.replicas
    fleet.unreachable.add(lost)
    fleet.advance(60.0)
    watch.read()  # side endpoints are asked after it
    versions = {one.target.name: one.server.facts.version for one in watch.read().view().targets}
    assert versions[lost] is None
    assert versions[well] is not None
