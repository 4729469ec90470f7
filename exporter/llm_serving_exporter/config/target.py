"""One entry of `targets:`, or a block of defaults, -> what it says about a target."""

from __future__ import annotations

import re
from collections.abc import Collection

from llm_serving_exporter.config.facts import GPU_MODEL
from llm_serving_exporter.config.http import read_auth, read_headers, read_tls
from llm_serving_exporter.config.model import read_model
from llm_serving_exporter.config.settings import AUTO, TargetSettings
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, value
from llm_serving_exporter.schema.tree import Node, Scalar
from llm_serving_exporter.schema.url import parse_url

NAME = kinds.text("name")
MODEL_NAME = kinds.text("model name", 256)
GROUP = kinds.text("group")
NODE = kinds.text("node", 253)
ROLE = kinds.choice("role", tuple(Role))
GPU_COUNT = kinds.integer(1, 65_536)
BATCH_LIMIT = kinds.integer(1, 10_000_000)
CONTEXT_LIMIT = kinds.integer(1, 1_000_000_000)
PARALLEL_SIZE = kinds.integer(1, 65_536)
# UUIDs as nvidia-smi -L prints them; MIG devices have a form of their own
_GPU_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{8,100}")

SETTING_KEYS = (
    "metrics_path", "runtime", "model_name", "role", "group", "node", "nodes", "gpus", "gpu_count", "gpu_share",
    "batch_limit_requests", "context_limit_tokens", "gpu_model", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size", "experts_shared", "model", "interval", "timeout", "max_series", "max_body_bytes",
    "auth", "headers", "tls",
)  # fmt: skip
# what users of Prometheus, or of other exporters, would write
_HINTS = {
    "bearer_token": "A secret never stands in the file: write auth: {bearer_token_file: …} or {bearer_token_env: …}.",
    "bearer_token_file": "Write it below auth: auth: {bearer_token_file: …}.",
    "bearer_token_env": "Write it below auth: auth: {bearer_token_env: …}.",
    "api_key": "A secret never stands in the file: write auth: {bearer_token_file: …} or {bearer_token_env: …}.",
    "password": "A secret never stands in the file: write auth: {basic: {username: …, password_file: …}}.",
    "authorization": "Write auth: {bearer_token_file: …} or auth: {bearer_token_env: …}.",
    "basic_auth": "Write auth: {basic: {username: …, password_file: …}}.",
    "tls_config": "Write tls: {ca_file: …}.",
    "scheme": "The scheme is part of the URL: url: https://….",
    "scrape_interval": "Write interval.",
    "scrape_timeout": "Write timeout.",
    "scrape": "Write interval, timeout, max_series or max_body_bytes directly.",
    "tp": "Write tensor_parallel_size.",
    "pp": "Write pipeline_parallel_size.",
    "gpu": "Write gpus: [0, 1] for which GPUs, gpu_model: for what they are where NVML does not show them.",
    "labels": "Prometheus adds labels when it scrapes this exporter; here there are model_name, role, group and node.",
}


def read_target(node: Node, place: Place, context: Context) -> TargetSettings | None:
    """One element of `targets:`: a mapping, or just a URL. None where it has no usable URL, which is then reported."""
    if isinstance(node, Scalar) and node.kind == "text":
        return read_url(node.text, place)
    section = mapping(node, place, ("name", "url", *SETTING_KEYS), _HINTS)
    if "url" not in section:
        if isinstance(node, dict):
            place.refuse("url is missing", "Write one such as url: http://localhost:8000.")
        elif isinstance(node, Scalar) and node.kind == "nothing":
            place.refuse("the element is empty", "Write url: http://localhost:8000, or remove the dash.")
        return None
    own = TargetSettings(name=value(section.get("name"), place.key("name"), NAME))
    settings = own.over(_read_settings(section, place, context))
    url = value(section["url"], place.key("url"), Kind("a URL such as http://localhost:8000", str, is_text=True))
    located = read_url(url, place.key("url")) if url is not None else None
    if located is None:
        return None
    if located.metrics_path and settings.metrics_path and located.metrics_path != settings.metrics_path:
        place.refuse("the path of url and metrics_path differ", "Keep one of them.")
    return settings.over(located)


def read_url(url: str, place: Place) -> TargetSettings | None:
    """What a URL alone says about a target; None where it is not usable, which is then reported."""
    try:
        address = parse_url(url)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return None
    if address.path is not None and address.path.rstrip("/") == "/v1":
        place.refuse("the URL ends in /v1, which is the API", "Remove /v1: the metrics page stands beside it.")
        return None
    return TargetSettings(address=address, metrics_path=address.path)


