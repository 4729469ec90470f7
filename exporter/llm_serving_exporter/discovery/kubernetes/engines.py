"""Which containers of a pod run engines, and on which ports their pages are: one engine a container, whatever stands in front of it."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.discovery.kubernetes.annotations import Wishes
from llm_serving_exporter.discovery.kubernetes.records import ContainerRecord, PodRecord
from llm_serving_exporter.discovery.kubernetes.stacks import NO_PAGE_NAME, PAGE_NAME, PORT_NAMES, SIDECARS, Stack
from llm_serving_exporter.model.record import Struct

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
        found = [_find_asked(pod, stack, wishes, asked) for asked in wishes.ports]
        # a name that none of its containers has
        return () if None in found else _distinct([one for one in found if one is not None])
    ports = []
    for container in _list_candidates(pod, stack, wishes):
        port = _find_port(pod, container, stack)
        if port is not None:
            ports.append(_describe(pod, container, port, wishes))
    return _distinct(ports)


def _distinct(engines: Sequence[EnginePort]) -> tuple[EnginePort, ...]:
    """One a port: containers of a pod share its ports, so that a port belongs to one of them."""
    found: dict[int, EnginePort] = {}
    for engine in engines:
        found.setdefault(engine.port, engine)
    return tuple(found.values())


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
    with_gpus = [one for one in containers if one.has_gpus]
    own = [one for one in with_gpus or containers if one.name not in SIDECARS]
    return own or with_gpus or list(containers)


def _list_candidates(pod: PodRecord, stack: Stack | None, wishes: Wishes) -> list[ContainerRecord]:
    named = [one for one in pod.containers if stack is not None and one.name in stack.containers]
    if named:
        return named
    if any(one.has_gpus for one in pod.containers):
        # whatever its name is
        return list_working(pod.containers)
    own = [one for one in pod.containers if one.name not in SIDECARS]
    if wishes.scrape or wishes.ports:
        # somebody says that there is an engine
        own = own or list(pod.containers)
    default = [one for one in own if one.name == pod.annotations.get(DEFAULT_CONTAINER)]
    regular = [one for one in own if not one.is_sidecar]
    # what has a port that is usual for pages comes before what has not, in the order of the pod
    return default or sorted(regular, key=lambda one: not _has_usual_port(one, stack))[:1]


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
    said = wishes.scheme or _find_scheme(pod, container, port)
    return EnginePort(container, port, said or "http", is_guess=not said)


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
