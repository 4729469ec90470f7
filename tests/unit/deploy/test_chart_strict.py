"""The Helm chart in clusters that are strict, crowded, or run by a GitOps controller."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm import CHART, NAME, exporter_config, kinds, pick, pod_spec, render, template
from tests.support.yaml_text import load_yaml
from tests.unit.deploy.test_chart import NONE_WILL_DO, SCHEMA, VALUES

MODES = ("daemonset", "statefulset", "sidecar")
REPORT = "report.enabled=true,report.settings.prometheus.url=http://prometheus:9090"
EVERYTHING = (
    "--set=scrape.kind=podmonitor,rules.enabled=true,dashboards.enabled=true,statefulset.shards=3",
    "--set=networkPolicy.enabled=true,networkPolicy.apiServer.cidrs={10.0.0.1/32}",
    f"--set={REPORT}",
)
# of each kind that is made: how long its name may be (validation of Kubernetes 1.34), where that is less than 253
MOST_CHARACTERS = {"Service": 63, "StatefulSet": 52, "CronJob": 52}
LONGEST_RELEASE = "r" * 53


def pods(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The templates of all pods, the engine's with the sidecar in it included."""
    found = []
    for one in manifests:
        if one["kind"] in ("DaemonSet", "StatefulSet"):
            found.append(one["spec"]["template"])
        elif one["kind"] == "CronJob":
            found.append(one["spec"]["jobTemplate"]["spec"]["template"])
        elif one["metadata"]["name"].endswith("-sidecar"):
            found += [load_yaml(text)["spec"]["template"] for text in one["data"].values()]
    assert found
    return found


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("containers", ()), *pod["spec"].get("initContainers", ())]


@pytest.mark.packages
@pytest.mark.parametrize("mode", MODES)
def test_a_value_without_anything_below_it_is_none_of_it(mode: str) -> None:
    """`affinity:` and nothing after it is null in YAML."""
    empty = [path for path, default in leaves(VALUES) if default in ([], {}, "") or path in NONE_WILL_DO]
    assert len(empty) > 30
    # the review has no use without its settings, and the policy none without the API server
    assert render(f"--set=mode={mode}", *(f"--set={path}=null" for path in empty))


