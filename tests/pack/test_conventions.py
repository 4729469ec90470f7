"""One fleet's pages under every way to scrape them: what the rules record, which alerts fire and what a drill asks for is the same.

All of them stand beside one another in one history, each in a cluster of its own that the rules tell apart.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_alerts.render import RECORDS, rule_files
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_drill import names
from llm_serving_drill.course import Scope
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.history import Sample
from tests.pack.judging import ask, expect
from tests.pack.rulesets import keep_groups
from tests.support.conventions import (
    BESIDE_ONE_ANOTHER,
    CONVENTIONS,
    EXPORTERS,
    MODEL,
    NAMESPACES,
    PLAIN,
    Convention,
    Namespace,
    NamespacedFleet,
    Place,
)
from tests.support.servers.http_server import QuietHandler, serve
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.waiting import wait_until
from tests.support.yaml_text import load_yaml

GROUPS = (
    "identity", "claims", "exporters", "seen", "said", "targets", "workloads", "signals", "traffic", "history", "memory", "presence",
    "missing", "kv",    "work", "rates", "capacity", "node-loss", "views",
    "node-loss.alerts", "gpu.alerts", "kv.alerts", "exporter.alerts",
)  # fmt: skip
# what is asked for 15m, after the first rates of 5m
MINUTES = 26
_SERIES = re.compile(r"(?<![:\w])llm_serving_\w+")
RENAMED = "LLMServingLabelsRenamed"
OTHERS = f"{RENAMED}|LLMServingWatchdog"
ASKED_BY_DRILLS = [f"llm_serving_{name}" for name in names.EXPORTED]
Conventions = tuple[Convention, ...]
Written = dict[tuple[Place, str, tuple[tuple[str, str], ...]], list[str]]


@cache
def wanted() -> frozenset[str]:
    """The series that drills read, and rules where there are most of them."""
    groups = choose_groups(replace(default_settings(), identity_labels=("cluster", "namespace", "team")))
    return frozenset((*_SERIES.findall(str(groups)), *ASKED_BY_DRILLS))


@cache
def simulated() -> list[list[tuple[Namespace, Sample]]]:
    """What was read of the fleets, minute by minute."""
    fleet = NamespacedFleet((), wanted())
    return [list(fleet.read(minute)) for minute in range(MINUTES + 1)]


@cache
def history(target_labels: tuple[str, ...]) -> Written:
    """What every exporter wrote, minute by minute."""
    fleet = NamespacedFleet(target_labels)
    found: Written = {}
    for minute, readings in enumerate(simulated()):
        for place, (name, labels, value) in fleet.place(readings):
            values = found.setdefault((place, name, tuple(labels.items())), [])
            values += ["_"] * (minute - len(values)) + [f"{value:.12g}"]
    return found


def stored(written: Written, conventions: Iterable[Convention]) -> Iterator[dict[str, str]]:
    """The same as each convention stores it, in a cluster of its name."""
    for convention in conventions:
        for (place, name, exported), values in written.items():
            labels = {"cluster": convention.name} | convention.store(dict(exported), place)
            shown = ",".join(f'{label}="{text}"' for label, text in labels.items())
            yield {"series": f"{name}{{{shown}}}", "values": " ".join(values)}


def expects(expression: str, samples: Mapping[str, float]) -> dict[str, Any]:
    """The answer at the end of the history."""
    return expect(expression, f"{MINUTES}m", samples)


def judge(
    folder: Path,
    settings: str,
    tests: Iterable[dict[str, Any]],
    *,
    conventions: Iterable[Convention],
    target_labels: tuple[str, ...] = (),
) -> str:
    """promtool's verdict on the answers, over the rules of these settings."""
    groups = groups_of(folder, settings)
    assert set(_SERIES.findall(str(groups))) <= wanted()
    written = history(target_labels)
    series = {one["series"]: one["values"] for one in stored(written, conventions)}
    return ask(folder, series, tests, {f"{name}.yml": found for name, found in groups.items()})


def groups_of(folder: Path, settings: str) -> dict[str, list[dict[str, Any]]]:
    (folder / "settings.yml").write_text(settings)
    return choose_groups(read_settings(str(folder / "settings.yml"))[0])


