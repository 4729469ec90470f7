"""`kubernetes:` in the configuration: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.settings import kubernetes as kubernetes_module
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from tests.support.builders.configuration import load_text, problems_of
from tests.support.rows import check_rows

POD = {"NODE_NAME": "gpu-node-3", "POD_NAMESPACE": "monitoring"}


def read(folder: Path, text: str, environ: dict[str, str] = POD) -> KubernetesDiscovery:
    (section,) = load_text(folder, f"kubernetes:\n  - {text}\n", environ=environ).discovery
    assert isinstance(section, KubernetesDiscovery)
    return section


def test_an_empty_section_is_every_known_pod_of_the_cluster(tmp_path: Path) -> None:
    section = read(tmp_path, "{}")
    assert (section.namespaces, section.node, section.selector, section.only_annotated) == ((), "", "", False)
    assert (section.pod_labels, section.node_data, section.loading_limit_seconds) == ((), False, 3600.0)
    assert (section.kubeconfig, section.context) == (None, None)


def test_every_key(tmp_path: Path) -> None:
    section = read(
        tmp_path,
        "{namespaces: [a, b, a], node: own, selector: 'app=vllm, tier in (x,y), !canary', only_annotated: true, "
        "pod_labels: [team, e.com/x], node_data: true, loading_limit: 20m, "
        "kubeconfig: kc, context: c, defaults: {group: g, auth: {bearer_token_file: t}}}",
    )
    assert (section.namespaces, section.node) == (("a", "b"), "gpu-node-3")
    assert section.selector == "app=vllm, tier in (x,y), !canary"
    assert (section.only_annotated, section.pod_labels, section.node_data) == (True, ("team", "e.com/x"), True)
    assert (section.loading_limit_seconds, section.context) == (1200.0, "c")
    assert section.kubeconfig == str(tmp_path / "kc")
    assert section.defaults.group == "g"
    assert section.defaults.http.bearer_token is not None


def test_the_own_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(tmp_path, "{namespaces: own}").namespaces == ("monitoring",)
    account = tmp_path / "namespace"
    account.write_text("other\n")
    monkeypatch.setattr(kubernetes_module, "NAMESPACE_FILE", account)
    assert read(tmp_path, "{namespaces: own}", {}).namespaces == ("other",)


@check_rows(
    ("text", "message"),
    [
        ("{namespaces: own}", "namespaces: the exporter's own namespace is not known. Set the environment variable POD_NAMESPACE "),
        ("{node: own}", "node: the exporter's own node is not known. Set the environment variable NODE_NAME from spec.nodeName, "),
        ("{namespaces: []}", "namespaces: no namespace is named. Write names, all, or own."),
        ("{namespaces: everywhere}", "namespaces: must be a list of namespaces; or all, or own, not text."),
        ("{namespaces: [A_b]}", 'namespaces[0]: "A_b" is not the name of a namespace.'),
        ("{selector: 'app vllm'}", 'selector: "app vllm" is not a label selector. Write one as in app=vllm,tier in (chat, code).'),
        ("{selector: 'app=vllm,'}", "selector: "),
        ("{selector: app=vllm&limit=1}", "selector: "),
        ("{pod_labels: ['a b']}", 'pod_labels[0]: "a b" is not the name of a label.'),
        ("{pod_labels: [team, role]}", 'pod_labels: a target cannot keep "role": this is a key of a target, '),
        ("{pod_labels: [example.com/x, target]}", 'pod_labels: a target cannot keep "target": series of the exporter have '),
        ("{pod_labels: [le]}", 'pod_labels: a target cannot keep "le": '),
        ("{pod_labels: [team.a, team-a]}", 'pod_labels: "team.a" and "team-a" would both be the label team_a. Keep one of them.'),
        ("{loading_limit: soon}", "loading_limit: "),
        ("{context: c}", "context: there is no kubeconfig that it belongs to."),
        ("{namespace: a}", "namespace: this key is not allowed here. Write namespaces: [NAME]."),
        ("{nodes: own}", "nodes: this key is not known. Did you mean node?"),
        ("{defaults: {auth: {bearer_token_file: t}}}", "defaults: credentials would go to pods of every namespace, "),
        ("{namespaces: all, defaults: {headers: {X-Token: {file: f}}}}", "defaults: credentials would go to pods of every namespace, "),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_module, "NAMESPACE_FILE", tmp_path / "absent")
    (found,) = problems_of(tmp_path, f"kubernetes:\n  - {text}\n")
    assert found.startswith(f"kubernetes[0].{message}")


def test_many_namespaces_and_labels_are_refused(tmp_path: Path) -> None:
    many = ", ".join(f"n{number}" for number in range(51))
    (found,) = problems_of(tmp_path, f"kubernetes:\n  - {{namespaces: [{many}]}}\n")
    assert "51 namespaces are more than 50. Write namespaces: all, and a selector." in found
    (found,) = problems_of(tmp_path, f"kubernetes:\n  - {{pod_labels: [{many}]}}\n")
    assert "more than 16 labels are named" in found


def test_credentials_of_all_targets_do_not_go_to_pods(tmp_path: Path) -> None:
    text = "target_defaults: {auth: {bearer_token_file: t}, interval: 7s}\nkubernetes: [{}]\n"
    config = load_text(tmp_path, text)
    (section,) = config.discovery
    assert section.defaults.http.bearer_token is None
    assert section.defaults.interval_seconds == 7.0
    assert any(
        "credentials in target_defaults.auth do not go to the targets of this section" in one for one in config.warnings
    )


def test_claimed_devices_are_read_by_the_first_section_of_a_node(tmp_path: Path) -> None:
    text = "gpu: {dra: true}\nkubernetes: [{selector: a=b}, {node: own}, {node: own, selector: a=c}]\n"
    sections = load_text(tmp_path, text, environ=POD).discovery
    assert [one.claimed_devices for one in sections if isinstance(one, KubernetesDiscovery)] == [False, True, False]
    assert not read(tmp_path, "{node: own}").claimed_devices


def test_claimed_devices_without_a_section_of_a_node_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = problems_of(tmp_path, "gpu: {dra: true}\nkubernetes: [{}]\n")
    assert found == (
        "gpu.dra: no section of kubernetes looks at one node, whose ResourceSlices could be read. "
        "Write kubernetes: [{node: own}], or leave out gpu.dra."
    )
    # what is wrong with the section is enough
    monkeypatch.setattr(kubernetes_module, "CLIENT", "no_such_client")
    (found,) = problems_of(tmp_path, "gpu: {dra: true}\nkubernetes: [{node: a}]\n")
    assert found.startswith("kubernetes[0]: the client of Kubernetes is not installed")


def test_without_the_client_the_section_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_module, "CLIENT", "no_such_client")
    (found,) = problems_of(tmp_path, "kubernetes: [{}]\n")
    assert found == (
        "kubernetes[0]: the client of Kubernetes is not installed. Run pip install 'llm-serving-exporter[kubernetes]'."
    )
