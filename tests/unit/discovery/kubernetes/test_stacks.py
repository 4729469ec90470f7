"""Pods of real stacks, as their charts and operators make them -> targets; ResourceSlices; docs/kubernetes-discovery.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llm_serving_exporter.catalogue.health import PODS_WAITING
from llm_serving_exporter.discovery.kubernetes.engines import STACKS, find_stack
from llm_serving_exporter.discovery.kubernetes.mirror import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    SliceRecord,
    decode_slice,
    map_devices,
)
from llm_serving_exporter.discovery.kubernetes.objects import ANNOTATIONS, PREFIX
from llm_serving_exporter.model.target import Target
from tests.support.builders.configuration import load_text
from tests.support.builders.discovered_pods import container, gpus, plain_pod, targets_of
from tests.support.builders.pods import STACKS as FIXTURES
from tests.support.builders.pods import fixture_pods, running_status, stored
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.kube_api import READ_PODS
from tests.support.yaml_text import load_yaml

# container, scheme and port, role ("": as the page says), workload, its kind, GPUs, in the order of the targets' names
EXPECTED = {
    "production-stack": [
        ("router-container", "http:8000", "frontend", "vllm-deployment-router", "Deployment", None),
        ("vllm", "http:8000", "", "vllm-llama3-deployment-vllm", "Deployment", 1),
    ],
    "sglang": [("meta-llama-31-8b-instruct-sglang", "http:30000", "", "meta-llama-31-8b-instruct-sglang", "Deployment", 1)],
    "llm-d": [
        ("epp", "http:9090", "frontend", "gaie-pd-epp", "Deployment", None),
        # the routing proxy, a native sidecar, has port 8000
        ("vllm", "http:8200", "decode", "pd-llm-d-modelservice-decode", "Deployment", 1),
        ("vllm", "http:8000", "prefill", "pd-llm-d-modelservice-prefill", "Deployment", 1),
    ],
    "kserve": [
        ("kserve-container", "http:8080", "", "huggingface-llama3", "InferenceService", 1),
        # the routing sidecar has port 8000; the probes say that the engine speaks TLS
        ("main", "https:8001", "decode", "qwen2-7b", "LLMInferenceService", 1),
        ("main", "https:8000", "prefill", "qwen2-7b", "LLMInferenceService", 1),
        ("main", "http:9090", "frontend", "qwen2-7b", "LLMInferenceService", None),
    ],
    # the head runs no replica; each node that does has a page
    "ray": [("ray-worker", "http:8080", "", "ray-serve-llm-k7xzp", "RayCluster", 4)],
    # two pods of eight GPUs, one replica
    "leaderworkerset": [("vllm-leader", "http:8080", "", "vllm", "LeaderWorkerSet", 16)],
    "dynamo": [
        ("main", "http:8000", "frontend", "vllm-disagg", "DynamoGraphDeployment", None),
        ("main", "http:9090", "decode", "vllm-disagg", "DynamoGraphDeployment", 1),
    ],
    # two pods of eight GPUs, the first one answers
    "kaito": [("workspace-llama-70b", "http:5000", "", "workspace-llama-70b", "Workspace", 16)],
    "kubeai": [("server", "http:8000", "", "llama-3.1-8b", "Model", 1)],
    "ome": [
        ("ome-container", "http:8080", "decode", "llama-70b", "InferenceService", 4),
        ("ome-container", "http:8080", "", "llama-70b", "InferenceService", 4),
        ("router", "http:8080", "frontend", "llama-70b", "InferenceService", None),
    ],
}  # fmt: skip


def running(stack: str) -> list[Target]:
    pods = enumerate(fixture_pods(stack), 1)
    return targets_of([stored(pod, f"uid-{n}", running_status(pod, f"10.0.0.{n}")) for n, pod in pods])


def shown(target: Target) -> tuple[object, ...]:
    identity, (scheme, _, port) = target.identity, target.url.split(":")
    role = target.role.value if target.role else ""
    return identity.container, f"{scheme}:{port}", role, identity.workload, identity.workload_kind, target.gpu_count


def test_every_stack_of_the_fixtures_is_expected_here() -> None:
    assert sorted(EXPECTED) == sorted(FIXTURES)


@check_rows("stack", EXPECTED)
def test_the_pods_of_a_stack(stack: str) -> None:
    found = running(stack)
    assert [shown(target) for target in found] == EXPECTED[stack]
    for target in found:
        assert target.name == f"{target.identity.namespace}/{target.identity.pod}:{target.url.rpartition(':')[2]}"
        assert target.identity.pod_uid
        assert target.nodes


def test_a_replica_of_two_pods_is_on_both_nodes() -> None:
    (target,) = running("leaderworkerset")
    assert (target.name, target.nodes) == ("lws/vllm-0:8080", ("gpu-node-1", "gpu-node-2"))


def test_each_row_says_where_it_is_from() -> None:
    assert [stack.title for stack in STACKS if not stack.source.startswith("https://")] == []


def test_each_row_can_be_reached() -> None:
    """Labels that match a row completely match no row above it that would hide it."""
    for stack in STACKS:
        labels = {name: min(values) if values else "x" for name, values in stack.labels.items()}
        assert find_stack(labels) is stack, stack.title


def test_one_port_name_of_a_row_stands_in_the_table() -> None:
    """A row that says where a page is has a name, a number or a label for it, or leaves it to what is usual."""
    silent = [one.title for one in STACKS if not one.is_read and (one.ports or one.port or one.role)]
    assert silent == []


def test_a_label_of_a_table_is_read_as_a_number_of_a_port() -> None:
    labels = {"model.aibrix.ai/name": "chat", "model.aibrix.ai/port": "9000", "role-name": "prefill"}
    (target,) = targets_of([plain_pod(labels=labels)])
    assert (target.url, target.role) == ("http://10.0.0.7:9000", "prefill")
    labels["model.aibrix.ai/port"] = "no port"
    (target,) = targets_of([plain_pod(labels=labels)])
    assert target.url == "http://10.0.0.7:8000"


def test_a_worker_of_kserves_engine_over_several_nodes_is_no_target() -> None:
    """It joins the head's Ray cluster and answers nobody (config/runtimes/kserve-huggingfaceserver-multinode.yaml)."""
    labels = {"serving.kserve.io/inferenceservice": "chat", "component": "predictor"}
    head, worker = (
        plain_pod(name, labels=labels, containers=[{"name": container, "resources": gpus(1)}])
        for name, container in (("head", "kserve-container"), ("worker", "worker-container"))
    )
    assert [target.name for target in targets_of([head, worker])] == ["llm/head:8080"]


