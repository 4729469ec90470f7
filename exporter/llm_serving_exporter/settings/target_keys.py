"""Every key of a target, declared once: an element of `targets:`, the defaults of targets, the labels of file_sd.

A field with `target_key(…)` is the whole declaration: how the key is read, whether `target_defaults` and the labels of file_sd may
set it, and what docs/configuration.md says. A value ends up in the field of `model.target.Target` that has the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.target import ModelSettings, Role, Secret
from llm_serving_exporter.settings import identity, kinds
from llm_serving_exporter.settings.facts import GPU_COUNT, GPU_NAME, MODEL_NAME, read_gpu_model, read_model
from llm_serving_exporter.settings.http import Auth, Tls, read_auth, read_headers, read_tls
from llm_serving_exporter.settings.keys import is_empty, keys_of, read_values, refuse_repeats, value
from llm_serving_exporter.settings.kinds import Kind, ServerAddress, parse_url
from llm_serving_exporter.settings.options import Context, TargetKey, target_key
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, Scalar, shown

AUTO = "auto"
TARGET_NAME = kinds.text("name")
GROUP = kinds.text("group")
ROLE = kinds.member("role", Role)
BATCH_LIMIT = kinds.integer(1, 10_000_000)
CONTEXT_LIMIT = kinds.integer(1, 1_000_000_000)
PARALLEL_SIZE = kinds.integer(1, 65_536)
# UUIDs as nvidia-smi -L prints them; MIG devices have a form of their own
_GPU_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{8,100}")


def runtime_kind(runtimes: Collection[str]) -> Kind[str]:
    """A runtime that has a mapping table, or auto."""
    return kinds.choice("runtime that is supported", (AUTO, *sorted(runtimes)))


def _read_runtime(node: Node, place: Place, context: Context) -> str | None:
    return value(node, place, runtime_kind(context.runtimes))


def _target_url(text: str) -> ServerAddress:
    address = parse_url(text)
    if address.path is not None and address.path.rstrip("/") == "/v1":
        fix = "Remove /v1: the metrics page is beside it, not below it."
        raise InvalidValueError("the URL ends in /v1, which is the API", fix)
    return address


TARGET_URL = Kind("a URL such as http://localhost:8000", _target_url, is_text=True)


def _read_nodes(node: Node, place: Place, context: Context) -> tuple[str, ...] | None:
    """The names of nodes; None for an empty key."""
    if is_empty(node):
        return None
    names = tuple(read_values(node, place, identity.NODE, "node names"))
    refuse_repeats(names, place, "node")
    return names


def _gpu(text: str) -> str | int:
    if re.fullmatch(r"[0-9]{1,4}", text):
        return int(text)
    if not _GPU_UUID.fullmatch(text):
        raise InvalidValueError(f"{shown(text)} is neither a GPU UUID nor an index", "See nvidia-smi -L for both.")
    return text


def _read_gpus(node: Node, place: Place, context: Context) -> tuple[str | int, ...] | None:
    """GPU UUIDs or indices; () for `none`."""
    if isinstance(node, Scalar) and node.text == "none":
        return ()
    if isinstance(node, Scalar):
        fix = 'Write gpus: [0, 1] or gpus: ["GPU-…"]; for a number of GPUs write gpu_count.'
        place.refuse("must be a list of GPU UUIDs or indices, or none", fix)
        return None
    gpus = tuple(read_values(node, place, Kind("a GPU UUID or index", _gpu), "GPUs"))
    refuse_repeats(gpus, place, "GPU")
    return gpus


# --- the keys ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What one place sets for a target. None = nothing, so that the next place in line decides."""

    address: ServerAddress | None = target_key(
        TARGET_URL,
        "`http://host:port` or `https://host:port`; a path in it is the `metrics_path`; `host:port` alone "
        "means http. No user name or password, no query.",
        name="url",
        in_defaults=False,
    )
    name: str | None = target_key(
        TARGET_NAME,
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
        _read_runtime,
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
        identity.NAMESPACE, "Of its pod. With `pod` it gives the target its default name.", label="namespace"
    )
    pod: str | None = target_key(identity.POD, "The name of its pod.", label="pod", in_defaults=False)
    container: str | None = target_key(identity.CONTAINER, "The engine's container in the pod.", label="container")
    workload: str | None = target_key(
        identity.WORKLOAD, "What owns its pod and outlives it: a Deployment, a LeaderWorkerSet.", label="workload"
    )
    workload_kind: str | None = target_key(
        identity.WORKLOAD_KIND, "The kind of `workload`, as Kubernetes writes it.", label="workload_kind"
    )
    provider_id: str | None = target_key(
        identity.PROVIDER_ID, "What the cloud calls the machine that it runs on.", label="provider_id"
    )
    region: str | None = target_key(identity.REGION, "Where that machine is.", label="region")
    instance_type: str | None = target_key(identity.INSTANCE_TYPE, "What kind of machine it is.", label="instance_type")
    labels: tuple[tuple[str, str], ...] | None = target_key(
        identity.read_own_labels,
        "Labels of its own, at most 32: `{team: search}`. They stand on `target_info`, and on every series of the target where "
        "[target_labels](#labels-of-targets) names them. Those of `target_defaults` are added.",
    )
    # the reader of targets turns it into `nodes`
    node: str | None = target_key(identity.NODE, "The node of the replica.", label="node")
    nodes: tuple[str, ...] | None = target_key(
        _read_nodes, "The nodes of a replica that spans several, first the one that its address is on."
    )
    gpus: tuple[str | int, ...] | None = target_key(
        _read_gpus,
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
        label_reads=GPU_NAME,
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
        """These settings, and those of `under` where these set nothing.

        auth, headers, tls and nodes are each one setting; labels are added to those of `under`.
        """
        stated = self.stated
        if self.labels is not None:
            stated["labels"] = identity.merge_labels(self.labels, under.labels)
        return replace(under, **stated)

    @property
    def stated(self) -> dict[str, Any]:
        """What it sets, by field."""
        return {name: content for name in name_fields(self) if (content := getattr(self, name)) is not None}


TARGET_KEYS: dict[str, TargetKey] = {
    attribute: declared for attribute, declared in keys_of(TargetSettings).items() if isinstance(declared, TargetKey)
}


# --- where each can be set, by what names the target: nobody edits `targets:` for a pod --------------------------------

# key of a target -> the annotation of its pod that sets it
ANNOTATION_OF_KEY: Mapping[str, str] = {
    "url": "llm-serving-exporter/port",
    "metrics_path": "llm-serving-exporter/path",
    "runtime": "llm-serving-exporter/runtime",
    "role": "llm-serving-exporter/role",
    "model_name": "llm-serving-exporter/model",
}


class FoundBy(StrEnum):
    """The section of the configuration that finds a target."""

    FILE_SD = "file_sd"
    HTTP_SD = "http_sd"
    KUBERNETES = "kubernetes"


def list_places(by: FoundBy, source: str) -> Mapping[str, str]:
    """Every key of a target, with where a target that is found so has it: the end of a sentence that begins with the key.

    `source`: the file or the URL that lists it; the name of the section for pods.
    """
    section = f"in `defaults` of its section of `{by.value}`"
    find: Callable[[TargetKey, str], str] = _find_pod_place if by is FoundBy.KUBERNETES else _find_listed_place
    return {key.name: find(key, section).replace("{source}", source) for key in TARGET_KEYS.values()}


def _find_pod_place(key: TargetKey, section: str) -> str:
    if key.name in ANNOTATION_OF_KEY:
        return f"by the pod's annotation {ANNOTATION_OF_KEY[key.name]}"
    if key.name == "gpus":
        return "by what the kubelet or the engine's environment says, docs/kubernetes-gpus.md"
    return section if key.in_defaults else "by the pod itself"


def _find_listed_place(key: TargetKey, section: str) -> str:
    if key.name == "url":
        return "by the address in {source}"
    if key.name == "gpus":
        return "in an entry of its own in `targets`, which takes the place of this one"
    return f"by the label {key.label} in {{source}}" if key.label else section
