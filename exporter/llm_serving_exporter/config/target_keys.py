"""Every key of a target, declared once: an element of `targets:`, the defaults of targets, the labels of file_sd.

A field with `target_key(…)` is the whole declaration: how the key is read, whether `target_defaults` and the labels of file_sd may
set it, and what docs/configuration.md says. A value ends up in the field of `model.target.Target` that has the same name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from llm_serving_exporter.config.gpu_name import read_gpu_model
from llm_serving_exporter.config.http import Auth, Tls, read_auth, read_headers, read_tls
from llm_serving_exporter.config.identity import (
    CONTAINER,
    INSTANCE_TYPE,
    NAMESPACE,
    POD,
    PROVIDER_ID,
    REGION,
    WORKLOAD,
    WORKLOAD_KIND,
    merge_labels,
    read_own_labels,
)
from llm_serving_exporter.config.model import read_model
from llm_serving_exporter.config.option import option
from llm_serving_exporter.config.resource import read_resource
from llm_serving_exporter.config.target_kinds import (
    BATCH_LIMIT,
    CONTEXT_LIMIT,
    GPU_COUNT,
    GROUP,
    MODEL_NAME,
    NAME,
    NODE,
    PARALLEL_SIZE,
    ROLE,
    read_address,
    read_gpus,
    read_nodes,
    read_runtime,
)
from llm_serving_exporter.model.model_settings import ModelSettings
from llm_serving_exporter.model.target import Role, Secret
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.keys import Key, Reader, declare, key, keys_of
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.url import URL, Address

# of a label: a name that the catalogue does not have is no reason to lose the target
_ANY_GPU_MODEL = kinds.text("GPU name")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKey(Key):
    """A key of a target."""

    # the label of a file_sd group that may set it too; "" = none
    label: str = ""
    # how the label's text is read, where that is not how the file's value is read
    label_reads: Kind[Any] | None = None
    # whether `target_defaults` and the `defaults` of file_sd may set it
    in_defaults: bool = True


def target_key(
    reads: Kind[Any] | Reader,
    help_text: str,
    *,
    name: str = "",
    label: str = "",
    label_reads: Kind[Any] | None = None,
    in_defaults: bool = True,
) -> Any:
    """A field that a key of a target sets; None where the key is not given."""
    declared = TargetKey(
        reads=reads, help=help_text, name=name, label=label, label_reads=label_reads, in_defaults=in_defaults
    )
    return declare(declared)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What one place sets for a target. None = nothing, so that the next place in line decides."""

    address: Address | None = target_key(
        read_address,
        "`http://host:port` or `https://host:port`; a path in it is the `metrics_path`; `host:port` alone "
        "means http. No user name or password, no query.",
        name="url",
        in_defaults=False,
    )
    name: str | None = target_key(
        NAME,
        "The label `target`. Default: `namespace/pod:port` where the target's pod is known, else `host:port`, with the exporter's own "
        "host name for a server on the same host.",
        label="name",
        in_defaults=False,
    )
    metrics_path: str | None = target_key(
        kinds.METRICS_PATH,
        "Path of the server's metrics page, with a query where it needs one: `/metrics?model=NAME` for one "
        "model of a llama.cpp router, to which `autoload=false` is added, so that a scrape never loads a "
        "model. The landing page shows it: no secrets. Default: the exporter finds it.",
        label="__metrics_path__",
    )
    runtime: str | None = target_key(
        read_runtime,
        "One of [those that have a table](runtimes.md), one of the file's own ([Runtimes](#runtimes)), or "
        "`auto` (default): recognised from the page.",
        label="runtime",
    )
    model_name: str | None = target_key(MODEL_NAME, "Where the page does not say it.", label="model_name")
    role: Role | None = target_key(
        ROLE,
        "`unified`, `prefill`, `decode` or `frontend` (it speaks for engines behind it). Default: as the page "
        "says, else `unified`.",
        label="role",
    )
    group: str | None = target_key(
        GROUP,
        "A pool that you name yourself, on `target_info`; of ranks that share experts, their replica.",
        label="group",
    )
    namespace: str | None = target_key(
        NAMESPACE, "Of its pod. With `pod` it gives the target its default name.", label="namespace"
    )
    pod: str | None = target_key(POD, "The name of its pod.", label="pod", in_defaults=False)
    container: str | None = target_key(CONTAINER, "The engine's container in the pod.", label="container")
    workload: str | None = target_key(
        WORKLOAD, "What owns its pod and outlives it: a Deployment, a LeaderWorkerSet.", label="workload"
    )
    workload_kind: str | None = target_key(
        WORKLOAD_KIND, "The kind of `workload`, as Kubernetes writes it.", label="workload_kind"
    )
    provider_id: str | None = target_key(
        PROVIDER_ID, "What the cloud calls the machine that it runs on.", label="provider_id"
    )
    region: str | None = target_key(REGION, "Where that machine is.", label="region")
    instance_type: str | None = target_key(INSTANCE_TYPE, "What kind of machine it is.", label="instance_type")
    labels: tuple[tuple[str, str], ...] | None = target_key(
        read_own_labels,
        "Labels of its own, at most 32: `{team: search}`. They stand on `target_info`, and on every series of the target where "
        "[target_labels](#labels-of-targets) names them. Those of `target_defaults` are added.",
    )
    # the reader of targets turns it into `nodes`
    node: str | None = target_key(NODE, "The node of the replica.", label="node")
    nodes: tuple[str, ...] | None = target_key(
        read_nodes, "The nodes of a replica that spans several, first the one that its address is on."
    )
    gpus: tuple[str | int, ...] | None = target_key(
        read_gpus,
        "List of GPU UUIDs, or of indices on the exporter's own node; `none` for no GPU. Default: the "
        "exporter finds them. A GPU belongs to one target.",
    )
    gpu_count: int | None = target_key(
        GPU_COUNT,
        "Number of GPUs of a server elsewhere, whose GPUs cannot be seen from here; of one that spans nodes, "
        "all of them.",
        label="gpu_count",
    )
    gpu_share: float | None = target_key(
        kinds.SHARE,
        "Which part of each of its GPUs is its own, above 0, up to 1, where others use them too, and for slices of a "
        "card (MIG). Default: as the kubelet gave it, else [by the memory of its processes](cost.md#one-gpu-of-several-engines).",
        label="gpu_share",
    )
    gpu_model: str | None = target_key(
        read_gpu_model,
        "What its GPUs are (`H100 SXM`, `MI300X`, `TPU v6e`, …, or one of [gpu_models](#gpus-of-your-own)), where NVML does not show them.",
        label="gpu_model",
        label_reads=_ANY_GPU_MODEL,
    )
    tensor_parallel_size: int | None = target_key(
        PARALLEL_SIZE,
        "GPUs that share each layer, where the server does not say so. Default: one tensor-parallel group "
        "over the GPUs of an engine.",
        label="tensor_parallel_size",
    )
    pipeline_parallel_size: int | None = target_key(
        PARALLEL_SIZE, "Pipeline stages, where the server does not say so.", label="pipeline_parallel_size"
    )
    data_parallel_size: int | None = target_key(
        PARALLEL_SIZE,
        "Data-parallel ranks of the whole replica, where the server does not say so; under data-parallel attention "
        "`tensor_parallel_size` is that of one rank. Ranks with pages of their own that share experts are "
        "[one replica](n1.md#wide-expert-parallelism): those of the same `group`, else of the same workload.",
        label="data_parallel_size",
    )
    decode_context_parallel_size: int | None = target_key(
        PARALLEL_SIZE,
        "Parts that a sequence's KV is cut into among the tensor-parallel GPUs (vLLM's decode context parallelism), where the server "
        "does not say so.",
        label="decode_context_parallel_size",
    )
    experts_shared: bool | None = target_key(
        kinds.BOOLEAN,
        "Whether the data-parallel ranks of a mixture-of-experts model share one set of experts (expert parallelism). Default: as "
        "the server says, else true.",
        label="experts_shared",
    )
    model: ModelSettings | None = target_key(
        read_model, "What it serves, where the exporter cannot find that: see [Models](#models)."
    )
    batch_limit_requests: int | None = target_key(
        BATCH_LIMIT, "The engine's `max_num_seqs`, where the server does not say so.", label="batch_limit_requests"
    )
    context_limit_tokens: int | None = target_key(
        CONTEXT_LIMIT, "The longest context, where the server does not say so.", label="context_limit_tokens"
    )
    interval_seconds: float | None = target_key(
        kinds.INTERVAL, "How often the server is scraped. Default: `scrape.interval`.", name="interval"
    )
    timeout_seconds: float | None = target_key(
        kinds.DURATION,
        "Deadline of one scrape. Default: `scrape.timeout`, else 80 % of the interval, at most 10s.",
        name="timeout",
    )
    max_series: int | None = target_key(
        kinds.MAX_SERIES, "Most series of its metrics page. Default: `scrape.max_series`."
    )
    max_body_bytes: int | None = target_key(
        kinds.SIZE, "Largest metrics page, after decompression. Default: `scrape.max_body_bytes`."
    )
    auth: Auth | None = target_key(
        read_auth,
        "`{bearer_token_file: …}`, `{bearer_token_env: …}`, or `{basic: {username: …, password_file: …}}` (or "
        "`password_env`).",
    )
    headers: tuple[tuple[str, str | Secret], ...] | None = target_key(
        read_headers, "More request headers: `{Name: text}`, `{Name: {file: …}}` or `{Name: {env: …}}`."
    )
    tls: Tls | None = target_key(
        read_tls, "`ca_file`, `cert_file` and `key_file`, `server_name`, `insecure_skip_verify`."
    )

    def completed_by(self, under: TargetSettings) -> TargetSettings:
        """These settings, and those of `under` where these set nothing. auth, headers, tls and nodes are "
        "each one setting; labels are added to those of `under`."""
        merged: dict[str, Any] = {}
        for item in fields(self):
            own = getattr(self, item.name)
            merged[item.name] = getattr(under, item.name) if own is None else own
        if self.labels is not None:
            merged["labels"] = merge_labels(self.labels, under.labels)
        return TargetSettings(**merged)