def test_kserves_annotation_names_the_port_of_the_page() -> None:
    """Triton's page is beside the port that KServe sends requests to."""
    triton = container("kserve-container", (8080, "http1"), gpu=1)
    labels = {"serving.kserve.io/inferenceservice": "chat", "component": "predictor"}
    for text, port in (("8002", 8002), ("http", 8080), ("99999", 8080)):
        pod = plain_pod(labels=labels, annotations={"prometheus.kserve.io/port": text}, containers=[triton])
        assert [target.url for target in targets_of([pod])] == [f"http://10.0.0.7:{port}"]


@pytest.mark.parametrize(
    ("name", "component"),
    [("app.kubernetes.io/name", "app.kubernetes.io/component"), ("engine", "component"), ("app", "component")],
)
def test_what_stands_beside_an_engine_under_its_name_is_none(name: str, component: str) -> None:
    def role_of(what: str) -> list[str | None]:
        return [target.role for target in targets_of([plain_pod(labels={name: "sglang", component: what})])]

    assert role_of("router") == role_of("gateway") == ["frontend"]
    assert role_of("redis") == role_of("cache-server") == role_of("benchmark") == []
    assert (role_of("prefill"), role_of("decode")) == (["prefill"], ["decode"])
    assert role_of("server") == role_of("anything") == [None]