def read_defaults(node: Node | None, place: Place, context: Context) -> TargetSettings:
    """`target_defaults:` or `defaults:` of a file_sd entry: every setting but name, url and GPUs by name."""
    hints = _HINTS | dict.fromkeys(("name", "url"), "Only a target itself can have it.")
    settings = _read_settings(mapping(node, place, SETTING_KEYS, hints), place, context)
    if settings.gpus:
        place.key("gpus").refuse("defaults cannot claim GPUs", "A GPU belongs to one target: write gpus there.")
    return settings


def _read_settings(section: dict[str, Node], place: Place, context: Context) -> TargetSettings:
    return TargetSettings(
        metrics_path=value(section.get("metrics_path"), place.key("metrics_path"), kinds.METRICS_PATH),
        runtime=value(section.get("runtime"), place.key("runtime"), runtime_kind(context.runtimes)),
        model_name=value(section.get("model_name"), place.key("model_name"), MODEL_NAME),
        role=value(section.get("role"), place.key("role"), ROLE),
        group=value(section.get("group"), place.key("group"), GROUP),
        nodes=_nodes(section, place),
        gpus=_gpus(section.get("gpus"), place.key("gpus")),
        gpu_count=value(section.get("gpu_count"), place.key("gpu_count"), GPU_COUNT),
        gpu_share=value(section.get("gpu_share"), place.key("gpu_share"), kinds.SHARE),
        batch_limit_requests=value(section.get("batch_limit_requests"), place.key("batch_limit_requests"), BATCH_LIMIT),
        context_limit_tokens=value(
            section.get("context_limit_tokens"), place.key("context_limit_tokens"), CONTEXT_LIMIT
        ),
        gpu_model=value(section.get("gpu_model"), place.key("gpu_model"), GPU_MODEL),
        tensor_parallel_size=value(
            section.get("tensor_parallel_size"), place.key("tensor_parallel_size"), PARALLEL_SIZE
        ),
        pipeline_parallel_size=value(
            section.get("pipeline_parallel_size"), place.key("pipeline_parallel_size"), PARALLEL_SIZE
        ),
        data_parallel_size=value(section.get("data_parallel_size"), place.key("data_parallel_size"), PARALLEL_SIZE),
        experts_shared=value(section.get("experts_shared"), place.key("experts_shared"), kinds.BOOLEAN),
        model=read_model(section.get("model"), place.key("model"), context),
        interval_seconds=value(section.get("interval"), place.key("interval"), kinds.INTERVAL),
        timeout_seconds=value(section.get("timeout"), place.key("timeout"), kinds.DURATION),
        max_series=value(section.get("max_series"), place.key("max_series"), kinds.MAX_SERIES),
        max_body_bytes=value(section.get("max_body_bytes"), place.key("max_body_bytes"), kinds.SIZE),
        auth=read_auth(section.get("auth"), place.key("auth"), context),
        headers=read_headers(section.get("headers"), place.key("headers"), context),
        tls=read_tls(section.get("tls"), place.key("tls"), context),
    )


def runtime_kind(runtimes: Collection[str]) -> Kind[str]:
    """A runtime that has a mapping table, or auto."""
    return kinds.choice("runtime that is supported", (AUTO, *sorted(runtimes)))


def _nodes(section: dict[str, Node], place: Place) -> tuple[str, ...] | None:
    if "node" in section and "nodes" in section:
        place.refuse("both node and nodes are given", "Keep one of them.")
        return None
    if is_empty(section.get("nodes")):
        node = value(section.get("node"), place.key("node"), NODE)
        return None if node is None else (node,)
    found = [value(node, at, NODE) for node, at in elements(section["nodes"], place.key("nodes"), "node names")]
    names = tuple(name for name in found if name is not None)
    if len(set(names)) < len(names):
        place.key("nodes").refuse("a node is named twice", "Name each node once.")
    return names


def _gpus(node: Node | None, place: Place) -> tuple[str | int, ...] | None:
    if node is None:
        return None
    if isinstance(node, Scalar):
        if node.text == "none":
            return ()
        place.refuse(
            "must be a list of GPU UUIDs or indices, or none",
            'Write gpus: [0, 1] or gpus: ["GPU-…"]; for a number of GPUs write gpu_count.',
        )
        return None
    found = [value(element, at, Kind("a GPU UUID or index", _gpu)) for element, at in elements(node, place, "GPUs")]
    gpus = tuple(gpu for gpu in found if gpu is not None)
    if len(set(gpus)) < len(gpus):
        place.refuse("a GPU is named twice", "Name each GPU once.")
    return gpus


def _gpu(text: str) -> str | int:
    if re.fullmatch(r"[0-9]{1,4}", text):
        return int(text)
    if not _GPU_UUID.fullmatch(text):
        raise InvalidValueError(f"{shown(text)} is neither a GPU UUID nor an index", "See nvidia-smi -L for both.")
    return text
