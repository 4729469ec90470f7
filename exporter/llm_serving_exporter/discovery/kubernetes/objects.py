"""JSON of the API server -> records. What is not declared here is skipped by the decoder and never becomes an object: env above all.

The structures are those of the API, https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.34/.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias, TypeVar

import msgspec

from llm_serving_exporter.engines.arguments import read_arguments
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import Arguments, Role
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.facts import MODEL_NAME
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Place, shown
from llm_serving_exporter.settings.target_keys import ROLE, runtime_kind

# --- What is kept of a pod and of a node: little, and nothing of their environment.


class ContainerRecord(Struct, frozen=True):
    """A container of a pod, as far as discovery needs it. Init containers are here only where they go on running."""

    name: str  # in its pod
    ports: tuple[tuple[str, int], ...] = ()  # that it declares for TCP: name ("" without one), number
    probes: tuple[tuple[int, str], ...] = ()  # what its probes ask by HTTP: port, and scheme in lower case
    port_argument: int | None = None  # as its command line says it
    # ports of what its command line starts with TLS; 0: of a server of which it says no port
    tls_ports: frozenset[int] = frozenset()
    arguments: Arguments = ()  # what else it says that a runtime's table knows
    gpus: int | None = 0  # whole GPUs that it asks for; None: it has some, and how many whole ones cannot be said
    is_sidecar: bool = False  # an init container that goes on running
    is_ready: bool = False  # as its readiness probe says now
    started_unix_seconds: float | None = None  # of its present life, else of the last one; None: it has not started yet
    # it waits to be started again after several crashes, or for the first time behind an init container that does
    crash_loops: bool = False

    @property
    def has_gpus(self) -> bool:
        """Whether it asks for a GPU, whole or not."""
        return self.gpus != 0


class PodRecord(Struct, frozen=True):
    """A pod, as far as discovery needs it."""

    namespace: str  # that it is in
    name: str  # unique there at a time
    uid: str  # unique for ever
    address: str = ""  # its IP address; "": it has none yet
    node: str = ""  # that it runs on; "": not scheduled yet
    phase: str = ""  # as Kubernetes writes it
    labels: Mapping[str, str] = field(default_factory=dict)  # those that discovery knows, or is asked to keep
    annotations: Mapping[str, str] = field(default_factory=dict)  # likewise
    owner_kind: str = ""  # of the controller that made it; "": nobody
    owner: str = ""  # its name
    containers: tuple[ContainerRecord, ...] = ()  # regular ones first, in the order of the pod
    created_unix_seconds: float | None = None  # None: not said
    begun_unix_seconds: float | None = None  # when its kubelet took it over; None: not said
    # since when it has not been Ready, as the condition says it; None: it is Ready, or that is not said
    unready_since_unix_seconds: float | None = None
    lost_node: bool = False  # it is not Ready because its node answers no more
    is_leaving: bool = False  # it was deleted, and its containers are given time to end

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def has_ended(self) -> bool:
        """Whether all of its containers have ended for good: completed, failed or evicted."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def gpus(self) -> int | None:
        """Whole GPUs that all of its containers ask for; None: that cannot be said."""
        counts = [container.gpus for container in self.containers]
        return None if None in counts else add_up(count for count in counts if count is not None)


class NodeRecord(Struct, frozen=True):
    """A node, as the cloud that it is from calls it. "": not known."""

    provider_id: str = ""  # of the machine
    region: str = ""  # that it is in
    instance_type: str = ""  # that it was ordered as
    zone: str = ""  # of the region
    shares_gpus: bool = False  # whether its device plugin hands out a GPU several times, so that one is no whole one


# --- What a pod says of itself by annotations `llm-serving-exporter/…`, and whether it makes sense.


T = TypeVar("T")

PREFIX = "llm-serving-exporter/"
SCRAPE = f"{PREFIX}scrape"
_NAMES = ("scrape", "port", "path", "scheme", "runtime", "role", "model")
ANNOTATIONS = frozenset(PREFIX + name for name in _NAMES)
MOST_PORTS = 16
# of a value; what discovery keeps of a longer one is cut off
LONGEST_VALUE = 1024
# the name of a container's port, https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#ports
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")


def _ports(text: str) -> tuple[str | int, ...]:
    ports: list[str | int] = []
    for word in (part.strip() for part in text.split(",")):
        if word.isascii() and word.isdigit() and 0 < int(word) < 65536:
            ports.append(int(word))
        elif _PORT_NAME.fullmatch(word):
            ports.append(word)
        else:
            what = f"{shown(word)} is no port"
            raise InvalidValueError(what, "Write a number or the name of a port of the container.")
    if len(ports) > MOST_PORTS:
        what = f"{len(ports)} ports are more than {MOST_PORTS}"
        raise InvalidValueError(what, "Write one for each engine of the pod.")
    return tuple(dict.fromkeys(ports))


