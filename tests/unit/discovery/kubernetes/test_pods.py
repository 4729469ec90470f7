"""One pod -> its targets: annotations, containers, ports, addresses, workloads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.discovery.kubernetes.objects import NodeRecord
from llm_serving_exporter.discovery.kubernetes.targets import is_kept
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Role, Target, WaitingPod
from tests.support.builders.discovered_pods import (
    Pod,
    container,
    find_all,
    gpus,
    plain_pod,
    record,
    section,
    targets_of,
)
from tests.support.paths import TESTS
from tests.support.rows import check_rows

PREFIX = "llm-serving-exporter/"
LWS, RAY = "leaderworkerset.sigs.k8s.io/name", "ray.io/originated-from-cr-name"


def annotated(pod: Pod | None = None, **annotations: str) -> Pod:
    found = pod or plain_pod()
    found["metadata"]["annotations"] |= {
        PREFIX + name: text for name, text in {"scrape": "true", **annotations}.items()
    }
    return found


def only(pod: Pod, **settings: Any) -> Target:
    (target,) = targets_of([pod], section(**settings))
    return target


def messages(pod: Pod) -> list[str]:
    return [str(problem) for found in find_all([pod]) for problem in found.problems]


# --- what a pod says of itself ------------------------------------------------------------------------------------


def test_every_annotation_has_its_effect() -> None:
    # the scheme as Kubernetes writes it in probes
    target = only(
        annotated(port="9001", path="/m?model=a", scheme="HTTPS", runtime="sglang", role="decode", model="chat")
    )
    assert (target.name, target.url, target.metrics_path) == (
        "llm/chat-7d9-x2:9001", "https://10.0.0.7:9001", "/m?model=a&autoload=false",
    )  # fmt: skip
    assert (target.runtime, target.role, target.model_name) == ("sglang", Role.DECODE, "chat")


def test_a_pod_that_is_not_known_is_a_target_only_if_it_says_so() -> None:
    assert targets_of([plain_pod()]) == []
    assert len(targets_of([annotated()])) == 1
    assert targets_of([annotated(scrape="false")]) == []


def test_what_a_pod_says_of_being_a_target_is_reported_where_it_makes_no_sense() -> None:
    pod = annotated(scrape="enabled")
    what = (
        'kubernetes: pod llm/chat-7d9-x2, annotation llm-serving-exporter/scrape: "enabled" is neither true nor false.'
    )
    for one, of in ((pod, section()), (annotated(scrape="enabled"), section(only_annotated=True))):
        assert is_kept(record(one), of)
        (found,) = find_all([one], of)
        assert (found.targets, [str(problem).partition(" Write")[0] for problem in found.problems]) == ((), [what])
    assert not is_kept(record(annotated(scrape="")), section())


def test_a_pod_of_a_known_stack_can_stay_out() -> None:
    known = plain_pod(labels={"app": "vllm"})
    assert len(targets_of([known])) == 1
    assert targets_of([annotated(known, scrape="false")]) == []


def test_a_section_may_want_the_annotation_or_select_by_labels() -> None:
    known = plain_pod(labels={"app": "vllm"})
    assert targets_of([known], section(only_annotated=True)) == []
    assert len(targets_of([annotated()], section(only_annotated=True))) == 1
    # the API server has applied the selector
    assert len(targets_of([plain_pod()], section(selector="team=chat"))) == 1
    assert targets_of([annotated(scrape="no")], section(selector="team=chat")) == []


@check_rows(
    ("name", "text", "what"),
    [
        ("port", "0", '"0" is no port'),
        ("port", "70000", '"70000" is no port'),
        ("port", "8000, A B", '"A B" is no port'),
        ("path", "metrics", '"metrics" is not a URL path'),
        ("path", "http://other/metrics", '"http://other/metrics" is not a URL path'),
        ("path", "//other/metrics", '"//other/metrics" is not a URL path'),
        ("path", "/metrics/../admin", '"/metrics/../admin" goes up or nowhere'),
        ("path", "/%2E%2e/admin", '"/%2E%2e/admin" goes up or nowhere'),
        ("path", "/" + "a" * 1_000_000, "it has more than 1024 characters"),
        ("port", ",".join(["8000"] * 300), "it has more than 1024 characters"),
        ("port", "-1", '"-1" is no port'),
        ("scheme", "gopher", '"gopher" is not a scheme'),
        ("scheme", "ftp", '"ftp" is not a scheme'),
    ],
)
def test_an_annotation_that_would_lead_elsewhere_keeps_the_pod_out(name: str, text: str, what: str) -> None:
    pod = annotated(**{name: text})
    assert targets_of([pod]) == []
    (message,) = messages(pod)
    assert message.startswith(f"kubernetes: pod llm/chat-7d9-x2, annotation {PREFIX}{name}: {what}")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("runtime", "vlm", '"vlm" is not a runtime that is supported'),
        ("role", "leader", '"leader" is not a role'),
        ("model", "x" * 300, "the model name has 300 characters"),
    ],
)
def test_another_one_counts_as_not_given(name: str, text: str, what: str) -> None:
    pod = annotated(**{name: text})
    target = only(pod)
    assert (target.runtime, target.role, target.model_name) == (None, None, None)
    (message,) = messages(pod)
    assert what in message


def test_a_wish_to_be_read_that_makes_no_sense_is_reported_and_counts_as_none() -> None:
    pod = annotated(plain_pod(labels={"app": "vllm"}), scrape="maybe")
    assert len(targets_of([pod])) == 1
    assert '"maybe" is neither true nor false' in messages(pod)[0]


@given(st.text(max_size=40), st.sampled_from(["scrape", "port", "path", "scheme", "runtime", "role", "model"]))
def test_no_annotation_breaks_anything(text: str, name: str) -> None:
    pod = annotated(plain_pod(labels={"app": "vllm"}), **{name: text.encode(errors="ignore").decode()})
    for found in find_all([pod]):
        assert all(str(problem).isprintable() for problem in found.problems)
        assert all(target.url.startswith(("http://10.0.0.7:", "https://10.0.0.7:")) for target, _ in found.targets)


def test_several_engines_of_a_pod_are_several_targets() -> None:
    two = [
        container("a", (8000, "http"), gpu=1),
        container("b", (8001, "http-b"), gpu=2),
        container("logs", (2020, "metrics")),
    ]
    found = targets_of([annotated(plain_pod(containers=two))])
    assert [(one.name, one.identity.container, one.gpu_count) for one in found] == [
        ("llm/chat-7d9-x2:8000", "a", 1),
        ("llm/chat-7d9-x2:8001", "b", 2),
    ]
    # one port that nobody declares belongs to the first engine
    asked = targets_of([annotated(plain_pod(containers=two), port="http-b, 9000")])
    assert [(one.name[-4:], one.identity.container) for one in asked] == [("8001", "b"), ("9000", "a")]


def test_a_port_that_no_container_has_by_name_is_reported() -> None:
    pod = annotated(port="web")
    assert targets_of([pod]) == []
    assert "none of its containers has the port that llm-serving-exporter/port names" in messages(pod)[0]


# --- containers and ports -----------------------------------------------------------------------------------------


def chosen(*containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> str:
    (target,) = targets_of([annotated(plain_pod(containers=containers, labels=labels, **spec))])
    return f"{target.identity.container} {target.url.partition('://')[0]} {target.url.rpartition(':')[2]}"


def port(number: int, name: str = "", protocol: str = "TCP") -> dict[str, Any]:
    return {"containerPort": number, "protocol": protocol, **({"name": name} if name else {})}


TRITON = container("t", (8000, "http"), (8001, "grpc"), 8002, gpu=1)
PROXY, FIRST, SECOND = container("istio-proxy", (15090, "metrics")), container("x", 1), container("y", (2, "metrics"))


@check_rows(
    ("containers", "pod", "expected"),
    [
        # with GPUs; else with a usual port, and never a known sidecar, unless it has GPUs or is alone
        ([container("front", (80, "http")), container("e", 8000, gpu=1)], {}, "e http 8000"),
        ([PROXY, FIRST, SECOND], {}, "y http 2"),
        ([PROXY, FIRST], {}, "x http 1"),
        ([container("agent", 8000, gpu=1), FIRST], {}, "agent http 8000"),
        ([container("agent", 8000)], {}, "agent http 8000"),
        # a native sidecar
        ([{"name": "job"}],
         {"initContainers": [container("download", 7, gpu=1), container("e", 8000, gpu=1, restartPolicy="Always")]}, "e http 8000"),
        # the usual port of a stack comes before names of ports that serve
        ([TRITON], {"labels": {"app.kubernetes.io/name": "triton"}}, "t http 8002"),
        ([TRITON], {}, "t http 8000"),
    ],
)  # fmt: skip
def test_which_container_is_the_engine(containers: list[dict[str, Any]], pod: dict[str, Any], expected: str) -> None:
    assert chosen(*containers, **pod) == expected


def test_a_sidecar_is_no_engine_where_nobody_says_so() -> None:
    assert targets_of([plain_pod(labels={"app": "vllm"}, containers=[container("nginx", 80)])]) == []


def test_the_container_that_kubectl_takes_by_default() -> None:
    pod = annotated(plain_pod(containers=[container("a", (1, "http")), container("b", 2)]))
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = "b"
    assert only(pod).identity.container == "b"


@check_rows(
    ("container", "expected"),
    [
        ({"ports": [port(8000, "http"), port(8002, "metrics")]}, "http 8002"),
        ({"ports": [port(8000, "http"), port(9000, "grpc")]}, "http 8000"),
        ({"ports": [port(5000), port(5001)], "args": ["serve", "--port", "5001"]}, "http 5001"),
        ({"command": ["sh", "-c", "exec serve m --port=7001 --tp 2"]}, "http 7001"),
        ({"ports": [port(5000), port(5001)], "readinessProbe": {"httpGet": {"port": 5001, "scheme": "HTTPS"}}}, "https 5001"),
        ({"ports": [port(53, "dns", "UDP"), port(5001)]}, "http 5001"),
        ({"ports": [port(5001, "web-x")], "startupProbe": {"httpGet": {"port": "web-x"}}}, "http 5001"),
        ({"ports": [port(8443, "https")]}, "https 8443"),
        ({"ports": [port(5000), port(5001)]}, "http 5000"),
        ({"ports": [port(8000, "http-x"), port(8001, "grpc-x"), port(8002, "metrics-x")]}, "http 8002"),
        ({"ports": [port(8000, "http-metrics"), port(8001, "metrics")]}, "http 8001"),
        ({"ports": [port(29500, "dist"), port(8000)]}, "http 8000"),
        ({"ports": [port(9000, "grpc"), port(8000, "inference")]}, "http 8000"),
        # where there is no other one
        ({"ports": [port(9000, "grpc")]}, "http 9000"),
    ],
)  # fmt: skip
def test_which_port_has_the_page(container: dict[str, Any], expected: str) -> None:
    assert chosen({"name": "e", **container}) == f"e {expected}"


def test_a_name_of_a_port_that_two_containers_have_is_the_engines() -> None:
    helper = container("helper", (9090, "http-metrics"))
    engine = container("e", (8000, "http-metrics"), gpu=1)
    target = only(annotated(plain_pod(containers=[helper, engine]), port="http-metrics"))
    assert (target.identity.container, target.name) == ("e", "llm/chat-7d9-x2:8000")
    # one that only the other has is its
    alone = annotated(plain_pod(containers=[helper, {**engine, "ports": []}]), port="9090")
    assert only(alone).identity.container == "helper"


def test_engines_that_share_a_container_do_not_claim_its_gpus_twice() -> None:
    engine = container("e", 8000, gpu=2)
    both = targets_of([annotated(plain_pod(containers=[engine]), port="8000,8001")])
    names = ("llm/chat-7d9-x2:8000", "llm/chat-7d9-x2:8001")
    assert [(target.name, target.gpu_count) for target in both] == [(name, None) for name in names]
    other = {**engine, "name": "f", "ports": [port(8001)]}
    apart = targets_of([annotated(plain_pod(containers=[engine, other]))])
    assert [(target.identity.container, target.gpu_count) for target in apart] == [("e", 2), ("f", 2)]


def test_a_pod_that_names_no_port_anywhere_is_reported() -> None:
    pod = annotated(plain_pod(containers=[{"name": "e"}]))
    assert targets_of([pod]) == []
    assert messages(pod) == [
        "kubernetes: pod llm/chat-7d9-x2: its labels, ports and probes do not say where its metrics page is. "
        'Annotate it with llm-serving-exporter/port: "8000", or with llm-serving-exporter/scrape: "false" where no engine runs.'
    ]


# --- addresses and phases -----------------------------------------------------------------------------------------


def test_an_ipv6_address_stands_in_brackets_and_not_in_the_name() -> None:
    target = only(annotated(plain_pod(address="fd00::1:7")))
    assert (target.name, target.url) == ("llm/chat-7d9-x2:8000", "http://[fd00::1:7]:8000")


def test_a_pod_without_an_address_waits() -> None:
    pod = plain_pod(
        labels={"app": "vllm", "component": "prefill", "pod-template-hash": "7d9"}, owner=("ReplicaSet", "chat-7d9")
    )
    pod["status"] = {"phase": "Pending"}
    (found,) = find_all([pod])
    assert found.targets == ()
    assert found.waiting == WaitingPod("llm", "chat-7d9-x2", "chat", "Deployment", "", "prefill")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_none(phase: str) -> None:
    assert find_all([annotated(plain_pod(status={"phase": phase, "podIP": "10.0.0.7"}))]) == []


def test_readiness_and_an_end_that_is_near_do_not_matter() -> None:
    status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "False"}]}
    pod = annotated(plain_pod(status=status))
    pod["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    assert only(pod).name == "llm/chat-7d9-x2:8000"


# --- identity -----------------------------------------------------------------------------------------------------


@check_rows(
    ("owner", "labels", "workload"),
    [
        (("ReplicaSet", "chat-7d9"), {"pod-template-hash": "7d9"}, ("chat", "Deployment")),
        (("ReplicaSet", "chat-7d9"), {"rollouts-pod-template-hash": "7d9"}, ("chat", "Rollout")),
        # without the hash, or with another one, nothing is guessed
        (("ReplicaSet", "chat-7d9"), {}, ("chat-7d9", "ReplicaSet")),
        (("ReplicaSet", "chat-7d9"), {"pod-template-hash": "5c5"}, ("chat-7d9", "ReplicaSet")),
        (("ReplicaSet", "-7d9"), {"pod-template-hash": "7d9"}, ("-7d9", "ReplicaSet")),
        (("StatefulSet", "chat"), {}, ("chat", "StatefulSet")),
        (("DaemonSet", "chat"), {}, ("chat", "DaemonSet")),
        (("", ""), {}, ("", "")),
        (("StatefulSet", "g-0"), {LWS: "g", RAY: "r"}, ("g", "LeaderWorkerSet")),
        (("RayCluster", "r-x"), {RAY: "r", "ray.io/originated-from-crd": "RayService"}, ("r", "RayService")),
        (("ReplicaSet", "i-p-7"), {"serving.kserve.io/inferenceservice": "i", "pod-template-hash": "7"}, ("i", "InferenceService")),
        (
            ("ReplicaSet", "q-7"),
            {"app.kubernetes.io/part-of": "llminferenceservice", "app.kubernetes.io/name": "q", "pod-template-hash": "7"},
            ("q", "LLMInferenceService"),
        ),
    ],
)  # fmt: skip
def test_what_owns_a_pod(owner: tuple[str, str], labels: dict[str, str], workload: tuple[str, str]) -> None:
    identity = only(annotated(plain_pod(owner=owner, labels=labels))).identity
    assert (identity.workload, identity.workload_kind) == workload


def test_the_whole_identity() -> None:
    pod = annotated(plain_pod(labels={"team": "search", "example.com/cost-center": "4711", "other": "x"}))
    given = replace(Target("", ""), identity=Identity(labels=(("stage", "prod"), ("team", "none"))))
    around = section(pod_labels=("team", "example.com/cost-center", "absent"), defaults=given)
    nodes = {"gpu-node-1": NodeRecord("aws:///eu-west-1a/i-0abc", "eu-west-1", "p5.48xlarge")}
    ((target, _),) = find_all([pod], around, nodes)[0].targets
    assert target.identity == Identity(
        "llm", "chat-7d9-x2", "uid-of-chat-7d9-x2", "engine", "", "", "aws:///eu-west-1a/i-0abc", "eu-west-1", "p5.48xlarge",
        (("example_com_cost_center", "4711"), ("stage", "prod"), ("team", "search")),
    )  # fmt: skip
    assert target.nodes == ("gpu-node-1",)


def test_a_gpu_that_is_handed_out_several_times_is_no_whole_one() -> None:
    pod = annotated(plain_pod())
    assert find_all([pod], nodes={"gpu-node-1": NodeRecord()})[0].targets[0][0].gpu_count == 1
    assert find_all([pod], nodes={"gpu-node-1": NodeRecord(shares_gpus=True)})[0].targets[0][0].gpu_count is None


@check_rows(
    "asked",
    [
        *(
            {"limits": {"nvidia.com/gpu": "1", resource: "2"}}
            for resource in (
                "nvidia.com/mig-1g.10gb",
                "nvidia.com/gpu.shared",
                "nvidia.com/gpumem",
                "aliyun.com/gpu-mem",
            )
        ),
        # a claim of dynamic resources
        {"claims": [{"name": "gpu"}]},
    ],
)
def test_parts_of_gpus_are_not_counted(asked: dict[str, Any]) -> None:
    assert only(annotated(plain_pod(containers=[container("e", 1, resources=asked)]))).gpu_count is None


def test_settings_of_the_section_hold_unless_the_pod_says_otherwise() -> None:
    defaults = replace(Target("", ""), runtime="vllm", role=Role.PREFILL, group="blue", gpu_count=3, metrics_path="/m")
    target = only(annotated(), defaults=defaults)
    assert (target.runtime, target.role, target.group, target.gpu_count, target.metrics_path) == (
        "vllm", Role.PREFILL, "blue", 3, "/m",
    )  # fmt: skip
    target = only(annotated(runtime="auto", role="unified", path="/x"), defaults=defaults)
    assert (target.runtime, target.role, target.metrics_path) == (None, Role.UNIFIED, "/x")


@check_rows(
    ("container", "expected"),
    [
        ({"args": ["serve", "m", "--max-num-seqs", "256"]}, (("--max-num-seqs", "256"),)),
        ({"command": ["vllm", "serve"], "args": ["m", "--max-num-seqs=8"]}, (("--max-num-seqs", "8"),)),
        ({"command": ["sh", "-c", "exec vllm serve m --max-num-seqs 64"]}, (("--max-num-seqs", "64"),)),
        ({"args": ["--max-num-seqs", "$(SEQS)"]}, (("--max-num-seqs", ""),)),
        ({"args": ["serve", "m"]}, ()), ({}, ()),
    ],
)  # fmt: skip
def test_the_batch_limit_that_its_arguments_say(container: dict[str, Any], expected: Any) -> None:
    engine = {"name": "e", "ports": [port(8000)], "resources": gpus(1), **container}
    assert only(annotated(plain_pod(containers=[engine]))).arguments == expected


def test_of_several_engines_in_a_container_the_arguments_are_nobodys() -> None:
    engine = {"name": "e", "ports": [port(8000), port(8001)], "resources": gpus(2), "args": ["--max-num-seqs", "8"]}
    pod = annotated(plain_pod(containers=[engine]), port="8000,8001")
    assert [target.arguments for target in targets_of([pod])] == [(), ()]


def test_nothing_of_the_environment_is_kept() -> None:
    secret = "s3cr3t"
    engine = container(
        "e", 8000, args=["--api-key", secret, "--port", "8000", "--max-num-seqs", secret],
        env=[{"name": "VLLM_API_KEY", "value": secret}], envFrom=[{"secretRef": {"name": secret}}],
    )  # fmt: skip
    pod = annotated(plain_pod(containers=[engine], labels={"x": secret}))
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = secret
    assert secret not in repr(record(pod))
    assert secret not in repr(find_all([pod]))


# --- how its engine is to be asked --------------------------------------------------------------------------------

PORT = [{"containerPort": 8443, "name": "api"}]
CERTIFICATE = ["--ssl-certfile", "/tls/c", "--ssl-keyfile", "/tls/k"]


def test_the_engine_of_the_field_case_is_asked_by_tls() -> None:
    pod = json.loads((TESTS / "field" / "26-tls-by-start-command" / "pod.json").read_text())
    assert [target.url for target in targets_of([pod])] == ["https://10.0.0.7:8443"]


@check_rows(
    ("container", "annotations", "scheme"),
    [
        ({"command": ["vllm", "serve", "m"], "args": ["--port", "8443", *CERTIFICATE]}, {}, "https"),
        ({"args": ["serve", "m", "--port=8443", "--ssl-certfile=/tls/c", "--ssl-keyfile=/tls/k"]}, {}, "https"),
        # vLLM's parser takes underscores too
        ({"args": ["--ssl_certfile", "/tls/c"]}, {}, "https"),
        ({"command": ["python3", "-m", "sglang.launch_server", "--ssl-keyfile", "/k", "--ssl-certfile", "/c"]}, {}, "https"),
        ({"args": ["--port", "8443", "--ssl-key-file", "/k", "--ssl-cert-file", "/c"]}, {}, "https"),
        ({"args": ["--config", "/c.yml", "--ssl_keyfile_path", "/k", "--ssl_certfile_path", "/c"]}, {}, "https"),
        ({"command": ["python3", "-m", "dynamo.frontend"], "args": ["--http-port", "8443", "--tls-cert-path", "/c"]}, {}, "https"),
        ({"command": ["lmdeploy", "serve", "api_server", "m", "--ssl"]}, {}, "https"),
        ({"command": ["sh", "-c"], "args": ["exec vllm serve m --port 8443 \\\n --ssl-certfile '/c' --ssl-keyfile \"$KEY\""]}, {}, "https"),
        ({"command": ["bash", "-c", "nvidia-smi && vllm serve m --ssl-certfile=$(CERT) --ssl-keyfile=$(KEY)"]}, {}, "https"),
        ({}, {"prometheus.io/scheme": "https"}, "https"),
        ({}, {"prometheus.io/scheme": "HTTPS", "prometheus.io/port": "8443"}, "https"),
        ({}, {"k8s.grafana.com/metrics.scheme": "https", "prometheus.io/port": "9090"}, "https"),
        ({"readinessProbe": {"httpGet": {"port": 8443, "scheme": "HTTPS"}}}, {}, "https"),
        ({"ports": [{"containerPort": 8443, "name": "https-api"}]}, {}, "https"),
        # no certificate, or none of the server's
        ({}, {}, "http"),
        ({"args": ["--port", "8443"]}, {}, "http"),
        ({"args": ["--ssl-certfile", "", "--ssl-keyfile", ""]}, {}, "http"),
        ({"args": ["--ssl-certfile=", "--ssl-keyfile="]}, {}, "http"),
        ({"args": ["--ssl-ca-certs", "/ca", "--ssl-cert-reqs", "0"]}, {}, "http"),
        ({"args": ["--grpc-use-ssl=1", "--grpc-server-cert", "/c"]}, {}, "http"),
        ({"args": ["--ssl-certfile", "--ssl-keyfile"]}, {}, "http"),
        ({"command": ["sh", "-c", "# --ssl-certfile /tls/c\nvllm serve m"]}, {}, "http"),
        # another server of the pod, and a port of metrics beside the one with TLS
        ({"command": ["sh", "-c", "proxy --port 9443 --ssl-certfile /c & vllm serve m --port 8443"]}, {}, "http"),
        ({"args": ["--port", "9443", *CERTIFICATE]}, {}, "http"),
        (
            {"args": ["--tls-cert-path", "/c"], "ports": [{"containerPort": 30000}, {"containerPort": 8443, "name": "metrics"}]},
            {}, "http",
        ),
        # what is said comes before what is read
        ({"args": CERTIFICATE, "readinessProbe": {"httpGet": {"port": 8443, "scheme": "HTTP"}}}, {}, "http"),
        ({"args": CERTIFICATE}, {"prometheus.io/scheme": "http"}, "http"),
        ({"args": CERTIFICATE}, {PREFIX + "scheme": "http"}, "http"),
        ({"args": CERTIFICATE}, {"prometheus.io/scheme": "http", PREFIX + "scheme": "https"}, "https"),
        # of another port, and nonsense
        ({}, {"prometheus.io/scheme": "https", "prometheus.io/port": "9090"}, "http"),
        ({}, {"prometheus.io/scheme": "tls"}, "http"),
    ],
)  # fmt: skip
def test_how_an_engine_is_asked(container: dict[str, Any], annotations: dict[str, str], scheme: str) -> None:
    one = {"name": "engine", "ports": PORT, "resources": gpus(1), **container}
    target = only(plain_pod(labels={"app": "vllm"}, annotations=annotations, containers=[one]))
    assert target.url == f"{scheme}://10.0.0.7:8443"


def test_a_scheme_that_nothing_says_is_a_guess() -> None:
    pods = [
        plain_pod(labels={"app": "vllm"}),
        plain_pod(labels={"app": "vllm"}, annotations={PREFIX + "scheme": "http"}),
        plain_pod(labels={"app": "vllm"}, annotations={"prometheus.io/scheme": "http"}),
        plain_pod(
            labels={"app": "vllm"}, containers=[container("e", 8443, gpu=1, readinessProbe={"httpGet": {"port": 8443}})]
        ),
    ]
    assert [only(pod).may_speak_tls for pod in pods] == [True, False, False, False]