TARGET_KEYS: dict[str, TargetKey] = {
    attribute: one for attribute, one in keys_of(TargetSettings).items() if isinstance(one, TargetKey)
}


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """`dcgm:`: where this node's dcgm-exporter is and how to ask it."""

    url: Address | None = option(
        "dcgm.url",
        URL,
        "This node's dcgm-exporter, such as http://localhost:9400: memory bandwidth of GPUs older than "
        "Hopper. Default: not read.",
    )
    interval_seconds: float = option(
        "dcgm.interval",
        kinds.INTERVAL,
        "How often dcgm-exporter is read; by default it collects every 30s.",
        default="30s",
    )
    timeout_seconds: float | None = option(
        "dcgm.timeout",
        kinds.DURATION,
        "Deadline of one reading of dcgm-exporter; below its interval. Default: 80 % of the interval, at most 10s.",
    )
    auth: Auth | None = key(read_auth, "As for a target.")
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers, "As for a target.")
    tls: Tls | None = key(read_tls, "As for a target.")


@dataclass(frozen=True, slots=True)
class DeviceExporterSettings:
    """`device_exporter:`: where this node's exporter of AMD's or Intel's GPUs is and how to ask it."""

    url: Address | None = option(
        "device-exporter.url",
        URL,
        "This node's AMD device-metrics-exporter or Intel Gaudi metric exporter, such as http://localhost:5000: its GPUs are read "
        "instead of NVML's (docs/other-gpus.md). Default: NVML.",
    )
    timeout_seconds: float | None = option(
        "device-exporter.timeout",
        kinds.DURATION,
        "Deadline of one reading of the device exporter. Default: 80 % of gpu.interval, at most 10s.",
    )
    auth: Auth | None = key(read_auth, "As for a target, for the device exporter.")
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers, "As for a target, likewise.")
    tls: Tls | None = key(read_tls, "As for a target, for its certificates.")


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """`otlp:`: where all series are sent over OTLP, and how."""

    url: Address | None = option(
        "otlp.url",
        URL,
        "Receiver of OTLP over HTTP that all series are sent to, such as http://localhost:4318; its path is /v1/metrics where the URL has "
        "none (docs/opentelemetry.md). Default: nothing is sent.",
    )
    interval_seconds: float = option(
        "otlp.interval", kinds.INTERVAL, "How often all series are sent over OTLP.", default="15s"
    )
    timeout_seconds: float | None = option(
        "otlp.timeout",
        kinds.DURATION,
        "Deadline of one request over OTLP; below its interval. Default: 80 % of the interval, at most 10s.",
    )
    gen_ai_operation: str | None = option(
        "otlp.gen-ai.operation",
        kinds.text("operation such as chat", 100),
        "Sends gen_ai.server.* too, with this as gen_ai.operation.name: chat, text_completion, generate_content, embeddings, or a word of "
        "your own. Engines count all kinds of requests together, so that you have to say what yours are. Default: not sent.",
    )
    auth: Auth | None = key(read_auth, "As for a target, for the receiver.")
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers, "As for a target, for the receiver.")
    tls: Tls | None = key(read_tls, "As for a target, for the receiver.")
    resource: tuple[tuple[str, str], ...] | None = key(
        read_resource,
        "Attributes of the resource, at most 32: `{deployment.environment.name: prod}`.",
    )
