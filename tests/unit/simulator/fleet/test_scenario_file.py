"""Scenario files: what they may say, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.errors import ConfigError
from llm_serving_simulator.fleet.scenario import Alert, Event, History, Slo, load, parse
from llm_serving_simulator.fleet.workload import Burst, Daily, Lengths, Mix, Prefixes, Profile, Step
from tests.support.paths import ROOT
from tests.support.rows import check_rows

WHOLE = """
summary: Everything that a file may say
seed: 7
duration: 2h
begins: {weekday: friday, hour: 6}
engine:
  {model: meta-llama/Llama-3.1-70B-Instruct, gpu: H100 SXM, runtime: sglang, tensor: 4, max_num_seqs: 32, overhead: 0.002s, loading: 90s}
fleet: {replicas: 2, nodes_per_replica: 2, retry: true, ready: 1}
workload:
  rate:
    base: 0.5
    daily: {amplitude: 0.4, peak_hour: 15, weekend: 0.2}
    steps: [{at: 1h, factor: 2}, {at: 30m, factor: 0.5}]
    bursts: [{at: 10m, for: 1m, factor: 5, every: 20m}]
  prompt: {median: 500, sigma: 0.5, least: 10, most: 9000, tail_share: 0.01, tail_from: 5000, tail_alpha: 2}
  output: {median: 100}
  prefixes: {share: 0.5, count: 4, tokens: 256, zipf: 1.2}
  changes: [{at: 40m, output: {median: 300}}]
events:
  - {at: 50m, do: slow, factor: 2, replicas: [replica-1]}
  - {at: 20m, do: lose-node, node: node-3}
slo: {ttft: 1s, itl: 50ms}
expected_replicas: 2
history: {days: 3, factor: 0.8}
alerts: [{name: LLMServingReplicaLost, after: 20m, within: 15m}]
"""


def test_everything_that_a_file_may_say() -> None:
    found = parse(WHOLE, "whole.yml", "whole")
    assert (found.name, found.seed, found.duration_seconds, found.retry, found.ready) == ("whole", 7, 7200.0, True, 1)
    engine = found.replicas[0].engine
    assert (engine.model, engine.runtime, engine.tensor) == ("meta-llama/Llama-3.1-70B-Instruct", "sglang", 4)
    assert (engine.overhead_seconds, engine.loading_seconds) == (0.002, 90.0)
    assert [replica.nodes for replica in found.replicas] == [("node-0", "node-1"), ("node-2", "node-3")]
    assert found.rate == Profile(
        0.5,
        Daily(0.4, 15.0, 0.2, begins_seconds=4 * 86_400.0 + 6 * 3600.0),
        (Step(1800.0, 0.5), Step(3600.0, 2.0)),
        (Burst(600.0, 60.0, 5.0, 1200.0),),
    )
    first = Mix(Lengths(500, 0.5, 10, 9000, 0.01, 5000, 2), Lengths(100), Prefixes(0.5, 4, 256, 1.2))
    assert found.mixes == (first, Mix(first.prompt, Lengths(300), first.prefixes, 2400.0))
    assert found.events == (
        Event(1200.0, "lose-node", "node-3"),
        Event(3000.0, "slow", "", ("replica-1",), 2.0),
    )
    assert (found.slo, found.expected_replicas, found.history) == (Slo(1.0, 0.05), 2, History(3.0, 0.8))
    assert found.alerts == (Alert("LLMServingReplicaLost", 1200.0, 900.0),)


@check_rows(
    ("old", "new", "says"),
    [
        ("seed: 7", "sede: 7", 'x.yml: sede: this key is not known. Did you mean seed?'),
        ("duration: 2h", "duration: 2", "x.yml: duration: the duration \"2\" has no unit"),
        ("duration: 2h", "", "x.yml: duration: is missing"),
        ("base: 0.5", "base: -1", 'x.yml: workload.rate.base: "-1" is not a number from 0 to 10000'),
        ("node: node-3", "node: node-9", 'x.yml: events[1].node: there is no node "node-9". Did you mean node-'),
        ("do: slow", "do: slwo", 'x.yml: events[0].do: "slwo" is not a thing to do. Did you mean slow?'),
        ("do: slow, factor: 2", "do: slow", "x.yml: events[0].factor: is missing"),
        ("do: slow, factor: 2", "do: slow, factor: 2, to: 3", "x.yml: events[0].to: does not go with slow"),
        ("[replica-1]", "[replica-7]", 'x.yml: events[0].replicas[0]: there is no replica "replica-7"'),
        ("model: meta-llama/Llama-3.1-70B-Instruct", "model: nobody/knows-this", "x.yml: engine: model 'nobody/knows-this' is not"),
        ("gpu: H100 SXM", "gpu: H1000", "x.yml: engine: GPU 'H1000' is not in the catalogue"),
        ("model: meta-llama/Llama-3.1-70B-Instruct", "model: google/gemma-2-9b-it", "attention with a window"),
        ("tensor: 4", "tensor: 1", "has room for 0 tokens of KV cache"),
        ("max_num_seqs: 32", "max_num_seqs: 4000", "x.yml: engine: max_num_batched_tokens must be above max_num_seqs"),
        ("nodes_per_replica: 2", "nodes_per_replica: 3", "4 GPUs do not spread evenly over 3 nodes"),
        ("least: 10, most: 9000", "least: 9001, most: 9000", "x.yml: workload.prompt: lengths need 1 <= least <= most"),
        ("{median: 100}", "{sigma: 1}", "x.yml: workload.output.median: is missing"),
        ("name: LLMServingReplicaLost, ", "", "x.yml: alerts[0].name: is missing"),
        ("history: {days: 3", "history: {days: 0", 'x.yml: history.days: "0" is not a number above 0 to 60'),
        ("summary: Everything", "summary: [", "x.yml: this is not YAML"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_with_its_place(old: str, new: str, says: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError) as caught:
        parse(WHOLE.replace(old, new), "x.yml", "x")
    assert says in str(caught.value)


def test_the_file_in_the_documentation_is_one() -> None:
    text = (ROOT / "docs" / "simulator.md").read_text()
    block = text.partition("```yaml\n")[2].partition("```")[0]
    found = parse(block, "docs", "docs")
    assert len(found.replicas) == 4
    assert [event.what for event in found.events] == ["lose-node", "slow"]


def test_files_are_read_by_path_and_names_are_suggested(tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(WHOLE)
    assert load(str(file)).name == "mine"
    with pytest.raises(ConfigError, match=r'there is no scenario "calm-dya". Did you mean calm-day'):
        load("calm-dya")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(str(tmp_path / "none.yml"))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(str(file))
