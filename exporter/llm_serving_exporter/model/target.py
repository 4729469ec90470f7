"""What is to be read: one LLM server as configured or discovered, its place, its replica and its pod, and where its exporter stands.

Secrets are named here, never held.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import lru_cache

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, replace


class Identity(Struct, frozen=True):
    """What is known of a target's place. "" where it is not known, or does not exist.

    It is part of the target's settings: a target with another pod UID is another target, never a continuation of the one before it.
    """

    namespace: str = ""  # of the pod
    pod: str = ""  # its name
    pod_uid: str = ""  # never exported: it tells a pod from the next one of the same name
    container: str = ""  # of the engine in the pod
    workload: str = ""  # what owns the pod and outlives it: a Deployment, a LeaderWorkerSet, an InferenceService
    workload_kind: str = ""  # its kind, as Kubernetes writes it
    provider_id: str = ""  # of the node, as the cloud calls the machine
    region: str = ""  # of the node
    instance_type: str = ""  # of the node
    labels: tuple[tuple[str, str], ...] = ()  # of its own: name and value, sorted by name


def is_same_pod(before: Identity, now: Identity) -> bool:
    """Whether two identities under one name may be of the same pod and container: nothing that is known of both differs.

    A namespace alone, without a pod, is a label like any other.
    """
    if before is now:
        return True
    fields = ["pod", "pod_uid", "container", *(["namespace"] if before.pod and now.pod else [])]
    pairs = ((getattr(before, name), getattr(now, name)) for name in fields)
    return all(old == new or not (old and new) for old, new in pairs)


class NodePlace(Struct, frozen=True):
    """Where a node stands and what it is. "" where that is not known."""

    region: str = ""  # of the cloud, as in us-east-1
    zone: str = ""  # of the region, as in us-east-1a
    instance_type: str = ""  # that the machine was ordered as
    provider_id: str = ""  # what the cloud calls the machine

    def fill_up(self, other: NodePlace) -> NodePlace:
        """The same, with what is not known here taken from another source."""
        return NodePlace(
            self.region or other.region,
            self.zone or other.zone,
            self.instance_type or other.instance_type,
            self.provider_id or other.provider_id,
        )


# nothing is known of where it stands
NOWHERE = NodePlace()


class ModelSettings(Struct, frozen=True):
    """What the configuration says about the model that a target serves. None: nothing."""

    config: str | None = None  # path of a config.json, of its folder, or of a model's folder in a Hugging Face cache
    name: str | None = None  # a model of the built-in catalogue, where the served name is another
    weight_format: str | None = None  # wins over everything else, as the two below do
    kv_cache_dtype: str | None = None  # such as fp8
    state_dtype: str | None = None  # of recurrent state (Mamba, gated DeltaNet)


class ServedModel(Struct, frozen=True):
    """What the runtime says about a model: text from outside, not to be trusted as a path. None: it does not say."""

    name: str
    root: str | None = None  # what was loaded, a path or a hub id
    dtype: str | None = None  # of what is not quantised, as the engine writes it ("auto": the checkpoint's)
    quantization: str | None = None  # the engine's word for the weights' format; "": it says that there is none
    kv_cache_dtype: str | None = None  # as the engine writes it ("auto": the model's)
    state_dtype: str | None = None  # of recurrent state, as the engine writes it
    weight_bytes: int | None = None  # as stored
    said_by: str = "the server"  # who says it, in words
    # checkpoints' methods, and families, that say "auto" (a family also "fp8") and keep KV otherwise
    kv_as_calibrated: frozenset[str] = frozenset()


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
    bearer_token: Secret | None = None
    basic_username: str | None = None
    basic_password: Secret | None = None  # None: an empty one
    headers: tuple[tuple[str, str | Secret], ...] = ()  # beside the usual: name, and a literal value or a secret
    ca_file: str | None = None  # PEM bundle that the server's certificate is checked against; None: the system's
    cert_file: str | None = None  # PEM of the client's certificate; None: none is shown
    key_file: str | None = None  # PEM of its key; None where `cert_file` is
    server_name: str | None = None  # that the certificate must be for; None: the host of the URL
    insecure_skip_verify: bool = False


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
    identity: Identity = dataclasses.field(default_factory=Identity)
    nodes: tuple[str, ...] = ()  # that it spans; (): this node for a local target, unknown for a remote one
    node_places: tuple[tuple[str, NodePlace], ...] = ()  # of `nodes`, as discovery knows it; each at most once
    gpus: tuple[str | int, ...] | None = None  # UUIDs or indices of its GPUs; (): it has none; None: they are found out
    gpu_count: int | None = None  # of all its engines, for a remote target whose GPUs cannot be seen
    lacks_pods: bool = False  # whether pods of it are not known: GPUs that are seen are not all of its own
    may_speak_tls: bool = False  # whether http is a guess: it is asked by TLS once it shows that it speaks it
    gpu_share: float | None = None  # of each of its GPUs, above 0, up to 1, where others use them too; None: all of it
    batch_limit_requests: int | None = None  # most requests that the engine runs at once (vLLM's max_num_seqs)
    arguments: Arguments = ()  # of its container's command line, as discovery knows it
    context_limit_tokens: int | None = None  # longest context that the server accepts
    model: ModelSettings = dataclasses.field(default_factory=ModelSettings)
    gpu_model: str | None = None  # in the catalogue, where NVML does not show them; None: as NVML or the server says
    tensor_parallel_size: int | None = None  # GPUs that share each layer
    pipeline_parallel_size: int | None = None  # stages that the layers are split into
    data_parallel_size: int | None = None  # engines (ranks) of the server
    decode_context_parallel_size: int | None = None  # parts that a sequence's KV is cut into among the GPUs of a layer
    experts_shared: bool | None = None  # whether its data-parallel ranks share one set of routed experts
    interval_seconds: float = 5.0
    max_series: int = 50_000  # cap on the series of a page
    http: HttpSettings = dataclasses.field(default_factory=HttpSettings)
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
    labels = ("identity", "nodes", "node_places", "group", "gpu_count", "lacks_pods")
    alike = replace(before, **{name: getattr(now, name) for name in labels})
    return alike == now and is_same_pod(before.identity, now.identity)


class ExpectedReplicas(Struct, frozen=True):
    """How many replicas of a model in a role the user means to run."""

    model_name: str
    role: str  # a value of Role
    replicas: int
    identity: Identity = field(default_factory=Identity)  # without pod, container and node, which come and go


def claim_of(target: Target, gpu: str | int) -> str:
    """A key that is the same for two targets with the same configured GPU: its UUID, or its nodes and its index."""
    return gpu if isinstance(gpu, str) else f"{'+'.join(target.nodes)} {gpu}"


def fit_one_gpu(shares: Collection[float | None]) -> bool:
    """Whether the parts of one GPU that several targets have are all known (not None), and at most 1 together."""
    # thirds add up to a little more
    return None not in shares and add_up(share or 0.0 for share in shares) <= 1 + 1e-9


class ReplicaPart(Struct, frozen=True):
    """A target whose engines are some of the ranks of a replica, which share one set of experts (wide expert parallelism)."""

    replica: str  # their group, else their namespace and workload; "": nothing that is known
    ranks: int  # of the replica
    shown: int  # on the target's own page
    read: int  # those on the pages that this exporter reads now, the target's own included


class Siblings(Struct, frozen=True):
    """The ranks of a target's replica that are on other targets' pages, as this exporter last read them."""

    ranks: int = 0
    requests: float = 0.0  # that run on all of them together


class PodFault(StrEnum):
    """Why Kubernetes itself knows that a pod's engine does not serve, whatever its page says."""

    CRASH_LOOP = "crash_loop"  # CrashLoopBackOff of the engine's container
    NODE_LOST = "node_lost"  # the pod is not ready, and its node answers no more
    WORKER_LOST = "worker_lost"  # another pod of its replica is gone, crashes, or is on such a node


