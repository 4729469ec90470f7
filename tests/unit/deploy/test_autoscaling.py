"""The examples of deploy/keda: their queries by promtool, and an autoscaler that follows them to what is required."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_alerts.records.node_loss import REQUIRED
from tests.support.paths import ROOT
from tests.support.servers.server_process import program
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

# --- the horizontal pod autoscaler (autoscaling/v2) as Kubernetes documents it ---
# For one external metric with a target of type AverageValue:
# https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details; where the page leaves something open, as the
# controller of Kubernetes 1.34 does it (pkg/controller/podautoscaler).


# --horizontal-pod-autoscaler-sync-period
SYNC_SECONDS = 15
# --horizontal-pod-autoscaler-tolerance
TOLERANCE = 0.1
# scaling up in one period of 15 s: at most this many more, or as many again, whichever is more; and no limit on scaling down
_MOST_PODS, _MOST_FACTOR, _PERIOD_SECONDS = 4, 2, 15
_DOWN_WINDOW_SECONDS = 300


@dataclass
class Autoscaler:
    """One autoscaler and the replicas that it sets. `behavior`: as in the object; its policies are Kubernetes' own."""

    replicas: int
    least: int
    most: int
    behavior: Mapping[str, Any] = field(default_factory=dict)
    # before 1.33 a ratio was held against the tolerance by its distance from 1, which differs by one bit at 0.9 and 1.1
    before_1_33: bool = False
    _now: int = 0
    _recommended: list[tuple[int, int]] = field(default_factory=list)
    _added: list[tuple[int, int]] = field(default_factory=list)

    def sync(self, metric: float | None) -> int:
        """One round, 15 s after the one before. `metric`: the sum that an average of 1 a replica is wanted of; None: there is none."""
        self._now += SYNC_SECONDS
        if metric is None:
            return self.replicas
        desired = self._stabilised(self._recommendation(metric))
        desired = min(max(desired, self.least), self.most, self._most_now())
        if desired > self.replicas:
            self._added.append((self._now, desired - self.replicas))
        self.replicas = desired
        return desired

    def _recommendation(self, metric: float) -> int:
        # metrics are whole thousandths
        total = math.ceil(metric * 1000)
        ratio = total / (1000 * self.replicas)
        return self.replicas if self._is_within(ratio) else math.ceil(total / 1000)

    def _is_within(self, ratio: float) -> bool:
        up, down = (
            float(self.behavior.get(direction, {}).get("tolerance", TOLERANCE))
            for direction in ("scaleUp", "scaleDown")
        )
        if self.before_1_33:
            return abs(1.0 - ratio) <= TOLERANCE
        return 1.0 - down <= ratio <= 1.0 + up

    def _window(self, direction: str, default: int) -> int:
        return int(self.behavior.get(direction, {}).get("stabilizationWindowSeconds", default))

    def _stabilised(self, desired: int) -> int:
        up, down = self._window("scaleUp", 0), self._window("scaleDown", _DOWN_WINDOW_SECONDS)
        lowest = min([desired, *(number for at, number in self._recommended if at > self._now - up)])
        highest = max([desired, *(number for at, number in self._recommended if at > self._now - down)])
        self._recommended = [one for one in self._recommended if one[0] > self._now - max(up, down)]
        self._recommended.append((self._now, desired))
        return min(max(self.replicas, lowest), highest)

    def _most_now(self) -> int:
        added = sum(number for at, number in self._added if at > self._now - _PERIOD_SECONDS)
        before = self.replicas - added
        return max(self.replicas, before + _MOST_PODS, before * _MOST_FACTOR)


KEDA = ROOT / "deploy/keda"
OBJECTS = ("scaledobject.yaml", "scaledobject-tolerance.yaml", "scaledobject-leaderworkerset.yaml")
# the steps that scaledobject.yaml says that it rounds up to
STEPS = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
MOST = 64
LABELS = 'model_name="Qwen/Qwen3-32B",role="unified"'