def test_labels_that_say_nothing_of_serving_need_a_gpu() -> None:
    labels = {"serving.kserve.io/inferenceservice": "iris", "component": "predictor"}
    sklearn = [container("kserve-container", 8080)]
    assert targets_of([plain_pod(labels=labels, containers=sklearn)]) == []
    assert len(targets_of([plain_pod(labels=labels, containers=[{**sklearn[0], "resources": gpus(1)}])])) == 1
    mig = gpus(1, "nvidia.com/mig-1g.10gb")
    (slice_,) = targets_of([plain_pod(labels=labels, containers=[{**sklearn[0], "resources": mig}])])
    # how many whole GPUs that is cannot be said
    assert slice_.gpu_count is None
    transformer = {**labels, "component": "transformer"}
    assert targets_of([plain_pod(labels=transformer, containers=[{**sklearn[0], "resources": gpus(1)}])]) == []


NAME = "app.kubernetes.io/name"
KUBEAI = {"app": "model", "model": "llama", "app.kubernetes.io/managed-by": "kubeai"}
SERVER, QUEUE = (
    container("server", (8000, "http"), gpu=1),
    container("queue-proxy", (9090, "http-autometric"), (9091, "http-usermetric")),
)
USER = container("user-container", (8080, "user-port"), gpu=1)
TRITON = container("triton", (9500, "server-grpc"), (9000, "server-http"), (8002, "server-metrics"), gpu=1)
OWNED = {"gateway.envoyproxy.io/owning-gateway-name": "ai", NAME: "envoy"}
ENVOY = (container("envoy", (19001, "metrics")), container("shutdown-manager", 19002))
BENTO = {"yatai.ai/bento-deployment": "chat", "yatai.ai/bento-deployment-component-type": "api-server"}
ASKED = {"llm-serving-exporter/scrape": "true"}
# labels, containers and ports as their sources in the table make them, and where their page is; "": nowhere
CHARTS: list[tuple[dict[str, str], tuple[dict[str, object], ...], dict[str, str], str]] = [
    ({**KUBEAI, NAME: "vllm"}, (SERVER,), {}, "server 8000"),
    ({**KUBEAI, NAME: "vllm"}, (SERVER,), {"model-pod-port": "9000"}, "server 9000"),
    ({**KUBEAI, NAME: "ollama"}, (SERVER,), {}, "server 8000 ollama"),
    ({"seldon-server-name": "triton"}, (container("rclone"), container("agent", (9006, "metrics")), TRITON), {}, "triton 8002"),
    ({"app": "triton-inference-server", "release": "example"},
     (container("triton", (8000, "http"), (8001, "grpc"), (8002, "metrics"), gpu=1),), {}, "triton 8002"),
    ({NAME: "text-generation-inference"}, (container("tgi", (8080, "http"), gpu=1),), {}, "tgi 8080"),
    ({NAME: "ollama"}, (container("ollama", (11434, "http")),), {}, "ollama 11434 ollama"),
    # one whose runtime the section names is read as it says
    ({"app": "ollama"}, (container("engine", 8000, gpu=1),), {"llm-serving-exporter/runtime": "vllm"}, "engine 8000 vllm"),
    # LiteLLM as its chart makes it; Envoy AI Gateway as its controller adds a container to the pods of Envoy Gateway
    ({NAME: "litellm"}, (container("litellm", (4000, "http")),), {}, "litellm 4000"),
    ({NAME: "litellm", "batch.kubernetes.io/job-name": "migrations"}, (container("litellm", (4000, "http")),), {}, ""),
    (OWNED, ENVOY, {}, ""),
    (OWNED, (*ENVOY, container("ai-gateway-extproc", (1064, "aigw-admin"))), {}, "ai-gateway-extproc 1064"),
    (OWNED, (*ENVOY, container("ai-gateway-extproc", (1064, "aigw-metrics"))), {}, "ai-gateway-extproc 1064"),
    # of no known stack: BentoML, SkyPilot, plain Knative, and what has to be said of them
    (BENTO, (container("proxy", (7000, "http-proxy")), container("main", (3000, "http"), gpu=1)), {}, ""),
    (BENTO, (container("proxy", (7000, "http-proxy")), container("main", (3000, "http"), gpu=1)), ASKED, "main 3000"),
    ({"parent": "skypilot"}, (container("ray-node", 22, 6380, gpu=8),), {**ASKED, "llm-serving-exporter/port": "8081"}, "ray-node 8081"),
    ({"serving.knative.dev/service": "chat"}, (QUEUE, USER), ASKED, "user-container 8080"),
    ({"serving.kserve.io/inferenceservice": "c", "component": "predictor"}, (QUEUE, {**USER, "name": "kserve-container"}), {},
     "kserve-container 8080"),
    # parts of a stack that run no engine
    ({"nvidia.com/dynamo-component-type": "planner"}, (SERVER,), {}, ""),
    ({"llm-d.ai/role": "requester", "llm-d.ai/inference-serving": "true"}, (SERVER,), {}, ""),
    ({"app.kubernetes.io/component": "cache-server", "app.kubernetes.io/part-of": "vllm-stack"}, (SERVER,), {}, ""),
    ({"app": "postgres"}, (SERVER,), {}, ""),
]  # fmt: skip


