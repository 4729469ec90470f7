"""The Helm chart as helm renders it: three modes, what they may do, which values are refused; the exporter takes each configuration."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from llm_serving_review.settings.price_files import read_price_files
from tests.support.builders.configuration import load_text
from tests.support.helm import (
    CHART,
    KUBE_VERSION,
    NAME,
    STACKS,
    exporter_config,
    kinds,
    pick,
    pod_spec,
    render,
    run_helm,
    template,
)
from tests.support.paths import ROOT
from tests.support.yaml_text import load_all_yaml, load_yaml

pytestmark = pytest.mark.packages

CI = sorted((CHART / "ci").glob("*.yaml"))
OLDER = sorted((ROOT / "tests/unit/deploy/values").glob("values-*.yaml"))
MODES = ("daemonset", "statefulset", "sidecar")
# what `kubectl apply` keeps of an object in an annotation, and Helm of a release in a Secret
MOST_ANNOTATION_BYTES, MOST_SECRET_BYTES = 262_144, 1_048_576


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        # those of CI are of one mode, the others go with each
        *(pytest.param(path, (), id=path.stem) for path in CI),
        *(
            pytest.param(path, (f"--set=mode={mode}",), id=f"{path.stem}-{mode}")
            for path in (*sorted(STACKS.glob("*.yaml")), *OLDER)
            for mode in MODES
        ),
    ],
)
def test_every_values_file_passes_lint_and_renders(values: Path, chosen: tuple[str, ...]) -> None:
    done = run_helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, "--values", str(values), *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    for manifest in render("--values", str(values), *chosen):
        assert {"apiVersion", "kind", "metadata"} <= manifest.keys()
        wide = manifest["kind"] in ("ClusterRole", "ClusterRoleBinding")
        assert wide or manifest["metadata"]["namespace"]


def test_the_daemonset_is_root_and_may_do_nothing_else() -> None:
    spec = pod_spec(render())
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostPID", "hostNetwork", "hostIPC"} & spec.keys()
    (host,) = (volume for volume in spec["volumes"] if "hostPath" in volume)
    # a directory that is made where there is none would hide that the kubelet's root is another one
    assert host["hostPath"] == {"path": "/var/lib/kubelet/pod-resources", "type": "Directory"}
    writable = [mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["llm-serving-exporter-state"]


@pytest.mark.parametrize("mode", MODES)
def test_the_counters_of_cost_have_a_folder_that_outlives_the_container(mode: str) -> None:
    manifests = render(f"--set=mode={mode}")
    assert load_yaml(exporter_config(manifests))["state_dir"] == "/var/lib/llm-serving-exporter"
    if mode == "sidecar":
        return  # its container is a patch, which the tests of sidecars read
    spec = pod_spec(manifests)
    (volume,) = (one for one in spec["volumes"] if one["name"] == "llm-serving-exporter-state")
    assert volume["emptyDir"] == {"sizeLimit": "128Mi"}
    (mount,) = (one for one in spec["containers"][0]["volumeMounts"] if one["name"] == volume["name"])
    assert mount["mountPath"] == "/var/lib/llm-serving-exporter"


def test_the_folder_may_be_a_volume_or_left_out() -> None:
    claim = {"claimName": "costs"}
    chosen = ("--set=state.volume.emptyDir=null", "--set=state.volume.persistentVolumeClaim.claimName=costs")
    (volume,) = (one for one in pod_spec(render(*chosen))["volumes"] if one["name"] == "llm-serving-exporter-state")
    assert volume == {"name": "llm-serving-exporter-state", "persistentVolumeClaim": claim}
    without = render("--set=state.enabled=false")
    assert "state_dir" not in exporter_config(without)
    assert "llm-serving-exporter-state" not in str(pod_spec(without))


def downward(container: dict[str, Any]) -> dict[str, str]:
    """The variables that Kubernetes fills, each with the field that it takes."""
    return {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"] if "valueFrom" in one}


def test_only_a_sidecar_takes_its_own_pod_for_its_engines() -> None:
    """Elsewhere loopback is not the engine's pod: with hostNetwork it is the node."""
    assert downward(pod_spec(render("--set=daemonset.hostNetwork=true"))["containers"][0]) == {
        "NODE_NAME": "spec.nodeName"
    }
    # the name of a StatefulSet's pod ends in the ordinal of its shard
    assert downward(pod_spec(render("--set=mode=statefulset"))["containers"][0]) == {
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
    }
    patches = pick(render("--set=mode=sidecar,sidecar.container=engine"), "ConfigMap", f"{NAME}-sidecar")["data"]
    for name, containers in (("native.yml", "initContainers"), ("plain.yml", "containers")):
        (container,) = load_yaml(patches[name])["spec"]["template"]["spec"][containers]
        assert downward(container) == {
            "NODE_NAME": "spec.nodeName",
            "POD_NAME": "metadata.name",
            "POD_NAMESPACE": "metadata.namespace",
            "POD_UID": "metadata.uid",
        }
        assert {"name": "CONTAINER_NAME", "value": "engine"} in container["env"]