class PodState(Struct, frozen=True):
    """The pod of one target as last seen."""

    # of the engine's container since its last start: from then on only the page says what loads
    was_ready: bool = False
    created_unix_seconds: float | None = None  # by the API server's clock, one for all pods; None: not known
    fault: PodFault | None = None
    loading_limit_seconds: float = 3600.0  # how long after its start what has not been Ready counts as loading
    is_ready: bool = False  # by its readiness probe: who has an address, not what the engine does
    # start of the engine's container, else the pod's, by the monotonic clock here; None: not known
    loading_since_seconds: float | None = None

    def may_load(self, now_seconds: float) -> bool:
        """Whether its engine, if it does not answer, is still loading: not Ready since its last start, which is not long ago.

        `now_seconds`: of the monotonic clock.
        """
        if self.was_ready or self.fault is not None:
            return False
        since = self.loading_since_seconds
        return since is None or now_seconds - since <= self.loading_limit_seconds


class WaitingPod(Struct, frozen=True):
    """A pod that is wanted, and is not ready to be a target: it has no address yet."""

    namespace: str
    pod: str
    workload: str
    workload_kind: str
    model_name: str  # as far as labels and annotations say it; "": not known
    role: str  # a value of Role


class Mode(StrEnum):
    """What goes with the exporter when it goes."""

    SIDECAR = "sidecar"  # in the pod of the engine that it reads: it comes and goes with it
    NODE = "node"  # on the node of its targets
    CENTRAL = "central"  # elsewhere