@check_rows(("labels", "containers", "annotations", "page"), CHARTS)
def test_operators_and_charts_that_have_no_fixture(
    labels: dict[str, str], containers: tuple[dict[str, object], ...], annotations: dict[str, str], page: str
) -> None:
    found = targets_of([plain_pod(labels=labels, containers=containers, annotations=annotations)])
    assert [f"{one.identity.container} {one.url.rpartition(':')[2]} {one.runtime or ''}".rstrip() for one in found] == (
        [page] if page else []
    )
    is_gateway = labels.get(NAME) in ("litellm", "envoy")
    assert all((one.role == "frontend") is is_gateway for one in found)


def test_envoys_gateway_may_be_a_native_sidecar() -> None:
    native = [{**container("ai-gateway-extproc", 1064), "restartPolicy": "Always"}]
    (target,) = targets_of([plain_pod(labels=OWNED, containers=ENVOY, initContainers=native)])
    assert target.url == "http://10.0.0.7:1064"


def kaito(name: str, index: str, **labels: str) -> dict[str, object]:
    engine = container("chat", 5000, gpu=8)
    known = {"kaito.sh/workspace": "chat", "apps.kubernetes.io/pod-index": index, **labels}
    pod = plain_pod(name, labels=known, containers=[engine], owner=("StatefulSet", "chat"), address=f"10.0.0.{index}1")
    return {**pod, "spec": {**pod["spec"], "nodeName": f"node-{index}"}}


def test_a_workspace_of_kaito_is_one_engine_over_its_pods() -> None:
    (target,) = targets_of([kaito("chat-0", "0"), kaito("chat-1", "1")])
    assert (target.name, target.gpu_count, target.nodes) == ("llm/chat-0:5000", 16, ("node-0", "node-1"))
    assert (target.identity.workload, target.identity.workload_kind) == ("chat", "Workspace")
    # of one whose phases are apart the decoder stands behind llm-d's sidecar
    pod = kaito("chat-0", "0", **{"kaito.sh/inference-role": "decode", "inferenceset.kaito.sh/created-by": "chats"})
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 5001}]
    pod["spec"]["initContainers"] = [container("llm-d-routing-sidecar", 5000, restartPolicy="Always")]
    (target,) = targets_of([pod])
    found = (target.url, target.role, target.identity.workload_kind)
    assert found == ("http://10.0.0.01:5001", "decode", "InferenceSet")
    tuning = plain_pod(labels={"kaito.sh/workspace": "tune", "batch.kubernetes.io/job-name": "tune"})
    assert targets_of([tuning]) == []


