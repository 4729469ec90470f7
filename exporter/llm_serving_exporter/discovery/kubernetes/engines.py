"""Which containers of a pod run engines, and on which ports their pages are: one engine a container, whatever stands in front of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from llm_serving_exporter.discovery.kubernetes.objects import ContainerRecord, PodRecord, Wishes
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import Role

# --- The one table of what pods of LLM serving look like: the labels and names of ports that stacks give them, each with its source.
#
# A pod belongs to the first row whose labels it has. Rows about one stack stand together, what is no engine first.


# the value of a label may be anything
ANY = frozenset[str]()


def _one(*values: str) -> frozenset[str]:
    return frozenset(values)


class Stack(Struct, frozen=True):
    """How pods of one kind are recognised and read."""

    title: str  # for people
    labels: Mapping[str, frozenset[str]]  # all of them are on the pod: name -> values that it may have, ANY for each
    source: str  # where labels and ports are from
    containers: tuple[str, ...] = ()  # names that the engine's container may have; (): found by its GPUs
    ports: tuple[str, ...] = ()  # names of the port with the page, the best first, before those that many use
    port_labels: tuple[str, ...] = ()  # labels of the pod that have the number of the port, the best first
    port_annotation: str = ""  # annotation of the pod that has it; "": none does
    port: int | None = None  # where nothing on the pod says it
    role: Role | None = None  # of all such pods; None: as `role_label` or the page says
    role_label: str = ""  # label that says the role
    roles: Mapping[str, Role] = field(default_factory=dict)  # its values -> roles
    model_label: str = ""  # label with the name under which the model is served; "": none has it
    needs_gpus: bool = False  # whether its labels say nothing of serving, so that a pod without GPUs is none of it
    # container without which a pod is none of it, because its labels say too little; "": none is asked for
    marks: str = ""
    runtime: str = ""  # whose pages these are, where they do not say it themselves; "": they do
    worker: str = ""  # container of pods that work for another pod's engine and answer nobody; "": there are none
    is_read: bool = True  # whether such pods have a page of an engine or front end


_PHASES = {"prefill": Role.PREFILL, "decode": Role.DECODE}
_PRODUCTION_STACK = "https://github.com/vllm-project/production-stack/blob/a6c01db0/helm/templates"
_MODELSERVICE = "https://github.com/llm-d-incubation/llm-d-modelservice/blob/3051935/charts/llm-d-modelservice"
_KSERVE = "https://github.com/kserve/kserve/blob/aaac4e294/pkg/constants/constants.go"
_KSERVE_LLM = "https://github.com/kserve/kserve/blob/aaac4e294/config/llmisvcconfig"
_DYNAMO = "https://github.com/ai-dynamo/dynamo/blob/main/deploy/operator/internal/consts/consts.go"
_OME = "https://github.com/sgl-project/ome/blob/17b77eda/pkg/constants/constants.go"
_AIBRIX = "https://github.com/vllm-project/aibrix/blob/e3e10f9e/pkg/constants/model.go"
_NIM = "https://github.com/NVIDIA/k8s-nim-operator/blob/f63f74d7/api/apps/v1alpha1/nimservice_types.go"
_KUBERAY = "https://github.com/ray-project/kuberay/blob/feeaf72fa/ray-operator/controllers/ray/utils/constant.go"
_LWS = "https://github.com/kubernetes-sigs/lws/blob/060ab4d/api/leaderworkerset/v1/leaderworkerset_types.go"
_KUBEAI = "https://github.com/substratusai/kubeai/blob/2f32ef4/internal/modelcontroller"
_KAITO = "https://github.com/kaito-project/kaito/blob/056b8280b/pkg/workspace"
_SELDON = "https://github.com/SeldonIO/seldon-core/blob/7b77f8b78/operator/config/serverconfigs/triton.yaml"
_TRITON = "https://github.com/triton-inference-server/server/blob/main/deploy/gcp/templates/deployment.yaml"
_GAIE = "https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.3.0/config/charts/inferencepool/templates"
_ENVOY_AI = "https://github.com/envoyproxy/ai-gateway/blob/01b9777e030e8fdfae1ceee8c9ce4f6b141b172a"
_LITELLM = "https://github.com/BerriAI/litellm/blob/0b4538ee7b57022bf33e7d625205d7f3518d0430/deploy/charts/litellm-helm/templates"
_RECOMMENDED = "https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/"
_COMPONENT, _PART_OF, _NAME = "app.kubernetes.io/component", "app.kubernetes.io/part-of", "app.kubernetes.io/name"
_ENGINE_NAMES = _one(
    "vllm", "vllm-openai", "sglang", "text-generation-inference", "tgi", "text-embeddings-inference", "tei", "llama-cpp", "llamacpp",
    "llama.cpp", "tensorrt-llm", "trtllm", "lmdeploy", "infinity", "nim-llm", "mistral-rs", "lightllm", "xinference",
)  # fmt: skip
# the chart is called litellm-helm, and names its pods litellm unless it is told otherwise
_LITELLM_NAMES = _one("litellm", "litellm-helm", "litellm-proxy")
_ROUTER_NAMES = _one("sglang-router", "sgl-router", "sgl-model-gateway", "vllm-router")
# what stands beside engines under the name of the engine, as charts call it
_ROUTERS = _one("router", "gateway", "proxy", "lb", "load-balancer", "loadbalancer", "endpoint-picker", "epp")
_HELPERS = _one(
    "cache-server", "cache", "lmcache", "redis", "valkey", "etcd", "nats", "database", "postgres", "postgresql", "ui", "webui", "web-ui", "open-webui",
    "download", "downloader", "model-download", "model-downloader", "benchmark", "bench", "client", "test", "load-test", "loadtest", "monitoring",
    "exporter", "metrics-exporter", "grafana", "prometheus", "operator", "controller", "controller-manager", "autoscaler",
)  # fmt: skip
_LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
_PICKER_PORTS = ("metrics", "http-metrics")

STACKS: tuple[Stack, ...] = (
    Stack("production-stack's router", {_COMPONENT: _one("router"), _PART_OF: _one("vllm-stack")}, f"{_PRODUCTION_STACK}/deployment-router.yaml",
          ("router-container",), ("router-port",), port=8000, role=Role.FRONTEND),
    Stack("production-stack's router before its standard labels", {"environment": _one("router"), "release": _one("router")},
          f"{_PRODUCTION_STACK}/deployment-router.yaml", ("router-container",), ("router-port",), port=8000, role=Role.FRONTEND),
    Stack("production-stack's cache server", {_COMPONENT: _one("cache-server"), _PART_OF: _one("vllm-stack")},
          f"{_PRODUCTION_STACK}/deployment-cache-server.yaml", is_read=False),
    Stack("production-stack", {_COMPONENT: _one("serving-engine"), _PART_OF: _one("vllm-stack")}, f"{_PRODUCTION_STACK}/deployment-vllm-multi.yaml",
          ("vllm", "vllm-ray-head", "vllm-ray-worker"), ("container-port",), port=8000),
    Stack("production-stack before its standard labels, and its Ray clusters", {"model": ANY, "helm-release-name": ANY},
          f"{_PRODUCTION_STACK}/ray-cluster.yaml", ("vllm", "vllm-ray-head", "vllm-ray-worker"), ("container-port",), port=8000),

    Stack("KServe's scheduler", {_COMPONENT: _one("llminferenceservice-router-scheduler", "llminferenceservice-router")},
          f"{_KSERVE_LLM}/config-llm-scheduler.yaml", ("main",), _PICKER_PORTS, port=9090, role=Role.FRONTEND),
    Stack("KServe LLMInferenceService, prefill",
          {_COMPONENT: _one("llminferenceservice-workload-prefill", "llminferenceservice-workload-worker-prefill",
                            "llminferenceservice-workload-leader-prefill")},
          f"{_KSERVE_LLM}/config-llm-prefill-template.yaml", ("main",), port=8000, role=Role.PREFILL),
    Stack("KServe LLMInferenceService",
          {_COMPONENT: _one("llminferenceservice-workload", "llminferenceservice-workload-worker", "llminferenceservice-workload-leader")},
          f"{_KSERVE_LLM}/config-llm-decode-template.yaml", ("main",), port=8000, role_label="llm-d.ai/role", roles=_PHASES),
    Stack("KServe InferenceService", {"serving.kserve.io/inferenceservice": ANY, "component": _one("predictor")}, _KSERVE,
          ("kserve-container",), worker="worker-container", ports=("http1", "h2c", "user-port"), port_annotation="prometheus.kserve.io/port", port=8080,
          needs_gpus=True),

    Stack("endpoint picker", {"inferencepool": ANY}, f"{_GAIE}/epp-deployment.yaml", ("epp",), _PICKER_PORTS, port=9090, role=Role.FRONTEND),
    Stack("llm-d's standalone endpoint picker", {"epp": ANY}, f"{_GAIE}/epp-deployment.yaml", ("epp",), _PICKER_PORTS, port=9090,
          role=Role.FRONTEND),
    Stack("llm-d's requester of GPUs, which runs no engine", {"llm-d.ai/role": _one("requester")}, f"{_MODELSERVICE}/templates", is_read=False),
    Stack("llm-d", {"llm-d.ai/inference-serving": _one("true")}, f"{_MODELSERVICE}/values.yaml", ("vllm", "sglang", "main", "modelserver"),
          ("metrics", "vllm"), port=8000, role_label="llm-d.ai/role", roles=_PHASES),
    Stack("llm-d before 0.4", {"llm-d.ai/inferenceServing": _one("true")}, f"{_MODELSERVICE}/values.yaml", ("vllm", "sglang", "main", "modelserver"),
          ("metrics", "vllm"), port=8000, role_label="llm-d.ai/role", roles=_PHASES),
    Stack("llm-d by role", {"llm-d.ai/role": _one("prefill", "decode", "both", "prefill-decode")}, f"{_MODELSERVICE}/templates/_helpers.tpl",
          ("vllm", "sglang", "main", "modelserver"), ("metrics", "vllm"), port=8000, role_label="llm-d.ai/role", roles=_PHASES),

    Stack("Dynamo's front end", {"nvidia.com/dynamo-component-type": _one("frontend")}, _DYNAMO, ("main",), ("http",), port=8000,
          role=Role.FRONTEND),
    Stack("Dynamo's endpoint picker", {"nvidia.com/dynamo-component-type": _one("epp")}, _DYNAMO, (), _PICKER_PORTS, port=9090,
          role=Role.FRONTEND),
    Stack("Dynamo's worker for prefill", {"nvidia.com/dynamo-component-type": _one("prefill")}, _DYNAMO, ("main",), ("system",), port=9090,
          role=Role.PREFILL),
    Stack("Dynamo's worker for decode", {"nvidia.com/dynamo-component-type": _one("decode")}, _DYNAMO, ("main",), ("system",), port=9090,
          role=Role.DECODE),
    Stack("Dynamo's worker", {"nvidia.com/dynamo-component-type": _one("worker")}, _DYNAMO, ("main",), ("system",), port=9090,
          role_label="nvidia.com/dynamo-sub-component-type", roles=_PHASES),
    Stack("Dynamo's other components", {"nvidia.com/dynamo-component-type": ANY}, _DYNAMO, is_read=False),

    Stack("OME's router", {"ome.io/inferenceservice": ANY, "component": _one("router")}, _OME, ("ome-container", "router"), ("metrics", "http"),
          role=Role.FRONTEND),
    Stack("OME's decoder", {"ome.io/inferenceservice": ANY, "component": _one("decoder")}, _OME, ("ome-container",), ("http1", "http"), port=8080,
          role=Role.DECODE),
    Stack("OME", {"ome.io/inferenceservice": ANY, "component": _one("engine", "predictor")}, _OME, ("ome-container",), ("http1", "http"),
          port=8080),

    Stack("AIBrix", {"model.aibrix.ai/name": ANY}, _AIBRIX, (), ("http", "serve"), ("model.aibrix.ai/metric-port", "model.aibrix.ai/port"),
          port=8000, role_label="role-name", roles=_PHASES, model_label="model.aibrix.ai/name"),

    Stack("NIM operator", {_PART_OF: _one("nim-service"), "app.kubernetes.io/managed-by": _one("k8s-nim-operator")}, _NIM, (), ("api",), port=8000),

    Stack("KubeAI", {"app.kubernetes.io/managed-by": _one("kubeai"), _NAME: _one("vllm", "infinity")}, f"{_KUBEAI}/engine_vllm.go", ("server",),
          ("http",), port_annotation="model-pod-port", port=8000, model_label="model"),

    # the first pod of a workspace answers for all of them
    Stack("KAITO's fine-tuning", {"kaito.sh/workspace": ANY, "batch.kubernetes.io/job-name": ANY}, f"{_KAITO}/manifests/manifests.go", is_read=False),
    Stack("KAITO", {"kaito.sh/workspace": ANY}, f"{_KAITO}/inference/preset_inferences.go", port=5000, role_label="kaito.sh/inference-role",
          roles=_PHASES, needs_gpus=True),

    # its MLServer runs models of other kinds
    Stack("Seldon Core 2 with Triton", {"seldon-server-name": ANY}, _SELDON, ("triton",), ("server-metrics",), port=8002, needs_gpus=True),

    # without this container a pod of Envoy Gateway is a proxy of anything
    Stack("Envoy AI Gateway", {"gateway.envoyproxy.io/owning-gateway-name": ANY}, f"{_ENVOY_AI}/internal/controller/gateway_mutator.go",
          ("ai-gateway-extproc",), ("aigw-admin", "aigw-metrics"), port=1064, role=Role.FRONTEND, marks="ai-gateway-extproc"),
    Stack("LiteLLM's migration of its database", {_NAME: _LITELLM_NAMES, "batch.kubernetes.io/job-name": ANY}, f"{_LITELLM}/migrations-job.yaml",
          is_read=False),
    Stack("LiteLLM by its name", {_NAME: _LITELLM_NAMES}, f"{_LITELLM}/deployment.yaml", ("litellm", "litellm-helm"), ("http",), port=4000,
          role=Role.FRONTEND),
    Stack("LiteLLM by its app", {"app": _LITELLM_NAMES}, "https://docs.litellm.ai/docs/proxy/deploy", ("litellm",), ("http",),
          port=4000, role=Role.FRONTEND),

    Stack("a router by its name", {_NAME: _ROUTER_NAMES}, _RECOMMENDED, (), ("metrics", "prometheus", "http"), role=Role.FRONTEND),
    Stack("a router by its app", {"app": _ROUTER_NAMES}, _RECOMMENDED, (), ("metrics", "prometheus", "http"), role=Role.FRONTEND),
    Stack("Triton by its name", {_NAME: _one("triton-inference-server", "tritonserver", "triton")}, _RECOMMENDED, (), ("metrics",), port=8002,
          needs_gpus=True),
    Stack("Triton by its app", {"app": _one("triton-inference-server", "tritonserver", "triton")}, _TRITON, (), ("metrics",), port=8002, needs_gpus=True),
    Stack("Ollama by its name", {_NAME: _one("ollama")}, "https://github.com/otwld/ollama-helm/blob/main/templates/deployment.yaml", (), ("http",),
          port=11434, runtime="ollama"),
    Stack("Ollama by its app", {"app": _one("ollama")}, "https://github.com/ollama/ollama/blob/main/docs/docker.mdx", (), ("http",), port=11434,
          runtime="ollama"),
    Stack("a router beside an engine, by its name", {_NAME: _ENGINE_NAMES, _COMPONENT: _ROUTERS}, _RECOMMENDED, (), ("metrics", "prometheus", "http"),
          role=Role.FRONTEND),
    Stack("a helper of an engine, by its name", {_NAME: _ENGINE_NAMES, _COMPONENT: _HELPERS}, _RECOMMENDED, is_read=False),
    Stack("a router beside an engine, by its label", {"engine": _ENGINE_NAMES, "component": _ROUTERS}, _RECOMMENDED, (), ("metrics", "prometheus", "http"),
          role=Role.FRONTEND),
    Stack("a helper of an engine, by its label", {"engine": _ENGINE_NAMES, "component": _HELPERS}, _RECOMMENDED, is_read=False),
    Stack("a router beside an engine, by its app", {"app": _ENGINE_NAMES, "component": _ROUTERS}, _RECOMMENDED, (), ("metrics", "prometheus", "http"),
          role=Role.FRONTEND),
    Stack("a helper of an engine, by its app", {"app": _ENGINE_NAMES, "component": _HELPERS}, _RECOMMENDED, is_read=False),
    Stack("an engine by its name", {_NAME: _ENGINE_NAMES}, _RECOMMENDED, role_label=_COMPONENT, roles=_PHASES),
    Stack("an engine by its label", {"engine": _ENGINE_NAMES}, "https://github.com/sgl-project/sglang/blob/main/docker/k8s-sglang-service.yaml", role_label="component", roles=_PHASES),
    Stack("an engine by its app", {"app": _ENGINE_NAMES}, _RECOMMENDED, role_label="component", roles=_PHASES),

    # every node's agent has a page of its own, with the replicas that run there (engines/tables/ray-vllm.yml)
    Stack("Ray Serve", {"ray.io/cluster": ANY, "ray.io/serve": ANY}, _KUBERAY, ("ray-head", "ray-worker"), ("metrics",), port=8080,
          needs_gpus=True),
    Stack("LeaderWorkerSet", {_LWS_NAME: ANY}, _LWS, needs_gpus=True),
)  # fmt: skip

# names that many charts give the port with the page, the best first
PORT_NAMES = (
    "metrics", "http-metrics", "prometheus", "http", "http1", "https", "api", "http-api", "http-openai", "openai", "server", "serve", "serving",
    "rest", "web", "vllm", "sglang", "tgi", "user-port", "container-port",
)  # fmt: skip

# parts of the names of ports, between its hyphens: of a page of metrics, and of what answers no HTTP or is no engine's page
PAGE_NAME = re.compile(r"(^|-)(metrics|prometheus|prom)(-|$)")
NO_PAGE_NAME = re.compile(
    r"(^|-)(grpc[0-9]*|rpc|dist|nccl|gloo|mpi|ucx|nixl|zmq|kv|nats|etcd|redis|gcs|ray|dashboard|client|ssh|debug|admin|health[a-z]*|bootstrap|init)(-|$)"
)

# containers that stand beside an engine and are none, even where they pass its page on
SIDECARS = frozenset(
    {
        # llm-d's and KServe's
        "routing-proxy", "llm-d-routing-sidecar", "agent", "queue-proxy", "storage-initializer", "modelcar", "kube-rbac-proxy", "oauth-proxy",
        # meshes and proxies
        "istio-proxy", "linkerd-proxy", "envoy", "envoy-sidecar", "consul-dataplane", "kuma-sidecar", "nginx", "tailscale",
        # logs, metrics, secrets
        "fluent-bit", "fluentd", "vector", "otel-collector", "otc-container", "datadog-agent", "vault-agent", "cloud-sql-proxy", "dcgm-exporter",
        "llm-serving-exporter", "aibrix-runtime", "sidecar", "gke-gcsfuse-sidecar", "ray-autoscaler", "autoscaler", "fluentbit",
    }
)  # fmt: skip

STACK_LABELS = frozenset(
    label
    for stack in STACKS
    for label in (*stack.labels, *stack.port_labels, stack.role_label, stack.model_label)
    if label
)
STACK_ANNOTATIONS = frozenset(stack.port_annotation for stack in STACKS if stack.port_annotation)


def find_stack(labels: Mapping[str, str]) -> Stack | None:
    """The row of a pod with these labels; None where it is of no stack that is known."""
    for stack in STACKS:
        if all(name in labels and (not values or labels[name] in values) for name, values in stack.labels.items()):
            return stack
    return None


# --- Containers -> engines


# https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-default-container
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
# by which scrapers are told of a page, and of which port that is: Prometheus (its documentation/examples/prometheus-kubernetes.yml) and
# Grafana (k8s-monitoring-helm, annotation autodiscovery)
SCRAPERS_SCHEMES = {
    "prometheus.io/scheme": "prometheus.io/port",
    "k8s.grafana.com/metrics.scheme": "k8s.grafana.com/metrics.portNumber",
}
_SCHEMES = ("http", "https")


class EnginePort(Struct, frozen=True):
    """Where the page of one engine is."""

    container: ContainerRecord  # that runs it
    port: int  # of the pod
    scheme: str  # http or https
    is_guess: bool = False  # whether nothing says the scheme, so that it is http until its server shows otherwise


def find_engines(pod: PodRecord, stack: Stack | None, wishes: Wishes) -> tuple[EnginePort, ...]:
    """The engines of a pod, by what it says of itself, else by the row of its stack, else by what is usual. () where none can be said."""
    if wishes.ports:
        engines = [_find_asked(pod, stack, wishes, asked) for asked in wishes.ports]
        # a name that none of its containers has
        return () if None in engines else _distinct([engine for engine in engines if engine is not None])
    ports = []
    for container in _list_candidates(pod, stack, wishes):
        port = _find_port(pod, container, stack)
        if port is not None:
            ports.append(_describe(pod, container, port, wishes))
    return _distinct(ports)


def _distinct(engines: Sequence[EnginePort]) -> tuple[EnginePort, ...]:
    """One a port: containers of a pod share its ports, so that a port belongs to one of them."""
    by_port: dict[int, EnginePort] = {}
    for engine in engines:
        by_port.setdefault(engine.port, engine)
    return tuple(by_port.values())


def _find_asked(pod: PodRecord, stack: Stack | None, wishes: Wishes, asked: str | int) -> EnginePort | None:
    """The port that an annotation names, with the container that declares it, the engine's before others, else with the engine's."""
    candidates = _list_candidates(pod, stack, wishes)
    # names of ports are unique in a container only
    for container in dict.fromkeys((*candidates, *pod.containers)):
        for name, number in container.ports:
            if asked in (name, number):
                return _describe(pod, container, number, wishes)
    if isinstance(asked, str) or not candidates:
        return None
    return _describe(pod, candidates[0], asked, wishes)


def list_working(containers: Sequence[ContainerRecord]) -> list[ContainerRecord]:
    """The containers that do the work of a pod: those with GPUs, else all but known sidecars."""
    with_gpus = [container for container in containers if container.has_gpus]
    working = [container for container in with_gpus or containers if container.name not in SIDECARS]
    return working or with_gpus or list(containers)


def _list_candidates(pod: PodRecord, stack: Stack | None, wishes: Wishes) -> list[ContainerRecord]:
    named = [container for container in pod.containers if stack is not None and container.name in stack.containers]
    if named:
        return named
    if any(container.has_gpus for container in pod.containers):
        # whatever its name is
        return list_working(pod.containers)
    candidates = [container for container in pod.containers if container.name not in SIDECARS]
    if wishes.scrape or wishes.ports:
        # somebody says that there is an engine
        candidates = candidates or list(pod.containers)
    default = [container for container in candidates if container.name == pod.annotations.get(DEFAULT_CONTAINER)]
    regular = [container for container in candidates if not container.is_sidecar]
    # what has a port that is usual for pages comes before what has not, in the order of the pod
    return default or sorted(regular, key=lambda container: not _has_usual_port(container, stack))[:1]


def _has_usual_port(container: ContainerRecord, stack: Stack | None) -> bool:
    names = {*(stack.ports if stack else ()), *PORT_NAMES}
    return any(name in names for name, _ in container.ports)


def _find_port(pod: PodRecord, container: ContainerRecord, stack: Stack | None) -> int | None:
    said = [pod.labels.get(label, "") for label in stack.port_labels] if stack else []
    said += [pod.annotations.get(stack.port_annotation, "")] if stack else []
    for text in said:
        if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
            return int(text)
    declared = dict(reversed(container.ports))
    numbers = [number for _, number in container.ports]
    usual = stack.port if stack is not None else None
    found = [
        *(declared[name] for name in (stack.ports if stack else ()) if name in declared),
        *(declared[name] for name in PORT_NAMES if name in declared and PAGE_NAME.search(name)),
        *(number for name, number in container.ports if PAGE_NAME.search(name)),
        *([usual] if usual in numbers else []),
        *(declared[name] for name in PORT_NAMES if name in declared),
        container.port_argument,
        # a port that is not declared is no less open: declaring one only informs
        *(number for number, _ in container.probes),
        *(number for name, number in container.ports if not NO_PAGE_NAME.search(name)),
        usual,
        *numbers,
    ]
    return next((number for number in found if number is not None), None)


def _describe(pod: PodRecord, container: ContainerRecord, port: int, wishes: Wishes) -> EnginePort:
    scheme = wishes.scheme or _find_scheme(pod, container, port)
    return EnginePort(container, port, scheme or "http", is_guess=not scheme)


def _find_scheme(pod: PodRecord, container: ContainerRecord, port: int) -> str:
    """As an annotation for a scraper says it, else the port's probe, its name, or the command line; "" where nothing does."""
    for scheme, of_port in SCRAPERS_SCHEMES.items():
        annotated = pod.annotations.get(scheme, "").lower()
        # it is of one port, where the pod names that
        if annotated in _SCHEMES and pod.annotations.get(of_port, str(port)) == str(port):
            return annotated
    probed = dict(container.probes).get(port)
    if probed in _SCHEMES:
        return probed
    names = [name for name, number in container.ports if number == port]
    if any(name.startswith("https") for name in names):
        return "https"
    if port in container.tls_ports or (0 in container.tls_ports and _may_be_servers(container, port, names)):
        return "https"
    return ""


def _may_be_servers(container: ContainerRecord, port: int, names: Sequence[str]) -> bool:
    """Whether a server of which the command line says no port may be at this one: no other command is there, and it is no port of metrics
    beside the server's own."""
    others = {number for _, number in container.ports} - {port}
    beside = bool(others) and bool(names) and all(PAGE_NAME.search(name) for name in names)
    return port != container.port_argument and not beside