def load(name: str) -> dict[str, Any]:
    found = load_yaml((KEDA / name).read_text())
    assert isinstance(found, dict)
    return found


def trigger(name: str) -> dict[str, Any]:
    (found,) = load(name)["spec"]["triggers"]
    return dict(found)


def behavior(name: str) -> dict[str, Any]:
    return dict(load(name)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"])


def adapter_query() -> str:
    (rule,) = load("prometheus-adapter.example.yaml")["rules"]["external"]
    return str(rule["metricsQuery"])


def round_to_step(required: int) -> int:
    return next(step for step in STEPS if step >= required)


@pytest.mark.parametrize("name", OBJECTS)
def test_unknown_is_never_taken_for_none(name: str) -> None:
    spec = load(name)["spec"]
    assert spec["minReplicaCount"] >= 1
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    found = trigger(name)
    # a fallback is for targets of this type; of a number of replicas the average is 1
    assert (found["type"], found["metricType"], found["metadata"]["threshold"]) == ("prometheus", "AverageValue", "1")
    assert found["metadata"]["ignoreNullValues"] == "false"


@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_asked_for_is_the_record_with_its_reserve(name: str) -> None:
    selectors = re.findall(r"[\w:]+\{[^}]*\}", trigger(name)["metadata"]["query"])
    assert set(selectors) == {f'{REQUIRED}{{{LABELS},reserve="nodes"}}'}


def test_the_adapter_asks_the_same() -> None:
    assert adapter_query() == trigger("scaledobject.yaml")["metadata"]["query"]
    spec = load("horizontalpodautoscaler.yaml")["spec"]
    (rule,) = load("prometheus-adapter.example.yaml")["rules"]["external"]
    (metric,) = spec["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert spec["behavior"] == behavior("scaledobject.yaml")


def test_groups_are_counted_by_the_scale_subresource() -> None:
    spec = load("scaledobject-leaderworkerset.yaml")["spec"]
    assert spec["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
    # so that the query is the one for replicas of one pod
    assert trigger("scaledobject-leaderworkerset.yaml") == trigger("scaledobject-tolerance.yaml")


@pytest.mark.process
@pytest.mark.parametrize("name", ["scaledobject.yaml", "scaledobject-tolerance.yaml"])
def test_promtool_answers_the_query_with_the_steps(tmp_path: Path, name: str) -> None:
    query = trigger(name)["metadata"]["query"]
    expected = {
        number: round_to_step(number) if name == "scaledobject.yaml" else number for number in range(1, MOST + 1)
    }
    answers = [
        {"expr": query, "eval_time": f"{number}m", "exp_samples": [{"labels": "{}", "value": float(value)}]}
        for number, value in expected.items()
    ]
    others = [
        {"series": f'{REQUIRED}{{{LABELS},reserve="none"}}', "values": f"1+0x{MOST}"},
        {"series": f'{REQUIRED}{{model_name="other",role="unified",reserve="nodes"}}', "values": f"9+0x{MOST}"},
    ]
    required = {"series": f'{REQUIRED}{{{LABELS},reserve="nodes"}}', "values": f"0+1x{MOST}"}
    document = {
        "tests": [
            {"interval": "1m", "input_series": [required, *others], "promql_expr_test": answers},
            # where it is not known there is no answer, and no 0
            {
                "interval": "1m",
                "input_series": others,
                "promql_expr_test": [{"expr": query, "eval_time": "5m", "exp_samples": []}],
            },
        ]
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    command = [program("promtool"), "test", "rules", str(tmp_path / "test.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# up by one, down by one, and in jumps; 40 minutes at each level, so that any window is over
LEVELS = [*range(8, 31), *range(29, 7, -1), 30, 8, 17, 12, 25, 9, 30, 29, 30, 11, 10, 9, 8]
ROUNDS = 40 * 60 // SYNC_SECONDS


def follow(scaler: Autoscaler, levels: list[int], query: Any) -> list[tuple[int, list[int]]]:
    """At each level of required replicas, the replicas after each round."""
    return [(level, [scaler.sync(query(level)) for _ in range(ROUNDS)]) for level in levels]


def test_with_a_tolerance_of_its_own_it_follows_to_the_replica() -> None:
    scaler = Autoscaler(8, 1, 30, behavior("scaledobject-tolerance.yaml"))
    for level, replicas in follow(scaler, LEVELS, float):
        assert replicas[-1] == level


@pytest.mark.parametrize("before_1_33", [False, True])
def test_with_ten_percent_it_follows_in_steps(before_1_33: bool) -> None:
    scaler = Autoscaler(8, 1, 32, behavior("scaledobject.yaml"), before_1_33=before_1_33)
    for level, replicas in follow(scaler, LEVELS, round_to_step):
        assert replicas[-1] == round_to_step(level)
        # more than is required, and by no more than docs/kubernetes.md says
        assert 0 <= replicas[-1] - level <= (1 if level <= 16 else 3)
        # and there it stays: once it has moved it does not move again
        assert len(set(replicas)) <= 3
        assert sorted(replicas) in (replicas, replicas[::-1])


@pytest.mark.parametrize("before_1_33", [False, True])
def test_ten_percent_would_ignore_the_plain_number(before_1_33: bool) -> None:
    """What the steps are there for: the same sequence with the query of the other example ends short."""
    scaler = Autoscaler(8, 1, 30, behavior("scaledobject.yaml"), before_1_33=before_1_33)
    short = [level - replicas[-1] for level, replicas in follow(scaler, LEVELS, float) if replicas[-1] < level]
    assert len(short) >= 10
    assert max(short) >= 2


@pytest.mark.parametrize("step", STEPS[:-1])
def test_every_step_is_left_in_both_directions(step: int) -> None:
    following = STEPS[STEPS.index(step) + 1]
    for before_1_33 in (False, True):
        up = Autoscaler(step, 1, MOST, behavior("scaledobject.yaml"), before_1_33=before_1_33)
        assert follow(up, [following], float)[0][1][-1] == following
        down = Autoscaler(following, 1, MOST, behavior("scaledobject.yaml"), before_1_33=before_1_33)
        assert follow(down, [step], float)[0][1][-1] == step


@pytest.mark.parametrize("name", ["scaledobject.yaml", "scaledobject-tolerance.yaml"])
def test_it_grows_at_once_and_shrinks_after_the_window(name: str) -> None:
    scaler = Autoscaler(8, 1, 32, behavior(name))
    # doubled each 15 s at most, as Kubernetes allows unless told otherwise
    assert [scaler.sync(28.0) for _ in range(3)] == [16, 28, 28]
    window = behavior(name)["scaleDown"]["stabilizationWindowSeconds"]
    assert [scaler.sync(8.0) for _ in range(window // SYNC_SECONDS - 1)] == [28] * (window // SYNC_SECONDS - 1)
    assert scaler.sync(8.0) == 8


def test_a_dip_is_not_followed() -> None:
    scaler = Autoscaler(28, 1, 32, behavior("scaledobject.yaml"))
    seen = {scaler.sync(8.0 if 10 <= turn < 20 else 28.0) for turn in range(200)}
    assert seen == {28}


def test_what_is_not_known_changes_nothing() -> None:
    scaler = Autoscaler(12, 1, 32, behavior("scaledobject.yaml"))
    assert {scaler.sync(None) for _ in range(100)} == {12}


@pytest.mark.parametrize("name", ["scaledobject.yaml", "horizontalpodautoscaler.yaml"])
def test_the_ends_are_on_a_step(name: str) -> None:
    spec = load(name)["spec"]
    ends = {spec.get("minReplicaCount", spec.get("minReplicas")), spec.get("maxReplicaCount", spec.get("maxReplicas"))}
    assert ends <= set(STEPS)
