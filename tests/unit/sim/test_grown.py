"""Fleets larger than what is simulated of them: every replica there once, each different, and what happens to one happens to no other."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from llm_serving_exporter.sim.fleet.scenario import Event, Scenario
from llm_serving_exporter.sim.fleet.scenario_file import load
from tests.simweek.fleets import named
from tests.simweek.grown import NAMES, Copier, grown

MINUTE, END = 60_000, 1_704_294_000.0


def fleet(*events: Event) -> Scenario:
    """Of four replicas."""
    return named(replace(load("calm-day"), name="m", events=events))


def copied(scenario: Scenario, replicas: int, minutes: int) -> list[str]:
    """What is written of a counter that says when it was read and of whom: minute x 10 + replica."""
    out = io.StringIO()
    copier = Copier(scenario, replicas, out)
    for minute in range(minutes + copier.latest_minutes):
        lines = [f'made{{target="m-{one}"}} {minute * 10 + one} {minute * MINUTE}\n' for one in range(4)]
        on_node = f'drawn{{gpu="GPU-1",node="m-n1"}} 7 {minute * MINUTE}\n'
        copier.write("".join([*lines, on_node, f"all{{}} 5 {minute * MINUTE}\n"]))
    return out.getvalue().splitlines()


def test_every_replica_is_there_once_each_minute() -> None:
    lines = copied(fleet(), 11, 3)
    per_minute = [[line for line in lines if line.endswith(f" {at * MINUTE}")] for at in (2, 3, 4)]
    for found in per_minute:
        assert {re.findall(r'target="m-(\d+)"', line)[0] for line in found if line.startswith("made")} == {
            str(number) for number in range(11)
        }
        series = [line.split(" ")[0] for line in found]
        assert len(set(series)) == len(series)
        # one of it, whatever there is of replicas
        assert [line for line in found if line.startswith("all")] == [found[series.index("all{}")]]
    assert sum(map(len, per_minute)) == len(lines)


def test_a_copy_does_what_another_did_some_minutes_ago() -> None:
    values = {line.split(" ")[0]: line.split(" ")[1] for line in copied(fleet(), 11, 3)}
    # the last is of minute 4; the eleventh is the second round's third
    assert [values[f'made{{target="m-{one}"}}'] for one in (2, 6, 10)] == ["42", "32", "22"]
    assert values['drawn{gpu="GPU-0005-1",node="m-n5"}'] == "7"


@pytest.mark.parametrize(
    "event", [Event(60.0, "lose-node", node="node-2"), Event(60.0, "slow", replicas=("replica-2",), value=2.0)]
)
def test_what_happens_to_one_replica_happens_to_no_copy(event: Event) -> None:
    values = {line.split(" ")[0]: int(line.split(" ")[1]) for line in copied(fleet(event), 40, 2) if line[0] == "m"}
    assert [name for name, value in values.items() if value % 10 == 2] == ['made{target="m-2"}']


def test_a_fleet_of_models_has_a_flood_a_lost_node_and_a_slow_replica() -> None:
    parts = grown(5, 43, END, 9000.0)
    scenarios = [part.scenario for part in parts]
    assert [one.expected_replicas for one in scenarios] == [43] * 5
    assert [len(one.mixes) for one in scenarios] == [1, 3, 1, 1, 1]
    assert [[event.what for event in one.events] for one in scenarios] == [[], [], ["lose-node"], ["slow"], []]
    assert len({one.rate.base / len(one.replicas) for one in scenarios}) == 5
    assert {one.replicas[0].engine.served_name for one in scenarios} == set(NAMES[:5])


def test_one_replica_of_one_model_is_just_that() -> None:
    (part,) = grown(1, 1, END, 3600.0)
    assert [one.name for one in part.scenario.replicas] == [f"{NAMES[0]}-0"]
    assert part.scenario.events == ()
