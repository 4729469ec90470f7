"""What is to be read: one LLM server, as configured. Secrets are named here, never held."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_exporter.model.model_settings import ModelSettings


class Role(StrEnum):
    """What a replica does in its pool: both phases, or one of them (prefill/decode disaggregation), or it speaks for engines behind it."""

    UNIFIED = "unified"
    PREFILL = "prefill"
    DECODE = "decode"
    FRONTEND = "frontend"


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is to be read from, at each use, so that a rotated file is picked up. Exactly one of the two is set."""

    file: str | None = None
    env: str | None = None


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How to ask one server. Sizes in bytes, times in seconds.

    `timeout_seconds` is the total deadline of one exchange: connect, TLS, send, wait, read. `headers` are extra request
    headers, each either a literal or a secret. `max_body_bytes` caps the body after decompression.
    """

    timeout_seconds: float = 4.0
    max_body_bytes: int = 16 * 1024 * 1024
    bearer_token: Secret | None = None
    basic_username: str | None = None
    basic_password: Secret | None = None
    headers: tuple[tuple[str, str | Secret], ...] = ()
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """One server to read.

    `url`: scheme://host:port, no path. `metrics_path`: None = find it. `runtime`: None = recognise it from the page.
    `role`: None = as the page says, else unified.
    `gpus`: UUIDs or indices of its GPUs, None = find out. `gpu_count`: for a remote target whose GPUs cannot be seen.
    `gpu_share`: of each of its GPUs, where others use it too; None = all of it.
    `nodes`: the nodes it spans, () = this node for a local target, unknown for a remote one.
    `model`: what is configured about its model. `gpu_model`: name of its GPUs for the catalogue, where NVML does not show them.
    The parallel sizes win over what the server says; `experts_shared`: whether its data-parallel ranks share one set of routed experts.
    `batch_limit_requests`: the engine's max_num_seqs where it does not say so itself. `max_series`: cap on series a page may have.
    """

    name: str
    url: str
    metrics_path: str | None = None
    runtime: str | None = None
    model_name: str | None = None
    role: Role | None = None
    group: str = ""
    nodes: tuple[str, ...] = ()
    gpus: tuple[str | int, ...] | None = None
    gpu_count: int | None = None
    gpu_share: float | None = None
    batch_limit_requests: int | None = None
    context_limit_tokens: int | None = None
    model: ModelSettings = field(default_factory=ModelSettings)
    gpu_model: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    experts_shared: bool | None = None
    interval_seconds: float = 5.0
    max_series: int = 50_000
    http: HttpSettings = field(default_factory=HttpSettings)


@dataclass(frozen=True, slots=True)
class ExpectedReplicas:
    """How many replicas of a model in a role the user means to run."""

    model_name: str
    role: str
    replicas: int
