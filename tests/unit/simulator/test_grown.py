"""Fleets larger than what is simulated of them: every replica and card there once, and what happens to one happens to no other."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator

import pytest

from llm_serving_exporter.fetch.exposition import TEXT, read_body
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.scenario import Event, Scenario, load
from tests.simweek.fleets import named
from tests.simweek.grown import NAMES, SIMULATED, Copier, grown
from tests.support.builders.sample_lines import SampleLine, split_sample

MINUTE, END = 60_000, 1_704_294_000.0
POWER, MEMORY, TARGET = (
    "llm_serving_gpu_power_watts",
    "llm_serving_gpu_memory_total_bytes",
    "llm_serving_gpu_target_info",
)


def fleet(*events: Event) -> Scenario:
    """Of four replicas."""
    return named(replace(load("calm-day"), name="m", events=events))


def copied(scenario: Scenario, replicas: int, minutes: int) -> list[str]:
    """What is written of a counter that says when it was read and of whom: minute x 10 + replica."""
    out = io.StringIO()
    copier = Copier(scenario, replicas, out)
    for minute in range(minutes + copier.latest_minutes):
        lines = [f'made{{target="m-{one}"}} {minute * 10 + one} {minute * MINUTE}\n' for one in range(4)]
        on_node = f'drawn{{gpu="GPU-1",gpu_name="H100 SXM",node="m-n1"}} 7 {minute * MINUTE}\n'
        copier.write("".join([*lines, on_node, f"all{{}} 5 {minute * MINUTE}\n"]))
    return out.getvalue().splitlines()


def test_every_replica_is_there_once_each_minute() -> None:
    lines = copied(fleet(), 11, 3)
    per_minute = [[line for line in lines if line.endswith(f" {at * MINUTE}")] for at in (2, 3, 4)]
    for found in per_minute:
        assert {re.findall(r'target="m-(\d+)"', line)[0] for line in found if line.startswith("made")} == {
            str(number) for number in range(11)
        }
        series = [split_sample(line).series for line in found]
        assert len(set(series)) == len(series)
        # one of it, whatever there is of replicas
        assert [line for line in found if line.startswith("all")] == [found[series.index("all{}")]]
    assert sum(map(len, per_minute)) == len(lines)


def test_a_copy_does_what_another_did_some_minutes_ago() -> None:
    values = {series: value for series, value, _ in map(split_sample, copied(fleet(), 11, 3))}
    # the last is of minute 4; the eleventh is the second round's third
    assert [values[f'made{{target="m-{one}"}}'] for one in (2, 6, 10)] == ["42", "32", "22"]
    assert values['drawn{gpu="GPU-0005",gpu_name="H100 SXM",node="m-n5"}'] == "7"


@pytest.mark.parametrize(
    "event", [Event(60.0, "lose-node", node="node-2"), Event(60.0, "slow", replicas=("replica-2",), value=2.0)]
)
def test_what_happens_to_one_replica_happens_to_no_copy(event: Event) -> None:
    lines = map(split_sample, copied(fleet(event), 40, 2))
    values = {series: int(value) for series, value, _ in lines if series[0] == "m"}
    assert [name for name, value in values.items() if value % 10 == 2] == ['made{target="m-2"}']


def test_each_replica_has_a_card_of_its_own_on_its_node() -> None:
    """Names of GPUs hold blanks, in front of the labels that say whose a series is."""
    models, replicas = 2, SIMULATED + 3
    out = io.StringIO()
    for part in grown(models, replicas, END, 0.0):
        part.write(out, frozenset({POWER, MEMORY, TARGET}))
    lines = [split_sample(line) for line in out.getvalue().splitlines()]
    assert {line.stamp for line in lines} == {f"{END * 1000:.0f}"}
    nodes = {of["gpu"]: of["node"] for of in labels_of(POWER, lines)}
    targets = {of["gpu"]: of["target"] for of in labels_of(TARGET, lines)}
    assert sorted(targets.values()) == sorted(f"{NAMES[one]}-{at}" for one in range(models) for at in range(replicas))
    assert nodes == {gpu: "-n".join(target.rsplit("-", 1)) for gpu, target in targets.items()}
    # once each, so that what is added up over a model and divided by its cards is what a card has
    # beside three series of an exporter a model
    assert len({line.series for line in lines}) == len(lines) == 3 * models * replicas + 3 * models
    for name in NAMES[:models]:
        found = [
            float(line.value) for line in lines if line.series.startswith(MEMORY) and f'node="{name}-' in line.series
        ]
        assert sum(found) / replicas == found[0] > 80e9


def labels_of(name: str, lines: Iterable[SampleLine]) -> Iterator[dict[str, str]]:
    """Of each series with that name."""
    for line in lines:
        if line.series.startswith(name + "{"):
            yield dict(read_body(line.series.removeprefix(name)[1:-1]).labels)


def test_a_line_is_cut_as_a_scraper_reads_it() -> None:
    """Against the parse stage, with all that may stand in a label's value."""
    for labels in ("", r'{a="x y",b="} 1 2",c="\"} 3",d="{",e="\\"}'):
        for value, stamp in (("1.5", ""), ("NaN", "1704294000000")):
            for line in (f"m{labels} {value} {stamp}", f"m {labels}  {value}\t{stamp}\n"):
                match = TEXT.sample.fullmatch(line.rstrip("\n"))
                assert match is not None
                cut = split_sample(line)
                assert (cut.value, cut.stamp) == (match[3], line[match.end(3) :].strip()) == (value, stamp)
                assert cut.series == line[: match.start(3)].rstrip()


def test_a_fleet_of_models_has_a_flood_a_lost_node_and_a_slow_replica() -> None:
    parts = grown(6, 43, END, 9000.0)
    scenarios = [part.scenario for part in parts]
    assert [one.expected_replicas for one in scenarios] == [43] * 6
    assert [len(one.mixes) for one in scenarios] == [1, 3, 1, 1, 1, 1]
    assert [[event.what for event in one.events] for one in scenarios] == [[], [], ["lose-node"], ["slow"], [], []]
    assert len({one.rate.base / len(one.replicas) for one in scenarios}) == 6
    assert {one.replicas[0].engine.served_name for one in scenarios} == set(NAMES[:6])


def test_a_card_fails_and_an_exporter_falls_silent() -> None:
    """One card of all, and one exporter, of which Prometheus knows no more than that it does not answer."""
    minutes, up = 45 * 60.0, "llm_serving_gpu_up"
    last, lines = f"{END * 1000:.0f}", list[SampleLine]()
    for number in (4, 5):
        out = io.StringIO()
        grown(6, SIMULATED + 1, END, minutes)[number].write(out, frozenset({up}))
        lines += [split_sample(line) for line in out.getvalue().splitlines()]
    now = [line for line in lines if line.stamp == last]
    assert [line.value for line in now if line.series.startswith(up)].count("0.0") == 1
    assert [line for line in now if NAMES[5] in line.series] == [
        SampleLine(f'up{{instance="{NAMES[5]}:10077",job="llm-serving"}}', "0.0", last)
    ]
    began = min(line.stamp for line in lines)
    assert {line.value for line in lines if line.stamp == began and line.series.startswith(("up", up))} == {"1.0"}


def test_one_replica_of_one_model_is_just_that() -> None:
    (part,) = grown(1, 1, END, 3600.0)
    assert [one.name for one in part.scenario.replicas] == [f"{NAMES[0]}-0"]
    assert part.scenario.events == ()