_PORTS = Kind("ports", _ports)
_SCHEME_WORD = kinds.choice("scheme", ("http", "https"))
# Kubernetes itself writes it in capitals, in probes
_SCHEME = Kind("scheme", lambda text: _SCHEME_WORD.parse(text.lower()))


class Wishes(Struct, frozen=True):
    """What a pod's annotations say. None: nothing."""

    scrape: bool | None = None  # whether the pod is a target at all
    # of its engines: numbers, and names of ports of its containers; (): it names none
    ports: tuple[str | int, ...] = ()
    path: str | None = None  # of the page, with a query where it needs one
    scheme: str | None = None  # http or https
    runtime: str | None = None  # name of a table, or `auto`
    role: Role | None = None  # of each of its targets
    model: str | None = None  # for pages that name none


def read_scrape(annotations: Mapping[str, str]) -> bool | None:
    """Whether a pod wants to be a target; None where it does not say, or nothing that could be understood."""
    try:
        return kinds.BOOLEAN.parse(annotations[SCRAPE]) if SCRAPE in annotations else None
    except InvalidValueError:
        return None


def read_annotations(pod: PodRecord, source: str, problems: list[Problem], runtimes: Collection[str]) -> Wishes | None:
    """What a pod wants. Each annotation that makes no sense is a problem of `source`.

    Such a one about the runtime, the role or the model then counts as not given. None where another one makes no sense: what would be
    read is not what was meant.
    """

    def read(name: str, kind: Kind[T]) -> T | None:
        """The value of an annotation; None where it is not there, empty, or makes no sense."""
        text = pod.annotations.get(PREFIX + name)
        place = Place(source, f"pod {pod.namespace}/{pod.name}, annotation {PREFIX}{name}", problems)
        if text is not None and len(text) > LONGEST_VALUE:
            what = f"it has more than {LONGEST_VALUE} characters"
            place.refuse(what, "Write what the documentation of pods as targets says.")
            return None
        # an empty one is unset, as a template leaves it
        return kind.read(text, place) if text else None

    runtime = read("runtime", runtime_kind(runtimes))
    role, model = read("role", ROLE), read("model", MODEL_NAME)
    scrape = read("scrape", kinds.BOOLEAN)
    before = len(problems)
    ports, path, scheme = read("port", _PORTS), read("path", kinds.METRICS_PATH), read("scheme", _SCHEME)
    if len(problems) > before:
        return None
    return Wishes(scrape, ports or (), path, scheme, runtime, role, model)


# --- JSON -> these records


