"""One fleet's pages under every way to scrape them: all rules by vmalert, and what `drill --plan` says of each by a real Prometheus."""

import json
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.render import groups_text, rule_files
from llm_serving_alerts.rules import AlertRule
from llm_serving_alerts.settings_file import read_settings
from llm_serving_drill.command import run
from llm_serving_simulator.fleet.pages import labels_text
from tests.e2e.replay import read_by, recorded_by, rules_in_order, steps
from tests.support.conventions import BESIDE_ONE_ANOTHER, MODEL, Convention, NamespacedFleet
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.tsdb import make_blocks
from tests.support.servers.victoriametrics import VictoriaMetrics, replay
from tests.support.yaml_text import load_yaml

MINUTE, MINUTES = 60.0, 40
# Prometheus evaluates a group for the first time at some moment within its first interval
NEVER = "50y"
SETTINGS = "identity_labels: [cluster, namespace]\n"
# two say how a scrape treats labels, one that there is an exporter at all
OWN = ("LLMServingLabelsRenamed", "LLMServingWatchdog", "LLMServingExporterAbsent")

# job and instance are the scrape's own, and what LabelsRenamed tells
OF_THE_SCRAPE = {
    **{
        record: f"max without (job, instance) ({record})"
        for record in (
            "exporter:llm_serving_exporter:info",
            "exporter:llm_serving_exporter:seen",
            "exporter:llm_serving_expected_replicas:seen",
            "job:llm_serving_exporters:count",
        )
    },
    "fleet:llm_serving_check:verdict": 'fleet:llm_serving_check:verdict{check!="exporter"}',
}


@dataclass(frozen=True)
class Stored:
    """The last minutes of the fleet under some conventions, each in a cluster of its own, with all that the rules made of it."""

    conventions: tuple[Convention, ...]
    database: VictoriaMetrics
    end: float
    folder: Path


@pytest.fixture(scope="module", params=BESIDE_ONE_ANOTHER)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("conventions")
    (folder / "settings.yml").write_text(SETTINGS)
    settings = read_settings(str(folder / "settings.yml"))[0]
    groups = rules_in_order(settings)
    # a moment from now, so that a Prometheus that is started then looks back at its end
    end = time.time() // MINUTE * MINUTE + 2 * MINUTE
    begin = end - MINUTES * MINUTE
    fleet = NamespacedFleet((), read_by(groups), begin)
    with VictoriaMetrics(folder / "victoria") as database:
        with database.importing() as out:
            for minute in range(MINUTES + 1):
                stamp = round(1000 * (begin + minute * MINUTE))
                for place, (name, labels, value) in fleet.write(minute):
                    for one in request.param:
                        kept = {"cluster": one.name} | one.store(labels, place)
                        out.write(f"{name}{labels_text(kept)} {value:.12g} {stamp}\n")
        for number, together in enumerate(steps(groups)):
            file = folder / f"rules-{number}.yml"
            file.write_text(groups_text(together))
            replay(folder, database, [file], begin, end)
        yield Stored(request.param, database, end, folder)


def test_all_records_and_alerts_are_the_same(stored: Stored) -> None:
    database, end = stored.database, stored.end
    groups = rules_in_order(read_settings(str(stored.folder / "settings.yml"))[0])
    number, present = len(stored.conventions), set()
    # how a scrape treats labels is what differs
    for record in sorted(record for record in recorded_by(groups) if not record.startswith("scrape:")):
        shown = OF_THE_SCRAPE.get(record, record)
        found = database.query(f"count without (cluster) ({shown})", end)
        assert {sample["value"][1] for sample in found} <= {str(number)}, record
        present |= {record} if found else set()
        apart = f"max without (cluster) ({shown}) / min without (cluster) ({shown}) > 1.000001"
        assert database.query(apart, end) == [], record
    assert len(present) > 100
    alerts = {rule.alert for group in groups for rule in group.rules if isinstance(rule, AlertRule)} - {*OWN}
    firing = f'ALERTS{{alertstate="firing",alertname=~"{"|".join(sorted(alerts))}"}}'
    found = database.query(f"count without (cluster) ({firing})", end)
    assert {sample["value"][1] for sample in found} == {str(number)}
    assert {(sample["metric"]["alertname"], sample["metric"].get("namespace")) for sample in found} >= {
        ("LLMServingReplicaLost", "chat"),
        ("LLMServingN1Insufficient", "chat"),
    }
    assert not any(sample["metric"].get("namespace") == "search" for sample in found)


def test_a_drills_plan_is_the_same(stored: Stored, tmp_path: Path) -> None:
    source = tmp_path / "stored.om"
    with source.open("w") as out:
        for row in stored.database.rows('{__name__!=""}'):
            made = json.loads(row)
            labels = made["metric"]
            series = labels.pop("__name__") + labels_text(labels)
            for value, stamp in zip(made["values"], made["timestamps"], strict=True):
                if value is not None:
                    out.write(f"{series} {value} {stamp / 1000:.3f}\n")
        out.write("# EOF\n")
    make_blocks(source, tmp_path / "data")
    files = rule_files(read_settings(str(stored.folder / "settings.yml"))[0])
    # the rules are there to be asked about; what they make of this history is in it. An evaluation between two plans would tell them apart
    alerts = load_yaml(files["alerts.yml"])
    for group in alerts["groups"]:
        group["interval"] = NEVER
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(alerts))
    config = {"rule_files": [str(tmp_path / "alerts.yml")]}
    plans = {}
    with PrometheusServer(tmp_path, yaml.safe_dump(config)) as prometheus:
        for one in stored.conventions:
            for namespace in ("search", "chat"):
                selector = f'cluster="{one.name}",namespace="{namespace}"'
                said = StringIO()
                with redirect_stdout(said):
                    run(["--plan", "--model", MODEL, "--selector", selector, "--prometheus.url", prometheus.url])
                plans.setdefault(namespace, set()).add(said.getvalue().replace(one.name, "CLUSTER"))
    for namespace, found in plans.items():
        assert len(found) == 1, (namespace, found)
    (search,), (chat,) = plans["search"], plans["chat"]
    assert "node: node-1; replicas that may go: 1" in search
    assert "a drill may begin" in search
    assert "node: node-4" in chat
    assert "2 of 3 wanted ones are ready" in chat