def leaves(tree: dict[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, one in tree.items():
        path = f"{above}{name}"
        if isinstance(one, dict) and one and path not in NONE_WILL_DO:
            found += leaves(one, f"{path}.")
        else:
            found.append((path, one))
    return found


@pytest.mark.packages
@pytest.mark.parametrize("release", [LONGEST_RELEASE, "1234567", "with.dots.in-it", "a"])
def test_the_name_of_a_release_makes_names_that_kubernetes_takes(release: str) -> None:
    arguments = (*EVERYTHING, "--set=fullnameOverride=f") if release.isdigit() else EVERYTHING
    for one in render("--set=mode=statefulset", *arguments, name=release):
        name = one["metadata"]["name"]
        assert len(name) <= MOST_CHARACTERS.get(one["kind"], 253), one["kind"]
        assert "." not in name
        for label in one["metadata"]["labels"].values():
            # a number would be refused
            assert isinstance(label, str)
            assert len(label) <= 63
    assert {label for one in pods(render(name=release)) for label in one["metadata"]["labels"].values()} >= {release}


@pytest.mark.packages
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("word", ["no", "123", "null"])
def test_a_name_that_yaml_takes_for_something_else_stays_a_name(mode: str, word: str) -> None:
    """`no` is false to YAML and 123 a number, and either is a name to Kubernetes: of a namespace, a release, a class, an account."""
    values = [f"fullnameOverride={word},priorityClassName={word},runtimeClassName={word},serviceAccount.name={word}"]
    values += [f"discovery.namespaces={{{word}}},sidecar.namespaces={{{word}}},imagePullSecrets[0].name={word}"]
    values += [
        f"report.existingClaim={word},report.secretName={word},image.tag={word},sidecar.container={word},rbac.openshiftScc={word}"
    ]
    on = f"scrape.kind=podmonitor,networkPolicy.enabled=true,networkPolicy.apiServer.cidrs={{10.0.0.1/32}},{REPORT}"
    if word == "123" and mode == "statefulset":
        values.append("fullnameOverride=r123")
    if mode == "sidecar":
        on = "scrape.kind=podmonitor"
    texts = [f"--set-string={one}" for one in values]
    made = render("--namespace", word, f"--set=mode={mode},{on}", *texts, name=f"{word}-1")
    assert len(made) >= 3
    assert [path for one in (*made, *pods(made)) for path in no_text(one)] == []
    assert {one["metadata"].get("namespace", word) for one in made} == {word}


def no_text(tree: Any, above: str = "") -> list[str]:
    """Places of names and labels whose value is no text."""
    if isinstance(tree, list):
        return [path for one in tree for path in no_text(one, above)]
    if not isinstance(tree, dict):
        return []
    found = [path for name, one in tree.items() for path in no_text(one, f"{above}.{name}")]
    named = (
        "name", "namespace", "serviceAccountName", "priorityClassName", "runtimeClassName", "claimName", "secretName",
        "image", "serviceName",
    )  # fmt: skip
    texts = {
        **{name: tree[name] for name in named if name in tree},
        **tree.get("matchLabels", {}),
        **tree.get("labels", {}),
    }
    return [*found, *(f"{above}.{name}" for name, one in texts.items() if not isinstance(one, str))]


@pytest.mark.packages
def test_two_releases_share_no_object() -> None:
    """Names that a hyphen would make the same; what is of the cluster, or in an engine's namespace, is of either release."""

    def objects(namespace: str, name: str) -> set[tuple[str, str, str]]:
        made = render(
            "--namespace",
            namespace,
            f"--set=fullnameOverride={name},discovery.namespaces={{chat}},discovery.nodeData=true",
        )
        assert {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} <= set(kinds(made))
        return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in made}

    assert objects("team", "a-b").isdisjoint(objects("team-a", "b"))
    assert objects("team", "a").isdisjoint(objects("team", "b"))


@pytest.mark.packages
@pytest.mark.parametrize("kind", ["podmonitor", "scrapeconfig"])
def test_two_releases_of_sidecars_are_scraped_once_each(kind: str) -> None:
    """As one for vLLM on 8000 and one for SGLang on 30000 in a namespace: each has its own PodMonitor."""

    def selected_and_labelled(release: str) -> tuple[str, set[str]]:
        made = render(f"--set=mode=sidecar,scrape.kind={kind}", name=release)
        (scrape,) = (one for one in made if one["kind"] in ("PodMonitor", "ScrapeConfig"))
        label = {pod["metadata"]["labels"]["llm-serving-exporter/sidecar"] for pod in pods(made)}
        return str(scrape["spec"]), label

    for one, other in (("vllm", "sglang"), ("sglang", "vllm")):
        spec, (own,) = selected_and_labelled(one)
        _, (others,) = selected_and_labelled(other)
        assert re.search(rf"llm-serving-exporter/sidecar\W+{own}\b(?!-)", spec)
        assert not re.search(rf"\b{others}\b", spec)


@pytest.mark.packages
@pytest.mark.parametrize("mode", MODES)
def test_labels_of_a_value_stand_once_and_everywhere(mode: str) -> None:
    """`render` refuses a key that is there twice."""
    more = "commonLabels.release=all,commonLabels.team=serving,scrape.release=kps,scrape.labels.team=mine,podLabels.team=pods"
    made = render(f"--set=mode={mode},scrape.kind=podmonitor,rules.enabled=true,dashboards.enabled=true,{more}")
    assert all(one["metadata"]["labels"]["team"] in ("serving", "mine") for one in made)
    monitor = pick(made, "PodMonitor")["metadata"]["labels"]
    assert (monitor["release"], monitor["team"]) == ("kps", "mine")
    assert {one["metadata"]["labels"]["team"] for one in pods(made)} == {"pods"}


@pytest.mark.packages
def test_annotations_of_a_value_stand_once_and_win() -> None:
    for mode in MODES:
        for pod in pods(
            render(f"--set=mode={mode},scrape.kind=annotations", r"--set-string=podAnnotations.prometheus\.io/port=1")
        ):
            assert pod["metadata"]["annotations"]["prometheus.io/port"] == "1"


@pytest.mark.packages
def test_what_is_scraped_is_where_the_page_is() -> None:
    path = "config.web.telemetry_path=/engine-metrics"
    for mode in MODES:
        for pod in pods(render(f"--set=mode={mode},scrape.kind=annotations,{path}")):
            assert pod["metadata"]["annotations"]["prometheus.io/path"] == "/engine-metrics"
        (endpoint,) = pick(render(f"--set=mode={mode},scrape.kind=podmonitor,{path}"), "PodMonitor")["spec"][
            "podMetricsEndpoints"
        ]
        assert endpoint["path"] == "/engine-metrics"


@pytest.mark.packages
def test_the_endpoint_of_a_value_goes_over_the_charts() -> None:
    secrets = "scrape.endpoint.basicAuth.username.name=s,scrape.endpoint.interval=5s,scrape.endpoint.relabelings[0].action=labeldrop"
    (endpoint,) = pick(render(f"--set=scrape.kind=podmonitor,{secrets}"), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["basicAuth"] == {"username": {"name": "s"}}
    assert (endpoint["interval"], endpoint["honorLabels"]) == ("5s", True)
    spec = pick(render(f"--set=scrape.kind=scrapeconfig,{secrets}"), "ScrapeConfig")["spec"]
    # without the chart's own every port of every container would be scraped
    assert [one["action"] if "action" in one else one["targetLabel"] for one in spec["relabelings"]] == [
        "keep", "drop", "job", "labeldrop",
    ]  # fmt: skip


@pytest.mark.packages
@pytest.mark.parametrize("mode", MODES)
def test_a_probe_needs_no_password_and_no_certificate(mode: str) -> None:
    """The kubelet has neither: a page that asks for them answers with 401, and the pod would be killed again and again."""

    def probes(*arguments: str) -> set[str]:
        found = [one for pod in pods(render(f"--set=mode={mode}", *arguments)) for one in containers(pod)]
        assert all("livenessProbe" in one for one in found)
        assert all(("readinessProbe" in one) == (mode != "sidecar") for one in found)
        kinds = [probe.keys() for one in found for name, probe in one.items() if name.endswith("Probe")]
        return {kind for keys in kinds for kind in keys if kind not in ("periodSeconds", "timeoutSeconds")}

    assert probes() == {"httpGet"}
    assert probes("--set=config.web.config.file=/etc/web/web.yml") == {"tcpSocket"}
    assert probes("--set=config.web.config.file=/etc/web/web.yml,scheme=https") == {"tcpSocket"}
    assert probes("--set=extraArgs={--web.config.file=/etc/web/web.yml}") == {"tcpSocket"}


@pytest.mark.packages
def test_a_platform_may_assign_the_user() -> None:
    """OpenShift's restricted-v2 takes only a UID and a group of the namespace's own range, or none."""
    for mode in ("statefulset", "sidecar"):
        review = "" if mode == "sidecar" else f",{REPORT}"
        for pod in pods(render(f"--set=mode={mode},fixedUser=false{review}")):
            contexts = [pod["spec"].get("securityContext", {}), *(one["securityContext"] for one in containers(pod))]
            assert not {key for context in contexts for key in context} & {"runAsUser", "runAsGroup", "fsGroup"}
            assert any(context.get("runAsNonRoot") for context in contexts)
    # the directory of the kubelet's socket stays root's
    (container,) = pod_spec(render("--set=fixedUser=false"))["containers"]
    assert container["securityContext"]["runAsUser"] == 0


@pytest.mark.packages
def test_a_null_takes_a_key_of_the_security_context_away() -> None:
    (container,) = pod_spec(render("--set=mode=statefulset,securityContext.seccompProfile=null"))["containers"]
    assert "seccompProfile" not in container["securityContext"]
    assert None not in container["securityContext"].values()


@pytest.mark.packages
def test_nothing_of_the_exporter_selects_the_reviews_pod() -> None:
    """A policy for the exporter would keep the review from its Prometheus."""
    made = render("--set=mode=statefulset", *EVERYTHING, "--set=commonLabels.team=serving")
    (review,) = (pod for pod in pods(made) if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "report")
    labels = review["metadata"]["labels"]
    assert labels["team"] == "serving"
    for kind in ("NetworkPolicy", "PodDisruptionBudget", "Service", "StatefulSet"):
        spec = pick(made, kind)["spec"]
        selector = spec["selector"] if "selector" in spec else spec["podSelector"]
        assert not labels.items() >= selector.get("matchLabels", selector).items()


@pytest.mark.packages
def test_the_reviews_pod_has_a_place_of_its_own() -> None:
    own = "report.nodeSelector.disk=big,report.tolerations[0].key=batch,report.resources.limits.memory=2Gi"
    made = render(f"--set={REPORT},{own},report.podAnnotations.sidecar\\.istio\\.io/inject=no-proxy")
    pod = pick(made, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    assert pod["spec"]["nodeSelector"] == {"disk": "big"}
    assert pod["spec"]["tolerations"] == [{"key": "batch"}]
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    assert pod["metadata"]["annotations"] == {"sidecar.istio.io/inject": "no-proxy"}


@pytest.mark.packages
@pytest.mark.parametrize("mode", MODES)
def test_a_render_is_the_same_each_time_and_asks_no_cluster(mode: str) -> None:
    """What a GitOps controller renders every few minutes must not differ; nor must it run anything beside the objects."""
    arguments = (f"--set=mode={mode},scrape.kind=podmonitor,rules.enabled=true,dashboards.enabled=true",)
    first = template(*arguments)
    assert first.returncode == 0
    assert template(*arguments).stdout == first.stdout
    sources = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert not re.search(r"\b(lookup|rand\w*|uuidv4|now|genCA|genSignedCert|derivePassword)\b ", sources)
    assert "helm.sh/hook" not in sources


@pytest.mark.packages
def test_a_parent_chart_may_switch_it_on_and_off(tmp_path: Path) -> None:
    parent = {
        "apiVersion": "v2",
        "name": "platform",
        "version": "0.1.0",
        "dependencies": [{"name": NAME, "version": "*", "condition": f"{NAME}.enabled"}],
    }
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    (tmp_path / "values.yaml").write_text(
        yaml.safe_dump({"global": {"cluster": "a"}, NAME: {"enabled": True, "port": 12000}})
    )
    shutil.copytree(CHART, tmp_path / "charts" / NAME)
    assert "listen_address: :12000" in exporter_config(render(chart=tmp_path))
    assert render(f"--set={NAME}.enabled=false", chart=tmp_path) == []
    wrong = template(f"--set={NAME}.prot=1", chart=tmp_path)
    assert wrong.returncode != 0
    assert "additional properties 'prot' not allowed" in wrong.stderr


def test_what_has_a_shape_in_kubernetes_has_it_in_the_schema() -> None:
    """A key that Kubernetes does not know is refused by the schema: of lists of objects, all but peers, rules and volumes."""
    free = {
        path
        for path, one in lists(SCHEMA)
        if one.get("items", {}).get("type") == "object" and "additionalProperties" not in one["items"]
    }
    assert free == {"networkPolicy.dns.peers", "networkPolicy.scrapers", "networkPolicy.extraEgress"}


def lists(schema: dict[str, Any], above: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, one in schema.get("properties", {}).items():
        if one.get("type") == "array":
            found.append((f"{above}{name}", one))
        found += lists(one, f"{above}{name}.")
    return found