Times: TypeAlias = datetime | None
# a bound for what is kept of a pod, whatever an admission webhook made of it
_MOST_CONTAINERS, _MOST_PORTS, _LONGEST_TEXT = 32, 64, LONGEST_VALUE
_WHOLE_GPUS = frozenset({"nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "gpu.intel.com/i915", "gpu.intel.com/xe"})
# slices of a GPU, or GPUs that several containers have at a time: MIG profiles, renamed time slices, vendors' virtual GPUs
_SOME_GPU = re.compile(r"[^/]+/(mig-|v?gpu|vcuda|gaudi).*")
_PORT_NUMBER = re.compile(r"[0-9]{1,5}")
_PORT_ARGUMENT = re.compile(r"(?:^|\s)--port[= ]\s*[\"']?([0-9]{1,5})\b")

# the flag that names a server's certificate, after which it speaks TLS alone: vLLM's, SGLang's and what else hands it on to uvicorn;
# llama.cpp's; LiteLLM's; Dynamo's and SGLang's gateway's. LMDeploy's has no value: the files are in its environment
_TLS_ARGUMENTS = frozenset({"--ssl-certfile", "--ssl-cert-file", "--ssl-certfile-path", "--tls-cert-path"})
_TLS_SWITCHES = frozenset({"--ssl"})
_PORTS_OF_TLS = frozenset({"--port", "--http-port"})
# where one command of a shell's text ends and another begins, and what is no command at all
_NEXT_COMMAND = re.compile(r"&&|\|\||[;|&\n]")
_SHELLS_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
_QUOTES = "\"'()\\"


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None  # noqa: N815  # as the API spells it
    creationTimestamp: Times = None  # noqa: N815
    deletionTimestamp: Times = None  # noqa: N815


class _Port(msgspec.Struct):
    containerPort: int = 0  # noqa: N815
    name: str = ""
    protocol: str = "TCP"


class _HttpGet(msgspec.Struct):
    port: int | str = 0
    scheme: str = "HTTP"


class _Probe(msgspec.Struct):
    httpGet: _HttpGet | None = None  # noqa: N815


class _Resources(msgspec.Struct):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None
    claims: list[msgspec.Raw] | None = None


class _Container(msgspec.Struct):
    name: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    ports: list[_Port] | None = None
    resources: _Resources | None = None
    readinessProbe: _Probe | None = None  # noqa: N815
    livenessProbe: _Probe | None = None  # noqa: N815
    startupProbe: _Probe | None = None  # noqa: N815
    restartPolicy: str = ""  # noqa: N815


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815


class _Moment(msgspec.Struct):
    reason: str = ""
    startedAt: Times = None  # noqa: N815


class _State(msgspec.Struct):
    waiting: _Moment | None = None
    running: _Moment | None = None
    terminated: _Moment | None = None


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    ready: bool = False
    state: _State | None = None
    lastState: _State | None = None  # noqa: N815


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    lastTransitionTime: Times = None  # noqa: N815


class _Status(msgspec.Struct):
    phase: str = ""
    reason: str = ""
    podIP: str = ""  # noqa: N815
    startTime: Times = None  # noqa: N815
    conditions: list[_Condition] | None = None
    containerStatuses: list[_ContainerStatus] | None = None  # noqa: N815
    initContainerStatuses: list[_ContainerStatus] | None = None  # noqa: N815


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _NodeSpec(msgspec.Struct):
    providerID: str = ""  # noqa: N815


class _Node(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)


_POD, _NODE = msgspec.json.Decoder(_Pod), msgspec.json.Decoder(_Node)


def decode_pod(body: bytes | msgspec.Raw, labels: Collection[str], annotations: Collection[str]) -> PodRecord:
    """A pod. Of its labels and annotations those that are named are kept. Raises msgspec.MsgspecError for what is no pod."""
    pod = _POD.decode(body)
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not meta.name or not meta.namespace or not meta.uid:
        raise msgspec.ValidationError("a pod without a name, a namespace or a uid")
    statuses = {one.name: one for one in (*(status.containerStatuses or ()), *(status.initContainerStatuses or ()))}
    sidecars = [one for one in spec.initContainers or () if one.restartPolicy == "Always"]
    # what has to end, or to start, before the others does not get there
    is_blocked = any(_crash_loops(one) for one in status.initContainerStatuses or ())
    containers = [_reduce_container(one, statuses.get(one.name), False, is_blocked) for one in spec.containers or ()]
    containers += [_reduce_container(one, statuses.get(one.name), True, is_blocked) for one in sidecars]
    owner = next((one for one in meta.ownerReferences or () if one.controller), _Owner())
    conditions = {one.type: one for one in status.conditions or ()}
    ready = conditions.get("Ready")
    unready = ready is not None and ready.status != "True"
    return PodRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        address=status.podIP,
        node=spec.nodeName,
        phase=status.phase,
        labels=_keep(meta.labels, labels),
        annotations=_keep(meta.annotations, annotations),
        owner_kind=owner.kind,
        owner=owner.name,
        containers=tuple(containers[:_MOST_CONTAINERS]),
        created_unix_seconds=_seconds(meta.creationTimestamp),
        begun_unix_seconds=_seconds(status.startTime),
        unready_since_unix_seconds=_seconds(ready.lastTransitionTime) if ready is not None and unready else None,
        lost_node=_has_lost_node(status.reason, conditions),
        is_leaving=meta.deletionTimestamp is not None,
    )


# https://kubernetes.io/docs/reference/labels-annotations-taints/: of a region, a zone, an instance type, the old name behind the new one
_PLACE_LABELS = (
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
)


def decode_node(body: bytes | msgspec.Raw) -> tuple[str, NodeRecord]:
    """A node: its name and what is kept of it. Raises msgspec.MsgspecError for what is no node."""
    node = _NODE.decode(body)
    if not node.metadata.name:
        raise msgspec.ValidationError("a node without a name")
    labels = node.metadata.labels or {}
    region, zone, kind = (next((labels[name] for name in names if labels.get(name)), "") for names in _PLACE_LABELS)
    # of NVIDIA's GPU feature discovery, for time slicing and MPS
    shares = labels.get("nvidia.com/gpu.replicas", "1") not in ("0", "1")
    return node.metadata.name, NodeRecord(node.spec.providerID[:_LONGEST_TEXT], region, kind, zone, shares)


def _keep(texts: dict[str, str] | None, names: Collection[str]) -> dict[str, str]:
    # one character more than is good for anything, so that what is cut off is seen to be too long
    return {name: clean(text, _LONGEST_TEXT + 1) for name, text in (texts or {}).items() if name in names}


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment is not None and moment.tzinfo is not None else None


def _crash_loops(status: _ContainerStatus) -> bool:
    waiting = status.state.waiting if status.state is not None else None
    return waiting is not None and waiting.reason == "CrashLoopBackOff"


def _reduce_container(
    spec: _Container, status: _ContainerStatus | None, is_sidecar: bool, is_blocked: bool
) -> ContainerRecord:
    ports = tuple(
        (one.name, one.containerPort) for one in spec.ports or () if one.protocol == "TCP" and one.containerPort
    )
    words = (*(spec.command or ()), *(spec.args or ()))
    state = (status.state if status else None) or _State()
    last = (status.lastState if status else None) or _State()
    present = next((one for one in (state.running, state.terminated, last.terminated) if one is not None), None)
    return ContainerRecord(
        name=spec.name,
        ports=ports[:_MOST_PORTS],
        probes=_list_probes(spec, dict(ports)),
        port_argument=_find_port_argument(words),
        tls_ports=frozenset(_find_tls_ports(words)),
        arguments=read_arguments(words, RUNTIMES.values()),
        gpus=_count_gpus(spec.resources),
        is_sidecar=is_sidecar,
        is_ready=status is not None and status.ready,
        started_unix_seconds=_seconds(present.startedAt) if present is not None else None,
        crash_loops=(status is not None and _crash_loops(status)) or (is_blocked and present is None),
    )


def _list_probes(spec: _Container, ports: dict[str, int]) -> tuple[tuple[int, str], ...]:
    schemes: dict[int, str] = {}
    for probe in (spec.readinessProbe, spec.startupProbe, spec.livenessProbe):
        if probe is not None and probe.httpGet is not None:
            asked = probe.httpGet.port
            number = ports.get(asked, 0) if isinstance(asked, str) else asked
            if 0 < number < 65536:
                schemes.setdefault(number, probe.httpGet.scheme.lower())
    return tuple(schemes.items())


def _find_port_argument(words: Sequence[str]) -> int | None:
    """`--port 8000`, `--port=8000`, also inside a shell's command; the last one counts, as for every engine's parser."""
    ports = _PORT_ARGUMENT.findall(" ".join(words))
    return int(ports[-1]) if ports and 0 < int(ports[-1]) < 65536 else None


def _find_tls_ports(words: Sequence[str]) -> Iterator[int]:
    """Of each server that the command line starts with a certificate: its port, 0 where it says none. A shell may start several."""
    texts = [word for word in words if len(word.split()) > 1]
    commands = [[word for word in words if len(word.split()) == 1]]
    for text in texts:
        plain = _SHELLS_COMMENT.sub("", text.replace("\\\n", " "))
        commands += [[piece.strip(_QUOTES) for piece in command.split()] for command in _NEXT_COMMAND.split(plain)]
    for command in commands:
        given: dict[str, str] = {}
        for place, word in enumerate(command):
            name, equals, value = word.partition("=")
            after = command[place + 1] if place + 1 < len(command) else ""
            # the last one counts, as for every engine's parser
            given[name[:2] + name[2:].replace("_", "-")] = value.strip(_QUOTES) if equals else after
        named = any(given.get(flag, "").strip() and not given[flag].startswith("--") for flag in _TLS_ARGUMENTS)
        if named or any(given.get(flag, "false").lower() not in ("false", "0") for flag in _TLS_SWITCHES):
            ports = [given[flag] for flag in _PORTS_OF_TLS if flag in given]
            yield int(ports[0]) if ports and _PORT_NUMBER.fullmatch(ports[0]) else 0


def _count_gpus(resources: _Resources | None) -> int | None:
    if resources is None:
        return 0
    # extended resources have equal requests and limits, and Kubernetes fills in the one that is not given
    asked = {**(resources.requests or {}), **(resources.limits or {})}
    whole, unknown = 0, bool(resources.claims)
    for name, count in asked.items():
        if name in _WHOLE_GPUS and str(count).isdigit():
            whole += int(count)
        elif (name in _WHOLE_GPUS or _SOME_GPU.fullmatch(name)) and str(count) != "0":
            unknown = True
    return None if unknown else whole


def _has_lost_node(reason: str, conditions: dict[str, _Condition]) -> bool:
    """Whether the pod is not Ready because nobody hears of its node any more.

    The node lifecycle controller sets the pod's Ready to False and leaves what the kubelet said last: the containers' own condition stays
    True, which the kubelet itself never says of a pod that is not Ready, but for readiness gates (kubernetes/kubernetes
    pkg/controller/util/node/controller_utils.go, MarkPodsNotReady). A pod that it then deletes has the reason NodeLost.
    """
    ready, containers = conditions.get("Ready"), conditions.get("ContainersReady")
    if ready is None or ready.status == "True":
        return False
    if reason == "NodeLost" or ready.status == "Unknown" or ready.reason == "NodeLost":
        return True
    return containers is not None and containers.status == "True" and ready.reason != "ReadinessGatesNotReady"