# --- resourceSlices -> UUIDs of claimed devices ---


INSTANCE = {"type": {"string": "mig"}, "uuid": {"string": "MIG-1"}, "parentUUID": {"string": "GPU-1"}}
CARD = {"type": {"string": "gpu"}, "uuid": {"string": "GPU-0"}, "minor": {"int": 0}, "index": {"int": 0}}


def write(*devices: Any, driver: str = "gpu.nvidia.com", name: str = "s", generation: int = 1) -> bytes:
    pool = {"name": "node-a", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "node-a", "pool": pool, "devices": list(devices)}
    return json.dumps({"metadata": {"name": name, "uid": "u"}, "spec": spec}).encode()


def test_cards_and_instances() -> None:
    body = write(
        {"name": "gpu-0", "attributes": CARD, "capacity": {"memory": {"value": "80Gi"}}},
        {"name": "gpu-1-mig-9-0-4", "attributes": INSTANCE},
        {"name": "gpu-2", "attributes": {"gpu.nvidia.com/uuid": {"string": "GPU-2"}}},
        # an instance that nobody has made yet, and attributes of other kinds
        {"name": "gpu-3-mig-9-0-4", "attributes": {"uuid": {"version": "1.0.0"}}},
        {"name": "gpu-4"},
    )
    found = decode_slice(body)
    assert found == (
        "s",
        SliceRecord("node-a", 1, (("gpu-0", "GPU-0"), ("gpu-1-mig-9-0-4", "MIG-1"), ("gpu-2", "GPU-2"))),
    )


def test_another_drivers_slices_are_not_kept() -> None:
    assert decode_slice(write({"name": "gpu-0", "attributes": CARD}, driver="gpu.amd.com")) == ("s", None)


@check_rows("body", [b"[]", b"{}", b'{"metadata": {"name": "s"}, "spec": 1}', write(1), write({"name": 1})])
def test_what_is_no_slice_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_slice(body)


def test_of_a_pool_that_is_made_anew_the_newest_generation_counts() -> None:
    old, other = (
        SliceRecord("node-a", 1, (("gpu-0", "GPU-0"), ("gpu-1", "GPU-1"))),
        SliceRecord("b", 1, (("x", "GPU-9"),)),
    )
    parts = (SliceRecord("node-a", 2, (("gpu-0", "GPU-1"),)), SliceRecord("node-a", 2, (("gpu-2", "MIG-2"),)))
    assert map_devices((parts[0], old, other, parts[1])) == {
        ("node-a", "gpu-0"): "GPU-1",
        ("node-a", "gpu-2"): "MIG-2",
        ("b", "x"): "GPU-9",
    }
    assert map_devices(()) == {}


# --- docs/kubernetes-discovery.md says what the code does ---


PAGE = (ROOT / "docs" / "kubernetes-discovery.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_configuration_that_it_shows_is_good(tmp_path: Path) -> None:
    (section,) = load_text(tmp_path, BLOCKS[0]).discovery
    assert section.kind == "kubernetes"


def test_the_rights_that_it_shows_are_those_that_suffice_at_a_real_server() -> None:
    assert load_yaml(BLOCKS[1])["rules"] == READ_PODS


def test_it_names_every_annotation_the_series_and_the_pauses() -> None:
    table = PAGE.partition("| annotation")[2].partition("\n\n")[0]
    assert {name.removeprefix(PREFIX) for name in ANNOTATIONS} <= set(re.findall(r"`(\w+)`", table))
    assert f"`{PODS_WAITING.full_name}`" in PAGE
    assert f"after {FIRST_PAUSE_SECONDS:g}, 1, 2 … at most {LONGEST_PAUSE_SECONDS:g} seconds" in PAGE
