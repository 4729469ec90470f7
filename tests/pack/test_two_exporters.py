"""A cluster-wide exporter beside a DaemonSet: both read the same pods, and do not know the same of them.

Nothing is doubled, and nothing false fires.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pack.judging import ask
from tests.pack.rulesets import PRESENCE
from tests.pack.test_conventions import expects, groups_of
from tests.support.quick import keep_quick

GROUPS = (
    "identity",
    "claims",
    "targets.replicas",
    "targets",
    "traffic",
    "kv",
    *PRESENCE,
    "node-loss.present",
    "node-loss.demand",
    "exporter.alerts",
    "node-loss.alerts",
)
MINUTES = 26
OF_NODE = {"job": "daemonset", "instance": "10.0.0.1:10077"}
OF_CLUSTER = {"job": "statefulset", "instance": "10.0.9.9:10077"}
Series = tuple[str, dict[str, str], float]


def seen(
    by: dict[str, str],
    target: str,
    nodes: tuple[str, ...],
    model: str = "chat",
    role: str = "unified",
    state: str = "ready",
) -> Iterator[Series]:
    """What one exporter says of a target."""
    who = {**by, "target": target}
    place = {"namespace": "llm", "pod": target.partition("/")[2].partition(":")[0]}
    info = {**who, **place, "model_name": model, "role": role, "node": nodes[0] if len(nodes) == 1 else ""}
    yield "target_info", info, 1
    for node in nodes:
        yield "target_node_info", {**who, "model_name": model, "role": role, "node": node}, 1
    for name in ("ready", "down", "unknown"):
        yield "target_state", {**who, "state": name}, float(name == state)


def page() -> Iterator[Series]:
    for by in (OF_NODE, OF_CLUSTER):
        yield "exporter_build_info", by, 1
        # the same of both
        yield from seen(by, "llm/a-0:8000", ("n1",))
        yield from seen(by, "llm/a-1:8000", ("n2",))
        yield "expected_replicas", {**by, "model_name": "chat", "role": "unified"}, 5
    # a policy keeps the cluster-wide one from the page, so that it knows neither model nor state
    yield from seen(OF_NODE, "llm/b-0:8000", ("n3",))
    yield from seen(OF_CLUSTER, "llm/b-0:8000", ("n3",), model="", state="down")
    # a leader whose group's size only one of them knows
    yield from seen(OF_NODE, "llm/lws-0:8000", ("n4",))
    yield from seen(OF_CLUSTER, "llm/lws-0:8000", ("n4", "n5"))
    # one knows its node, the other none
    yield from seen(OF_NODE, "llm/c-0:8000", ("n6",))
    yield from seen(OF_CLUSTER, "llm/c-0:8000", ())
    yield from list_limits()
    # a router: only what has read its page knows
    yield from seen(OF_NODE, "llm/router-0:8000", ("n1",), role="frontend")
    yield from seen(OF_CLUSTER, "llm/router-0:8000", ("n1",), model="", state="down")


def list_limits() -> Iterator[Series]:
    """One sees the engine's process, the other has watched it wait; of another engine the second alone knows it, and what runs."""
    for by, target, source, limit in (
        (OF_NODE, "llm/a-0:8000", "command_line", 256),
        (OF_CLUSTER, "llm/a-0:8000", "observed", 200),
        (OF_CLUSTER, "llm/a-1:8000", "observed", 100),
    ):
        of = {**by, "target": target, "model_name": "chat", "engine": "0", "role": "unified"}
        yield "batch_limit_requests", {**of, "source": source}, limit
        yield "requests_running", of, 89


@pytest.mark.process
@pytest.mark.parametrize("settings", keep_quick(["{}", "identity_labels: [namespace]"], lambda text: text == "{}"))
def test_two_exporters_of_the_same_pods_say_what_one_says(tmp_path: Path, settings: str) -> None:
    groups = groups_of(tmp_path, f"{settings}\n")
    order = [f"llm-serving.{name}" for name in GROUPS]
    rules = {f"{name}.yml": [group for group in found if group["name"] in order] for name, found in groups.items()}
    stored = {}
    for name, labels, value in page():
        stated = {"namespace": "llm"} if name == "expected_replicas" and "namespace" in settings else {}
        shown = ",".join(f'{label}="{text}"' for label, text in {**labels, **stated}.items() if text)
        stored[f"llm_serving_{name}{{{shown}}}"] = f"{value:g}+0x{MINUTES}"
    firing = 'ALERTS{alertstate="firing",alertname!="LLMServingWatchdog"}'
    tests = [
        expects("sum by (model_name) (model:llm_serving_ready_replicas:sum)", {'{model_name="chat"}': 5}),
        expects("sum by (model_name) (model:llm_serving_targets:count)", {'{model_name="chat"}': 5}),
        expects("sum by (model_name) (model:llm_serving_present_replicas:sum)", {'{model_name="chat"}': 5}),
        expects("count(target:llm_serving_identity:info)", {"{}": 6}),
        expects("target:llm_serving_claims:count", {}),
        expects(
            "sum by (target) (target:llm_serving_batch_limit_requests:sum)",
            {'{target="llm/a-0:8000"}': 256, '{target="llm/a-1:8000"}': 100},
        ),
        expects("sum by (model_name) (model:llm_serving_batch_utilization:ratio)", {'{model_name="chat"}': 0.5}),
        expects(f"count by (alertname, target, of) ({firing})", {}),
    ]
    assert not ask(tmp_path, stored, tests, rules, order=order)