# what /etc/hosts of Debian and of Red Hat call the loopback addresses, beside localhost itself
_LOOPBACK_NAMES = frozenset(
    {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}
    | {"localhost4.localdomain4", "localhost6.localdomain6"}
)


# every look at a fleet asks again of each of its targets
@lru_cache(maxsize=4096)
def is_own_host(host: str, own_name: str) -> bool:
    """Whether `host`, as a URL names it (no brackets), is the host whose name is `own_name`: for the configuration and for whose GPUs are.

    True for loopback and unspecified addresses (also IPv4-mapped ones), for loopback names (RFC 6761: all of `.localhost`) and for the own
    name; where that has a domain, also for its first label alone, which resolves within the same domain. Not true for the own name with a
    domain that it does not have itself: a host or pod of another domain may have the same short name. The resolver and the network
    interfaces are not asked, so that a target's identity depends on the configuration alone.
    """
    host, own_name = host.lower().rstrip("."), own_name.lower().rstrip(".")
    if not host:
        return False
    if host == own_name or host in _LOOPBACK_NAMES or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == own_name.partition(".")[0]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_unspecified


def encode_host(host: str) -> str | bytes:
    """What `getaddrinfo` is to be asked: of text, even of ASCII, it would load Python's tables of Unicode for domain names (0.3 MB).

    A name that needs them, or has an empty or too long label, stays text: then it raises UnicodeError for what is none.
    """
    # as its codec takes ASCII for what it is (RFC 3490, 4.1)
    plain = host.isascii() and all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    return host.encode("ascii") if plain else host


MOST_SHARDS = 256


class Shard(Struct, frozen=True):
    """One part of a fleet that is divided among exporters by the targets' names."""

    number: int  # from 1 to `count`
    count: int  # of all shards, from 1 to MOST_SHARDS

    def holds(self, name: str) -> bool:
        """Whether the target of this name belongs to this shard. Of all shards of one count, exactly one says so."""
        return find_shard(name, self.count) == self.number

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def find_shard(name: str, count: int) -> int:
    """The number of the shard, from 1 to `count`, that a target's name belongs to.

    It depends on nothing but the two. With one shard more, 1/(count + 1) of the names move, each of them to the new shard.
    Jump consistent hash: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014, arXiv:1406.2294. Its shards come
    and go at the end of the row, as the pods of a StatefulSet do.
    """
    # takes as long to import as a tenth of --help
    from hashlib import blake2b

    # half of a surrogate pair can come from JSON
    state = int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest())
    shard, following = 0, 0
    while following < count:
        shard = following
        # a linear congruential generator modulo 2^64, with the multiplier of the paper
        state = (state * 2862933555777941757 + 1) % 2**64
        # the paper's rule for the next count at which the name would move, from 31 random bits
        following = int((shard + 1) * (2**31 / ((state >> 33) + 1)))
    return shard + 1
