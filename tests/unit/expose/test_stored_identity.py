"""What a real Prometheus stores of the page when its scrape has labels for the exporter's own pod: read back, not off the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS
from tests.nvml_stub.stub import StubState, stub_environment
from tests.support.builders.recordings import recording
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.stepped import SteppedServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

# as a scrape of Kubernetes adds them
OF_EXPORTER = {"namespace": "monitoring", "pod": "exporter-0", "container": "exporter", "node": "node-of-exporter"}
HONOURED, RENAMED = "honoured", "renamed"
WRITTEN = "llm_serving_written_labels_info"
Stored = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, nvml_library: Path) -> Iterator[Stored]:
    """The labels of every stored series, by scrape job."""
    folder = tmp_path_factory.mktemp("stored")
    drill = {"model_name": "m", "role": "unified", "last_run_unix_seconds": 1.0, "last_success_unix_seconds": 1.0}
    drill |= {"last_verdict": "passed", "namespace": "prod", "labels": {"team": "search"}}
    (folder / "drills.json").write_text(json.dumps({"version": 1, "models": [drill]}))
    with SteppedServer(recording("vllm-0.32")) as known, SteppedServer(recording("vllm-0.32")) as unknown:
        known.show(60)
        unknown.show(60)
        (folder / "exporter.yml").write_text(
            f"""
target_labels: [namespace, team]
targets:
- {{url: '{known.url}', namespace: prod, pod: chat-0, container: vllm, node: n1, workload: chat, gpus: [0],
   labels: {{team: search, tier: gold}}}}
- {{url: '{unknown.url}', name: bare, gpus: none}}
expected_replicas: [{{model_name: m, replicas: 2, namespace: prod, labels: {{team: search}}}}]
drill: {{result_file: '{folder}/drills.json'}}
scrape: {{interval: 200ms}}
"""
        )
        environment = stub_environment(nvml_library, StubState(folder / "state", gpus=1).path)
        with Exporter("--config.file", str(folder / "exporter.yml"), env=environment, gpus=True) as exporter:
            exporter.until(
                lambda page: (
                    page.total("target_up") == 2
                    and bool(page.series("gpu_target_info"))
                    and bool(page.series("drill_last_verdict"))
                ),
                "both targets, the GPU and the drill",
            )
            yield scrape(folder / "prometheus", exporter)


def scrape(folder: Path, exporter: Exporter) -> Stored:
    added = ", ".join(f"{name}: {text}" for name, text in {**OF_EXPORTER, "tier": "platform"}.items())
    jobs = "".join(
        f"- {{job_name: {job}, honor_labels: {honour}, scrape_interval: 1s, "
        f"static_configs: [{{targets: ['{exporter.url.removeprefix('http://')}'], labels: {{{added}}}}}]}}\n"
        for job, honour in ((HONOURED, "true"), (RENAMED, "false"))
    )
    # the last family of the page: the whole page is stored at once
    last = 'count by (job) (llm_serving_drill_last_verdict{verdict="passed"})'
    with PrometheusServer(folder, f"scrape_configs:\n{jobs}") as prometheus:
        wait_until(lambda: len(prometheus.query(last)) == 2, "a scrape of each job")
        found = [one["metric"] for one in prometheus.query('{__name__=~"llm_serving_.+"}')]
    return {job: [labels for labels in found if labels["job"] == job] for job in (HONOURED, RENAMED)}


def is_of_exporter(labels: dict[str, str]) -> bool:
    """Whether a series is about the exporter itself."""
    return not {"target", "gpu", "model_name"} & set(labels) and labels["__name__"] != WRITTEN


def test_what_a_scrape_does_to_labels_stands_on_one_series(stored: Stored) -> None:
    names = (*IDENTITY_LABELS, "team", "tier")
    (kept,), (renamed,) = ([one for one in stored[job] if one["__name__"] == WRITTEN] for job in (HONOURED, RENAMED))
    assert {name: kept[name] for name in names} == dict.fromkeys(names, "as written")
    added = {**OF_EXPORTER, "tier": "platform"}
    assert {name: renamed[name] for name in added} == added
    assert {name: renamed[f"exported_{name}"] for name in added} == dict.fromkeys(added, "as written")


def test_a_label_that_one_target_has_is_not_filled_in_on_another(stored: Stored) -> None:
    found = {
        labels["target"]: labels.get("tier")
        for labels in stored[HONOURED]
        if labels["__name__"] == "llm_serving_target_info"
    }
    assert sorted(map(str, found.values())) == ["None", "gold"]
    stated = [labels for labels in stored[HONOURED] if labels["__name__"] == "llm_serving_expected_replicas"]
    assert [labels.get("tier") for labels in stated] == [None]


def test_no_stored_series_of_something_else_has_the_exporters_place(stored: Stored) -> None:
    checked = 0
    for labels in stored[HONOURED]:
        if is_of_exporter(labels):
            # one of them says itself on which node that is
            says_node = labels["__name__"] == "llm_serving_exporter_mode_info"
            assert {
                name: text for name, text in OF_EXPORTER.items() if not (says_node and name == "node")
            }.items() <= labels.items()
        else:
            assert not OF_EXPORTER.items() & labels.items(), labels
            checked += 1
    assert checked > 500
    about = {name for labels in stored[HONOURED] for name in ("target", "gpu", "model_name") if name in labels}
    assert about == {"target", "gpu", "model_name"}


def test_the_stored_identity_is_the_targets(stored: Stored) -> None:
    found = stored[HONOURED]
    known = [labels for labels in found if labels.get("target") == "prod/chat-0:" + port_of(found)]
    assert len(known) > 200
    for labels in known:
        assert (labels["namespace"], labels["team"]) == ("prod", "search")
    (info,) = (labels for labels in known if labels["__name__"] == "llm_serving_target_info")
    assert {"pod": "chat-0", "container": "vllm", "node": "n1", "workload": "chat"}.items() <= info.items()
    for labels in found:
        if labels.get("target") == "bare":
            expected = {"node"} if labels["__name__"].endswith(("target_info", "target_node_info")) else set()
            assert {"namespace", "pod", "container", "node", "team"} & set(labels) <= expected, labels
    fleet = [labels for labels in found if "expected_replicas" in labels["__name__"] or "_drill_" in labels["__name__"]]
    assert len(fleet) == 6
    assert all({"namespace": "prod", "team": "search"}.items() <= labels.items() for labels in fleet)
    gpus = [labels for labels in found if labels["__name__"] == "llm_serving_gpu_up"]
    assert [set(OF_EXPORTER) & set(labels) for labels in gpus] == [{"node"}]


def port_of(found: list[dict[str, str]]) -> str:
    (name,) = {labels["target"] for labels in found if labels.get("target", "bare") != "bare"}
    return name.rpartition(":")[2]


def test_without_honor_labels_what_the_exporter_says_stands_beside_it_renamed(stored: Stored) -> None:
    """Nothing is lost: the rules read `exported_X` where it is there."""
    (info,) = (
        labels
        for labels in stored[RENAMED]
        if labels["__name__"] == "llm_serving_target_info" and labels["target"] != "bare"
    )
    assert OF_EXPORTER.items() <= info.items()
    renamed = {name.removeprefix("exported_"): text for name, text in info.items() if name.startswith("exported_")}
    assert renamed == {"namespace": "prod", "pod": "chat-0", "container": "vllm", "node": "n1", "tier": "gold"}
    assert (info["team"], info["workload"]) == ("search", "chat")
    assert len(stored[RENAMED]) == len(stored[HONOURED])