def choose_groups(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    files = rule_files(settings)
    return {Path(name).stem: keep_groups(load_yaml(text)["groups"], GROUPS) for name, text in files.items()}


def same_everywhere(folder: Path, settings: str, number: int) -> Iterator[dict[str, Any]]:
    """Every record has the same series with the same values in each of so many clusters, and the same alerts fire."""
    records = {rule["record"] for group in groups_of(folder, settings)[RECORDS] for rule in group["rules"]}
    # how a scrape treats labels is what differs, and what it calls an exporter and its job
    for record in sorted(record for record in records if not record.startswith(("scrape:", "exporter:", "job:"))):
        yield expects(f"count without (cluster) ({record}) != {number}", {})
        yield expects(f"max without (cluster) ({record}) / min without (cluster) ({record}) > 1.000001", {})
    firing = f'ALERTS{{alertstate="firing",alertname!~"{OTHERS}"}}'
    yield expects(f"count without (cluster) ({firing}) != {number}", {})


CLUSTERS = "identity_labels: [cluster]\n"
NAMESPACED = "identity_labels: [cluster, namespace]\n"
UNIFIED = f'model_name="{MODEL}", role="unified"'


def in_each(labels: str, value: float, conventions: Conventions) -> dict[str, float]:
    return {f'{{cluster="{one.name}", {labels}}}': value for one in conventions}


@pytest.mark.parametrize("conventions", BESIDE_ONE_ANOTHER)
def test_records_alerts_and_drills_are_the_same_under_every_convention(
    tmp_path: Path, conventions: Conventions
) -> None:
    tests = [
        *same_everywhere(tmp_path, CLUSTERS, len(conventions)),
        expects("model:llm_serving_ready_replicas:sum * 1", in_each(UNIFIED, 5, conventions)),
        expects("model:llm_serving_nodes:count * 1", in_each(UNIFIED, 5, conventions)),
        expects(
            "sum by (cluster) (workload:llm_serving_answering_replicas:count)",
            {f'{{cluster="{one.name}"}}': 5 for one in conventions},
        ),
        expects(
            "count by (cluster) (count by (cluster, signal) (workload:llm_serving_signal_broken:bool)) > bool 5",
            {f'{{cluster="{one.name}"}}': 1 for one in conventions},
        ),
        expects("model:llm_serving_largest_node_replicas:max * 1", in_each(UNIFIED, 1, conventions)),
        expects(
            "count by (cluster) (model:llm_serving_n1_sufficient:bool)",
            {f'{{cluster="{one.name}"}}': 1 for one in conventions},
        ),
    ]
    for one in conventions:
        matchers = f'model_name="{MODEL}",role="unified",cluster="{one.name}"'
        nodes = {f'{{node="{node}"}}': 1.0 for namespace in NAMESPACES for node in namespace.nodes}
        tests.append(expects(names.replicas_by_node(matchers), nodes))
        ours = {"namespace", "pod", "container", "node"} & one.labels.keys()
        said = {f'{{label="{label}"}}': 1.0 for label in (() if one.honor else ours)}
        renamed = f'ALERTS{{alertstate="firing",alertname="{RENAMED}",cluster="{one.name}"}}'
        tests.append(expects(f"count by (label) ({renamed})", said))
    assert not judge(tmp_path, CLUSTERS, tests, conventions=conventions)


@pytest.mark.parametrize("conventions", BESIDE_ONE_ANOTHER)
def test_each_models_replicas_of_a_namespace_are_a_fleet_of_their_own_under_every_convention(
    tmp_path: Path, conventions: Conventions
) -> None:
    def both(value_of_search: float, value_of_chat: float) -> dict[str, float]:
        return in_each(search, value_of_search, conventions) | in_each(chat, value_of_chat, conventions)

    search, chat = (f'namespace="{namespace.name}", {UNIFIED}' for namespace in NAMESPACES)
    tests = [
        *same_everywhere(tmp_path, NAMESPACED, len(conventions)),
        expects("model:llm_serving_ready_replicas:sum * 1", both(3, 2)),
        expects("model:llm_serving_desired_replicas:max * 1", both(3, 3)),
        expects("model:llm_serving_nodes:count * 1", both(3, 2)),
        expects("model:llm_serving_n1_sufficient:bool * 1", both(1, 0)),
        # one of them is lost and the others work at their limit; the other namespace is none the worse for it
        expects(
            f'count by (alertname, namespace) (ALERTS{{alertstate="firing",cluster="plain",alertname!~"{OTHERS}"}})',
            {f'{{alertname="LLMServing{name}", namespace="chat"}}': 1 for name in ("N1Insufficient", "ReplicaLost")},
        ),
        *counted_by_drills(conventions),
    ]
    assert not judge(tmp_path, NAMESPACED, tests, conventions=conventions)


def counted_by_drills(conventions: Conventions) -> Iterator[dict[str, Any]]:
    """A drill of one namespace asks for the events, the nodes and the replicas of that one alone."""
    namespace = NAMESPACES[1]
    for one in conventions:
        scope = Scope(MODEL, "unified", (("cluster", one.name), ("namespace", namespace.name)))
        served = f'llm_serving_slo_events_total{{cluster="plain",slo="ttft",target=~"{namespace.name}/.*"}}'
        plain = f"sum by (outcome) (increase({served}[10m]))"
        yield expects(
            f"round(({names.ttft_events(scope, 600)}) / on (outcome) ({plain} > 0), 1e-6)", {'{outcome="bad"}': 1}
        )
        yield expects(names.replicas_by_node(scope.matchers), {f'{{node="{node}"}}': 1 for node in namespace.nodes})
        yield expects(names.replicas_alive(scope.matchers), {"{}": len(namespace.nodes)})


@pytest.mark.parametrize(
    "target_labels",
    [
        pytest.param((), marks=pytest.mark.soak, id="none"),
        pytest.param(("namespace", "team", "node"), marks=pytest.mark.e2e, id="namespace,team,node"),
    ],
)
def test_it_does_not_matter_which_labels_the_exporter_puts_on_every_series(
    tmp_path: Path, target_labels: tuple[str, ...]
) -> None:
    settings = "identity_labels: [cluster, namespace, team]\n"
    few = [one for one in CONVENTIONS if one.name in ("plain", "OpenShift")]
    chat = NAMESPACES[1]
    labels = f'namespace="{chat.name}", team="{chat.team}", {UNIFIED}'
    wanted = {f'{{cluster="{one.name}", {labels}}}': float(chat.wanted) for one in few}
    tests = [
        *same_everywhere(tmp_path, settings, len(few)),
        expects(f'model:llm_serving_desired_replicas:max{{namespace="{chat.name}"}} * 1', wanted),
    ]
    assert not judge(tmp_path, settings, tests, conventions=few, target_labels=target_labels)


@pytest.mark.e2e
def test_a_label_that_rules_need_and_a_scrape_takes_is_named_and_no_other_alert_comes_of_it(tmp_path: Path) -> None:
    taken = Convention(
        "mapped", False, {"namespace": "{namespace}", "role": "agent", "engine": "x", "state": "Running"}
    )
    dropping = Convention("dropping", False, {"namespace": "{namespace}", "node": "{node}"}, drops_renamed=True)
    forced = Convention("forced", True, {"namespace": "{namespace}"}, "{namespace}")
    tests = []
    for one, labels, how in (
        (taken, ("namespace", "role", "engine", "state"), "renamed"),
        (dropping, ("namespace", "node"), "overwritten"),
        (forced, ("namespace",), "overwritten"),
    ):
        firing = f'ALERTS{{alertstate="firing",cluster="{one.name}"'
        said = {f'{{how="{how}", label="{label}"}}': 1.0 for label in labels}
        more = f'{firing},alertname!~"{OTHERS}"}} unless on (alertname) ALERTS{{cluster="plain"}}'
        tests += [
            expects(f'count by (label, how) ({firing},alertname="{RENAMED}"}})', said),
            expects(f"count by (alertname) ({more})", {}),
        ]
    assert not judge(tmp_path, CLUSTERS, tests, conventions=(PLAIN, taken, dropping, forced))


# --- what a real Prometheus stores of one page under each convention is what `Convention.store` says ---


NODE = "node-4"
PLACE = EXPORTERS[NODE]
# a label that is empty here and the scrape's there, one that is renamed twice, one that is there under both names
ODD = {
    "namespace": "llm", "pod": "", "node": "a", "exported_node": "b", "endpoint": "x", "role": "decode", "prometheus": "", "own": "1",
}  # fmt: skip


def page() -> tuple[str, list[tuple[str, dict[str, str]]]]:
    """An exporter's page as text, and its series."""
    wanted = {
        f"llm_serving_{name}"
        for name in ("target_info", "target_node_info", "target_state", "gpu_up", "expected_replicas")
    }
    written = [
        (name, dict(labels))
        for place, (name, labels, _) in NamespacedFleet(("team",), wanted).write(1)
        if place == PLACE
    ]
    written.append(("llm_serving_odd", ODD))
    lines = []
    for name, labels in written:
        shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
        lines.append(f"{name}{{{shown}}} 1\n")
    return "".join(lines), written


def scrape(number: int, one: Convention, address: str) -> dict[str, Any]:
    static = {"targets": [address], "labels": {**one.of_target(PLACE), "case": one.name}}
    found: dict[str, Any] = {"job_name": f"job-{number}", "honor_labels": one.honor, "static_configs": [static]}
    if one.enforced:
        enforced = [{"target_label": "namespace", "replacement": PLACE.fill(one.enforced)}]
        found |= {"relabel_configs": enforced, "metric_relabel_configs": enforced}
    return found


@pytest.mark.process
def test_what_is_stored_is_what_is_said(tmp_path: Path) -> None:
    text, written = page()

    class Page(QuietHandler):
        def do_GET(self) -> None:
            self.answer(200, text.encode(), "text/plain; version=0.0.4")

    with serve(Page) as url:
        scrapes = [scrape(number, one, url.removeprefix("http://")) for number, one in enumerate(CONVENTIONS)]
        config = yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrapes})
        with PrometheusServer(tmp_path, config) as prometheus:
            count = f"count(count by (case) (llm_serving_odd)) == {len(CONVENTIONS)}"
            wait_until(lambda: prometheus.query(count), "a scrape by each convention")
            found = [sample["metric"] for sample in prometheus.query('{__name__=~"llm_serving_.+"}')]
    for one in CONVENTIONS:
        expected = [{"__name__": name, "case": one.name} | one.store(labels, PLACE) for name, labels in written]
        stored = [labels for labels in found if labels["case"] == one.name]
        assert sorted(map(sorted, map(dict.items, stored))) == sorted(map(sorted, map(dict.items, expected))), one.name
    assert any("exported_exported_node" in labels for labels in found)
