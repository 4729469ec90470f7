"""What is kept of a pod and of a node: little, and nothing of their environment."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import Arguments


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
        known = [container.gpus for container in self.containers]
        return None if None in known else add_up(count for count in known if count is not None)


class NodeRecord(Struct, frozen=True):
    """A node, as the cloud that it is from calls it. "": not known."""

    provider_id: str = ""  # of the machine
    region: str = ""  # that it is in
    instance_type: str = ""  # that it was ordered as
    zone: str = ""  # of the region
    shares_gpus: bool = False  # whether its device plugin hands out a GPU several times, so that one is no whole one
