"""What a configuration says about who a target is: its place, labels of its own, its name, and which labels stand on every series."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.catalogue.own_labels import refuse_label_name
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, LABELS
from llm_serving_exporter.model.target import ExpectedReplicas, Identity
from llm_serving_exporter.settings.identity import read_host
from llm_serving_exporter.settings.options import Host
from tests.support.builders.configuration import load_text, problems_of
from tests.support.rows import check_rows

POD = {"POD_NAMESPACE": "prod", "POD_NAME": "chat-0", "POD_UID": "uid-1", "CONTAINER_NAME": "vllm", "NODE_NAME": "n1"}


def test_a_target_has_its_place_and_labels_of_its_own(tmp_path: Path) -> None:
    text = """
target_defaults: {namespace: prod, region: eu, labels: {team: ops, tier: gold}}
targets:
- {url: "http://10.0.0.7:8000", pod: chat-0, container: vllm, node: n1, workload: chat, workload_kind: Deployment, provider_id: i-0,
   instance_type: p5, labels: {team: search}}
- {url: "http://10.0.0.8:8000", namespace: other}
"""
    first, second = load_text(tmp_path, text).targets
    labels = (("team", "search"), ("tier", "gold"))
    assert first.identity == Identity("prod", "chat-0", "", "vllm", "chat", "Deployment", "i-0", "eu", "p5", labels)
    assert (first.name, first.nodes) == ("prod/chat-0:8000", ("n1",))
    assert second.identity == Identity("other", region="eu", labels=(("team", "ops"), ("tier", "gold")))
    assert second.name == "10.0.0.8:8000"


def test_a_sidecars_loopback_target_is_its_pod(tmp_path: Path) -> None:
    text = "targets: ['localhost:8000', 'http://10.0.0.9:1', {url: 'http://127.0.0.1:8001', name: mine}]\n"
    local, other, named = load_text(tmp_path, text, environ=POD).targets
    pod = Identity("prod", "chat-0", "uid-1", "vllm")
    assert (local.name, local.identity, local.nodes) == ("prod/chat-0:8000", pod, ("n1",))
    assert (other.name, other.identity, other.nodes) == ("10.0.0.9:1", Identity(), ())
    assert (named.name, named.identity) == ("mine", pod)


def test_every_exporter_gives_a_pod_the_same_name(tmp_path: Path) -> None:
    sidecar = load_text(tmp_path, "targets: ['localhost:8000']\n", environ=POD).targets[0]
    elsewhere = load_text(tmp_path, "targets: [{url: 'http://10.0.0.7:8000', namespace: prod, pod: chat-0}]\n").targets[
        0
    ]
    assert sidecar.name == elsewhere.name == "prod/chat-0:8000"


def test_a_target_that_is_said_to_be_another_pod_is_not_the_exporters(tmp_path: Path) -> None:
    text = "targets: [{url: 'http://localhost:8000', namespace: prod, pod: other}]\n"
    (target,) = load_text(tmp_path, text, environ=POD).targets
    assert (target.name, target.identity) == ("prod/other:8000", Identity("prod", "other"))


@pytest.mark.parametrize("left_out", ["POD_NAMESPACE", "POD_NAME"])
def test_half_a_pod_is_none(left_out: str) -> None:
    environ = {name: value for name, value in POD.items() if name != left_out}
    assert read_host(environ, host_name="h") == Host("h", "n1")


def test_a_pods_variables_are_checked(tmp_path: Path) -> None:
    expected = "environment variable POD_NAME: the pod contains a control character. Remove it; it may be a line break."
    assert problems_of(tmp_path, "targets: ['a:1']\n", environ={**POD, "POD_NAME": "a\nb"}) == [expected]


REFUSED = {*LABELS, *IDENTITY_LABELS, "le", "quantile", "job", "instance", "__a", "exported_team", "1a", "a-b", ""}


@check_rows("name", sorted(REFUSED))
def test_a_label_that_would_be_taken_for_another_is_refused(tmp_path: Path, name: str) -> None:
    refusal = refuse_label_name(name)
    (problem,) = problems_of(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{'{name}': x}}}}]\n")
    assert " ".join(refusal[:1]) in problem


@check_rows("name", ["team", "cluster", "Team_2", "_x"])
def test_any_other_label_is_a_targets_own(tmp_path: Path, name: str) -> None:
    (target,) = load_text(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{{name}: x}}}}]\n").targets
    assert target.identity.labels == ((name, "x"),)


def test_labels_are_bounded(tmp_path: Path) -> None:
    many = ", ".join(f"l{number}: x" for number in range(33))
    assert problems_of(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{{many}}}}}]\n") == [
        "targets[0].labels: 33 labels are more than 32. Keep those that somebody groups by."
    ]
    assert problems_of(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{team: {'x' * 201}}}}}]\n") == [
        "targets[0].labels.team: the label value has 201 characters. At most 200 are allowed."
    ]


def test_target_labels_name_identity_labels_and_own_ones(tmp_path: Path) -> None:
    text = "target_labels: [namespace, node, workload, team]\ntargets: ['a:1']\n"
    assert load_text(tmp_path, text).target_labels == ("namespace", "node", "workload", "team")


@check_rows(
    ("names", "fault"),
    [
        ("[model_name]", 'target_labels[0]: "model_name" is on series of the exporter anyway. Remove it.'),
        ("[phase]", 'target_labels[0]: "phase" is on series of the exporter anyway. Remove it.'),
        ("[job]", 'target_labels[0]: "job": Prometheus gives this label a meaning of its own. Choose another name.'),
        ("[team, team]", "target_labels: a label is named twice. Name each label once."),
        (
            "[a, b, c, d, e, f, g, h, i]",
            "target_labels: 9 labels are more than 8. Each of them stands on every series: keep those that rules and dashboards group by.",
        ),
    ],
)
def test_target_labels_are_checked(tmp_path: Path, names: str, fault: str) -> None:
    assert problems_of(tmp_path, f"target_labels: {names}\ntargets: ['a:1']\n") == [fault]


def test_replicas_of_equal_models_are_told_apart_by_their_identity(tmp_path: Path) -> None:
    text = """
targets: ['a:1']
expected_replicas:
- {model_name: m, replicas: 1}
- {model_name: m, replicas: 2, namespace: prod, labels: {team: a}}
- {model_name: m, replicas: 3, namespace: prod, workload: chat, workload_kind: Deployment, region: eu}
"""
    assert load_text(tmp_path, text).expected_replicas == (
        ExpectedReplicas("m", "unified", 1),
        ExpectedReplicas("m", "unified", 2, Identity("prod", labels=(("team", "a"),))),
        ExpectedReplicas("m", "unified", 3, Identity("prod", workload="chat", workload_kind="Deployment", region="eu")),
    )


def test_replicas_are_not_told_apart_by_what_comes_and_goes(tmp_path: Path) -> None:
    (problem,) = problems_of(
        tmp_path, "targets: ['a:1']\nexpected_replicas: [{model_name: m, replicas: 1, pod: chat-0}]\n"
    )
    assert problem.endswith(
        "expected_replicas[0].pod: this key is not allowed here. Replicas come and go: say which are meant by namespace, workload, "
        "workload_kind, region or labels."
    )