def test_the_kubelets_root_and_selinux_are_values() -> None:
    spec = pod_spec(render("--set=kubelet.root=/data/kubelet/,seLinuxOptions.type=spc_t,daemonset.hostPID=true"))
    assert [one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one] == ["/data/kubelet/pod-resources"]
    # the socket stays where the configuration says that it is
    mounted = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    assert mounted["pod-resources"] == "/var/lib/kubelet/pod-resources"
    assert spec["containers"][0]["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert spec["hostPID"] is True


@pytest.mark.parametrize("arguments", ["mode=statefulset", "gpu.kubelet=false"])
def test_without_the_kubelets_socket_nobody_is_root(arguments: str) -> None:
    spec = pod_spec(render(f"--set={arguments}"))
    context = spec["containers"][0]["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 65532)
    assert [volume for volume in spec["volumes"] if "hostPath" in volume] == []


def sidecars(*arguments: str) -> dict[str, dict[str, Any]]:
    found = pick(render("--set=mode=sidecar", *arguments), "ConfigMap", f"{NAME}-sidecar")
    return {name: load_yaml(text)["spec"]["template"] for name, text in found["data"].items()}


def test_a_sidecar_takes_no_engine_out_of_service() -> None:
    patches = sidecars()
    native, plain = patches["native.yml"]["spec"], patches["plain.yml"]["spec"]
    (inside,), (beside,) = native["initContainers"], plain["containers"]
    assert "containers" not in native
    assert "initContainers" not in plain
    # the one difference: an init container that stays
    assert inside == {**beside, "restartPolicy": "Always"}
    assert not {"readinessProbe", "startupProbe"} & inside.keys()
    assert inside["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    assert inside["securityContext"]["runAsNonRoot"] is True
    assert (
        native["volumes"]
        == plain["volumes"]
        == [
            {"name": "llm-serving-exporter-config", "configMap": {"name": f"{NAME}-config"}},
            {"name": "llm-serving-exporter-state", "emptyDir": {"sizeLimit": "128Mi"}},
        ]
    )


def test_a_sidecars_configuration_is_in_each_namespace() -> None:
    made = render("--set=mode=sidecar,sidecar.namespaces={chat,code},sidecar.target.url=http://localhost:30000")
    configs = [one for one in made if "exporter.yml" in one["data"]]
    assert [one["metadata"]["namespace"] for one in configs] == ["chat", "code"]
    assert kinds(made) == ["ConfigMap"] * 3
    assert load_yaml(exporter_config(made))["targets"] == [{"url": "http://localhost:30000"}]
    monitor = pick(render("--set=mode=sidecar,sidecar.namespaces={chat,code},scrape.kind=podmonitor"), "PodMonitor")
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["chat", "code"]}
    for patch in sidecars().values():
        assert patch["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()


@pytest.mark.parametrize("mode", MODES)
def test_prometheus_finds_the_pods_and_keeps_their_labels(mode: str) -> None:
    made = render(f"--set=mode={mode},scrape.kind=podmonitor,scrape.release=kps,port=12000")
    monitor = pick(made, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "kps"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    config = pick(render(f"--set=mode={mode},scrape.kind=scrapeconfig,scrape.release=kps"), "ScrapeConfig")
    assert config["spec"]["honorLabels"] is True
    assert config["metadata"]["labels"]["release"] == "kps"
    if mode == "sidecar":
        return
    (workload,) = (one for one in made if one["kind"] in ("DaemonSet", "StatefulSet"))
    pod = workload["spec"]["template"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert pod["metadata"]["labels"].items() >= wanted
    assert {"name": endpoint["port"], "containerPort": 12000, "protocol": "TCP"} in pod["spec"]["containers"][0][
        "ports"
    ]
    (selection,) = config["spec"]["kubernetesSDConfigs"][0]["selectors"]
    assert dict(part.split("=") for part in selection["label"].split(",")) == dict(wanted)
    assert load_yaml(exporter_config(made))["web"]["listen_address"] == ":12000"


def test_annotations_are_for_prometheus_without_an_operator() -> None:
    for pod in [
        pick(render("--set=scrape.kind=annotations"), "DaemonSet")["spec"]["template"],
        *sidecars("--set=scrape.kind=annotations").values(),
    ]:
        assert (
            pod["metadata"]["annotations"].items()
            >= {"prometheus.io/scrape": "true", "prometheus.io/port": "10077"}.items()
        )


def rules_of(manifests: list[dict[str, Any]], kind: str) -> list[tuple[str, list[str]]]:
    return [
        (resource, rule["verbs"])
        for one in manifests
        if one["kind"] == kind
        for rule in one["rules"]
        for resource in rule["resources"]
    ]


def test_rights_are_what_the_values_want_and_no_more() -> None:
    watch = ["list", "watch"]
    plain = render()
    assert rules_of(plain, "ClusterRole") == [("pods", watch)]
    assert "Role" not in kinds(plain)
    some = render("--set=discovery.namespaces={chat,code}")
    assert not {"ClusterRole", "ClusterRoleBinding"} & set(kinds(some))
    assert [one["metadata"]["namespace"] for one in some if one["kind"] == "RoleBinding"] == ["chat", "code"]
    assert rules_of(some, "Role") == [("pods", watch)] * 2
    wide = render("--set=discovery.namespaces={chat},discovery.nodeData=true,gpu.dra=true")
    assert rules_of(wide, "ClusterRole") == [("nodes", watch), ("resourceslices", watch)]
    assert load_yaml(exporter_config(wide))["gpu"]["dra"] is True
    assert "dra" not in load_yaml(exporter_config(plain))["gpu"]
    assert kinds(render("--set=rbac.create=false,serviceAccount.create=false")) == ["ConfigMap", "DaemonSet"]


def test_the_account_of_the_pods_is_the_one_that_has_the_rights() -> None:
    for arguments in ("mode=daemonset", "mode=statefulset,serviceAccount.name=other", "discovery.namespaces={chat}"):
        made = render(f"--set={arguments}")
        account = pick(made, "ServiceAccount")["metadata"]
        assert pod_spec(made)["serviceAccountName"] == account["name"]
        assert pod_spec(made)["automountServiceAccountToken"] is True
        for binding in (one for one in made if one["kind"].endswith("RoleBinding")):
            assert binding["subjects"] == [
                {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
            ]


def test_who_asks_no_api_server_has_no_token() -> None:
    made = render("--set=discovery.enabled=false")
    assert pod_spec(made)["automountServiceAccountToken"] is False
    assert not {"ClusterRole", "Role"} & set(kinds(made))
    assert "kubernetes" not in load_yaml(exporter_config(made))


def test_a_disruption_budget_is_there_for_several_shards_and_blocks_no_drain() -> None:
    assert "PodDisruptionBudget" not in kinds(render("--set=mode=statefulset"))
    assert "PodDisruptionBudget" not in kinds(render())
    made = render("--set=mode=statefulset,statefulset.shards=3")
    budget = pick(made, "PodDisruptionBudget")["spec"]
    # minAvailable, or unhealthy pods that count, can keep a node from ever being drained
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert "minAvailable" not in budget
    workload = pick(made, "StatefulSet")["spec"]
    assert workload["template"]["metadata"]["labels"].items() >= budget["selector"]["matchLabels"].items()
    assert workload["replicas"] == 3
    assert workload["podManagementPolicy"] == "Parallel"
    assert load_yaml(exporter_config(made))["shard"] == "ordinal/3"


def test_the_network_policy_lets_through_what_is_needed() -> None:
    made = render(
        "--set=mode=statefulset,networkPolicy.enabled=true,networkPolicy.apiServer.cidrs={10.0.0.1/32},discovery.namespaces={chat}"
    )
    spec = pick(made, "NetworkPolicy")["spec"]
    pod = pick(made, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert pod.items() >= spec["podSelector"]["matchLabels"].items()
    names, server, engines = spec["egress"]
    # OpenShift's answer behind their Service on 5353; NodeLocal DNSCache is no pod of the network
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {
        (protocol, port) for protocol in ("TCP", "UDP") for port in (53, 5353)
    }
    assert names["to"] == [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "169.254.20.10/32"}}]
    assert server["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert {port["port"] for port in server["ports"]} == {443, 6443}
    (peer,) = engines["to"]
    assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == ["chat"]
    assert {port["port"] for port in engines["ports"]} == {8000, 8080, 8200, 30000}
    assert spec["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 10077}]


def test_a_change_of_the_configuration_rolls_the_pods() -> None:
    def checksum(*arguments: str) -> str:
        return str(
            pick(render(*arguments), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        )

    prices = '--set-json=prices={"prices":[{"gpu_model":"L4","usd_per_gpu_hour":1}]}'
    seen = {checksum(), checksum("--set=config.slo.ttft=1s"), checksum(prices)}
    assert len(seen) == 3
    assert checksum() == checksum("--set=resources.limits.memory=1Gi")


def test_the_users_configuration_wins() -> None:
    made = render("--set=config.gpu.gpm=false,config.kubernetes[0].selector=app=mine,config.slo.ttft=1s")
    found = load_yaml(exporter_config(made))
    assert found["kubernetes"] == [{"selector": "app=mine"}]
    assert found["gpu"] == {"gpm": False, "pod_resources_socket": "/var/lib/kubelet/pod-resources/kubelet.sock"}
    assert found["slo"] == {"ttft": "1s"}


def test_rules_and_dashboards_are_the_committed_ones() -> None:
    made = render("--set=rules.enabled=true,dashboards.enabled=true,scrape.release=kps")
    for name in ("records", "alerts"):
        rule = pick(made, "PrometheusRule", f"llm-serving-{name}")
        assert rule["spec"] == load_yaml((ROOT / f"alerts/rendered/{name}.yml").read_text())
        assert rule["metadata"]["labels"]["release"] == "kps"
    boards = {path.name: path.read_text() for path in (ROOT / "dashboards/rendered").glob("*.json")}
    shown = [one for one in made if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert {name: json.loads(text) for one in shown for name, text in one["data"].items()} == {
        name: json.loads(text) for name, text in boards.items()
    }
    assert all(one["metadata"]["labels"]["release"] == "kps" for one in shown)
    names = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert len(names) == len(set(names))


def test_nothing_is_too_large_for_kubectl_or_helm() -> None:
    done = template("--set=rules.enabled=true,dashboards.enabled=true,scrape.kind=podmonitor")
    manifests = [document for document in load_all_yaml(done.stdout) if document]
    assert max(len(json.dumps(one)) for one in manifests) < MOST_ANNOTATION_BYTES
    files = {str(path): path.read_text() for path in CHART.rglob("*") if path.is_file()}
    # Helm keeps the chart's files and the rendered manifest, compressed, in base64 twice over
    release = base64.b64encode(base64.b64encode(gzip.compress(json.dumps([files, done.stdout]).encode())))
    # a quarter is left for what a user's values add; the runbooks' dashboard alone is a fifth
    assert len(release) < MOST_SECRET_BYTES * 3 / 4


def notes(tmp_path: Path, *arguments: str) -> str:
    """The notes as an installation prints them: `helm template` leaves them out."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    shutil.copy(CHART / "templates/NOTES.txt", chart / "files/notes.txt")
    (chart / "templates/shown.yaml").write_text('shown: {{ tpl (.Files.Get "files/notes.txt") . | toJson }}\n')
    done = template("--show-only", "templates/shown.yaml", *arguments, chart=chart)
    assert done.returncode == 0, done.stderr
    return str(load_yaml(done.stdout)["shown"])


def test_the_notes_say_how_to_see_the_first_series(tmp_path: Path) -> None:
    found = notes(tmp_path)
    assert "rollout status daemonset/llm-serving-exporter" in found
    assert "grep llm_serving_target_up" in found
    assert "NOTHING SCRAPES IT YET" in found
    assert "pod-security.kubernetes.io/enforce=privileged" in found
    found = notes(tmp_path, "--set=mode=statefulset,scrape.kind=podmonitor,discovery.selectors={app=vllm}")
    assert "the label `release` is missing" in found
    assert "kubectl get prometheus -A" in found
    assert "kubectl get pods -l 'app=vllm' -A" in found
    assert "privileged" not in found
    found = notes(tmp_path, "--set=scrape.kind=podmonitor,scrape.release=kps,daemonset.hostNetwork=true")
    assert "release=kps" in found
    assert "no NetworkPolicy binds these pods" in found
    found = notes(tmp_path, "--set=mode=sidecar,sidecar.namespaces={chat}")
    assert "kubectl -n chat patch deployment ENGINE --patch-file sidecar.yml" in found


def test_the_review_is_the_examples_cronjob() -> None:
    settings = "--set=report.enabled=true,report.secretName=s,report.settings.prometheus.url=http://prometheus:9090"
    job = pick(render(settings), "CronJob")["spec"]
    example = load_yaml((ROOT / "deploy/report-cronjob.example.yml").read_text())["spec"]
    for key in ("schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds"):
        assert job[key] == example[key]
    made, shown = (one["jobTemplate"]["spec"]["template"]["spec"]["containers"][0] for one in (job, example))
    assert made["args"] == shown["args"]
    assert made["volumeMounts"] == shown["volumeMounts"]
    assert load_yaml(pick(render(settings), "ConfigMap", f"{NAME}-report")["data"]["report.yml"]) == {
        "out": "/var/lib/llm-serving-exporter/reviews",
        "prometheus": {"url": "http://prometheus:9090"},
    }


def test_the_review_has_the_pools_of_the_exporters_prices(tmp_path: Path) -> None:
    prices = load_yaml((ROOT / "deploy/prices.example.yml").read_text())
    values = tmp_path / "values.yml"
    values.write_text(
        yaml.safe_dump(
            {"prices": prices, "report": {"enabled": True, "settings": {"prometheus": {"url": "http://p:9090"}}}}
        )
    )
    files = load_yaml(pick(render("-f", str(values)), "ConfigMap", f"{NAME}-report")["data"]["report.yml"])
    assert files["price_file"] == "prices.yml"
    written = pick(render("-f", str(values)), "ConfigMap", f"{NAME}-report")["data"]["prices.yml"]
    path = tmp_path / "prices.yml"
    path.write_text(written)
    found = read_price_files((str(path),))
    assert [pool.name for pool in found.pools] == ["reserved-h200", "block-november", "savings-plan"]
    # another one may be named
    other = render("-f", str(values), "--set=report.settings.price_file=/etc/mine.yml")
    assert load_yaml(pick(other, "ConfigMap", f"{NAME}-report")["data"]["report.yml"])["price_file"] == "/etc/mine.yml"


# --- the exporter takes each configuration that the chart renders ---


# as the downward API sets them
ENVIRON = {
    "NODE_NAME": "gpu-1",
    "POD_NAMESPACE": "monitoring",
    "POD_NAME": "exporter-0",
    "POD_UID": "0f3c5a1e-5f4b-4c55-9d0e-3a9a4b6f7c21",
}


@pytest.mark.parametrize(
    "arguments",
    [
        *(pytest.param((f"--values={path}",), id=path.stem) for path in sorted((CHART / "ci").glob("*.yaml"))),
        *(
            pytest.param((f"--values={path}", f"--set=mode={mode}"), id=f"{path.stem}-{mode}")
            for path in sorted(STACKS.glob("*.yaml"))
            for mode in ("daemonset", "statefulset", "sidecar")
        ),
        pytest.param((), id="defaults"),
    ],
)
def test_the_exporter_takes_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    made = render(*arguments)
    text = exporter_config(made)
    for one in made:
        for name, content in one.get("data", {}).items():
            (tmp_path / name).write_text(content)
    # where a Secret would be mounted
    (tmp_path / "web.yml").write_text("basic_auth_users: {}\n")
    config = load_text(tmp_path, text.replace("/etc/web/", f"{tmp_path}/"), environ=ENVIRON)
    assert (config.prices is not None) == ("price_file" in text)


@pytest.mark.parametrize("values", ["gpu.dra=true", "discovery.nodeData=true", "gpu.dra=false"])
def test_it_asks_for_what_it_has_rights_to(tmp_path: Path, values: str) -> None:
    made = render(f"--set={values}", "--set=discovery.selectors={app=a,app=b}")
    found = load_text(tmp_path, exporter_config(made), environ=ENVIRON).discovery
    sections = [one for one in found if isinstance(one, KubernetesDiscovery)]
    assert len(sections) == len(found) == 2
    asked = {
        "pods",
        *("nodes" for one in sections if one.node_data),
        *("resourceslices" for one in sections if one.claimed_devices),
    }
    assert asked == {resource for one in made for rule in one.get("rules", ()) for resource in rule["resources"]}


# --- values of the Helm chart that are refused ---


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("replicas=2", "additional properties 'replicas' not allowed"),
        ("image.tga=1", "at '/image': additional properties 'tga' not allowed"),
        ("networkPolicy.apiServer.cidr=10.0.0.1/32", "additional properties 'cidr' not allowed"),
        ("mode=deployment", "value must be one of 'daemonset', 'statefulset', 'sidecar'"),
        ("scrape.kind=PodMonitor", "value must be one of 'none', 'podmonitor', 'scrapeconfig', 'annotations'"),
        ("statefulset.shards=0", "minimum: got 0, want 1"),
        ("port=80", "minimum: got 80, want 1,024"),
        ("discovery.namespaces={Chat}", "does not match pattern"),
        ("image.digest=sha256:1", "does not match pattern"),
        ("sidecar.target.url=null", "missing property 'url'"),
        ("image=null", "at '': missing property 'image'"),
        ("networkPolicy.enginePorts=null", "at '/networkPolicy': missing property 'enginePorts'"),
        ("resources.limit.memory=1Gi", "at '/resources': additional properties 'limit' not allowed"),
        ("report.resources.limit.memory=1Gi", "at '/report/resources': additional properties 'limit' not allowed"),
        ("tolerations[0].ky=a", "at '/tolerations/0': additional properties 'ky' not allowed"),
        ("affinity.podAntiafinity.x=1", "at '/affinity': additional properties 'podAntiafinity' not allowed"),
        ("seLinuxOptions.typ=spc_t", "at '/seLinuxOptions': additional properties 'typ' not allowed"),
        ("extraEnv[0].nam=A", "at '/extraEnv/0': missing property 'name'"),
        ("extraVolumeMounts[0].path=/a", "additional properties 'path' not allowed"),
        ("nameOverride=My_Name", "does not match pattern"),
        ("daemonset.maxUnavailable=0%", "does not match pattern"),
    ],
)
def test_a_wrong_value_is_refused_by_name(wrong: str, said: str) -> None:
    done = template("--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize(
    ("together", "said"),
    [
        ("networkPolicy.enabled=true", "networkPolicy.apiServer.cidrs is empty"),
        ("mode=sidecar,networkPolicy.enabled=true", "would bind the engines"),
        (
            "networkPolicy.enabled=true,networkPolicy.apiServer.cidrs={10.0.0.1/32},daemonset.hostNetwork=true",
            "does not bind pods in the node's network",
        ),
        ("mode=sidecar,report.enabled=true", "report-cronjob.example.yml"),
        ("report.enabled=true", "report.settings is empty"),
        ("mode=statefulset,daemonset.hostPID=true", "is of mode daemonset"),
        ("mode=statefulset,gpu.dra=true", "gpu.dra is of mode daemonset"),
        ("gpu.dra=true,discovery.enabled=false", "gpu.dra wants discovery.enabled"),
        ("scheme=https", "set config.web.config.file"),
        ("config.web.listen_address=:9090", "set port"),
        ("commonLabels.app\\.kubernetes\\.io/component=x", "by which the chart selects its own pods"),
        ("mode=sidecar,podLabels.llm-serving-exporter/sidecar=x", "by which the chart selects its own pods"),
        ("mode=statefulset,fullnameOverride=2nd", "the name of a Service begins with a letter"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_what_to_do(together: str, said: str) -> None:
    done = template("--set", together)
    assert done.returncode != 0
    assert said in done.stderr
