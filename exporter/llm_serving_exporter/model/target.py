"""What is to be read: one LLM server, as configured. Secrets are named here, never held."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.identity import Identity, is_same_pod
from llm_serving_exporter.model.model_settings import ModelSettings
from llm_serving_exporter.model.pools import NodePlace
from llm_serving_exporter.model.record import Struct, field, replace


class Role(StrEnum):
    """What a replica does in its pool: both phases, or one of them (prefill/decode disaggregation), or it speaks for engines behind it."""

    UNIFIED = "unified"
    PREFILL = "prefill"
    DECODE = "decode"
    FRONTEND = "frontend"


class Secret(Struct, frozen=True):
    """Where a secret is read from, at each use, so that a rotated file takes effect. Exactly one of the two is set."""

    file: str | None = None  # path; None: `env` is set
    env: str | None = None  # name of an environment variable; None: `file` is set


class HttpSettings(Struct, frozen=True):
    """How to ask one server."""

    timeout_seconds: float = 4.0  # total deadline of one exchange: connect, TLS, send, wait, read
    max_body_bytes: int = 16 * 1024 * 1024  # cap of the body after decompression
    bearer_token: Secret | None = None  # None: no such header
    basic_username: str | None = None  # None: no basic authentication
    basic_password: Secret | None = None  # None: an empty one
    headers: tuple[tuple[str, str | Secret], ...] = ()  # extra request headers: name, and a literal value or a secret
    ca_file: str | None = None  # PEM bundle that the server's certificate is checked against; None: the system's
    cert_file: str | None = None  # PEM of the client's certificate; None: none is shown
    key_file: str | None = None  # PEM of its key; None where `cert_file` is
    server_name: str | None = None  # that the certificate must be for; None: the host of the URL
    insecure_skip_verify: bool = False  # whether any certificate is accepted


# flags of an engine's command line that a runtime's table knows, with their values; "": no number
Arguments = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One server to read, as configured or discovered.

    Parallel sizes, role and limits win over what the server says. None: as the server says it.
    """

    name: str  # unique; the label `target`
    url: str  # scheme://host:port, without a path
    metrics_path: str | None = None  # None: the usual paths are tried
    runtime: str | None = None  # name of a runtime's table; None: recognised by the page
    model_name: str | None = None  # for a page that names none
    role: Role | None = None  # None: as the page says, else unified
    replica: str = ""  # what it has in common with the other targets of one replica, as discovery says; "": nothing
    group: str = ""  # the label `group`, for users to group targets by; "": none
    identity: Identity = dataclasses.field(default_factory=Identity)  # its place, and labels of its own
    nodes: tuple[str, ...] = ()  # that it spans; (): this node for a local target, unknown for a remote one
    node_places: tuple[
        tuple[str, NodePlace], ...
    ] = ()  # where those nodes stand, as discovery knows it; each at most once
    gpus: tuple[str | int, ...] | None = None  # UUIDs or indices of its GPUs; (): it has none; None: they are found out
    gpu_count: int | None = None  # of all its engines, for a remote target whose GPUs cannot be seen
    lacks_pods: bool = (
        False  # whether it is of several pods, and not all are known: GPUs that are seen are not all of its own
    )
    may_speak_tls: bool = (
        False  # whether http is a guess, so that the server is asked by TLS once it shows that it speaks it
    )
    gpu_share: float | None = None  # of each of its GPUs, above 0, up to 1, where others use them too; None: all of it
    batch_limit_requests: int | None = None  # most requests that the engine runs at once (vLLM's max_num_seqs)
    arguments: Arguments = ()  # of its container's command line, as discovery knows it
    context_limit_tokens: int | None = None  # longest context that the server accepts
    model: ModelSettings = dataclasses.field(default_factory=ModelSettings)  # what is configured about its model
    # name of its GPUs in the catalogue, where NVML does not show them; None: as NVML or the server says
    gpu_model: str | None = None
    tensor_parallel_size: int | None = None  # GPUs that share each layer
    pipeline_parallel_size: int | None = None  # stages that the layers are split into
    data_parallel_size: int | None = None  # engines (ranks) of the server
    decode_context_parallel_size: int | None = None  # parts that a sequence's KV is cut into among the GPUs of a layer
    experts_shared: bool | None = None  # whether its data-parallel ranks share one set of routed experts
    interval_seconds: float = 5.0  # from one attempt to the next
    max_series: int = 50_000  # cap on the series of a page
    http: HttpSettings = dataclasses.field(
        default_factory=HttpSettings
    )  # deadline, credentials and TLS of its requests
    # where each of its keys can be set, as the end of a sentence that begins with the key; {}: in `targets` of the configuration. A server
    # that is named elsewhere is no other one
    places: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


def is_relabelled(before: Target, now: Target) -> bool:
    """Whether two targets of one name are the same server, read in the same way.

    Only its labels, its nodes, where these stand, and the number of its GPUs differ, if anything does: workers join the pods of a replica,
    leave them, and are heard of later than their leader.
    """
    if before == now:
        return True
    alike = replace(
        before,
        identity=now.identity,
        nodes=now.nodes,
        node_places=now.node_places,
        group=now.group,
        gpu_count=now.gpu_count,
        lacks_pods=now.lacks_pods,
    )
    return alike == now and is_same_pod(before.identity, now.identity)


class ExpectedReplicas(Struct, frozen=True):
    """How many replicas of a model in a role the user means to run."""

    model_name: str  # as served
    role: str  # a value of Role
    replicas: int  # 0 or more
    # what tells these replicas from others of the same model and role: no pod, container or node, which come and go
    identity: Identity = field(default_factory=Identity)
