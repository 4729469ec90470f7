"""One target group of a file_sd file -> targets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from llm_serving_exporter.config.settings import AUTO, nodes_of
from llm_serving_exporter.config.target import (
    BATCH_LIMIT,
    CONTEXT_LIMIT,
    GPU_COUNT,
    GROUP,
    MODEL_NAME,
    NAME,
    NODE,
    PARALLEL_SIZE,
    ROLE,
    runtime_kind,
)
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Host
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, parsed, value
from llm_serving_exporter.schema.tree import Node, Scalar
from llm_serving_exporter.schema.url import Address, parse_url

T = TypeVar("T")
LABELS = frozenset({
    "__scheme__", "__metrics_path__", "name", "runtime", "model_name", "role", "group", "node",
    "gpu_count", "gpu_share", "gpu_model", "tensor_parallel_size", "pipeline_parallel_size", "batch_limit_requests", "context_limit_tokens",
})  # fmt: skip
# any: one that the catalogue does not have is no reason to lose the target
_GPU_MODEL = kinds.text("GPU name")
_SCHEME = kinds.choice("scheme", ("http", "https"))
_ADDRESS = Kind("an address such as host:8000", str, is_text=True)


def read_group(
    node: Node, place: Place, defaults: Target, host: Host, runtimes: Collection[str], ignored: dict[str, None]
) -> list[Target]:
    """The targets of one group {targets, labels}. Labels without meaning here but __meta_* are added to `ignored`."""
    if not isinstance(node, dict):
        place.refuse("must be a mapping {targets: […], labels: {…}}", "Write targets: and labels:.")
        return []
    section = mapping(node, place, ("targets", "labels"))
    if is_empty(section.get("targets")):
        place.refuse("targets is missing", 'Write targets: ["host:8000"], or [] for none.')
    labels = _labels(section.get("labels"), place.key("labels"), ignored)
    where = place.key("labels")
    scheme = _label(labels, "__scheme__", where, _SCHEME) or "http"
    shared = _shared(labels, where, defaults, runtimes)
    name = _label(labels, "name", where, NAME)
    node_name = _label(labels, "node", where, NODE)
    nodes = (node_name,) if node_name else defaults.nodes
    found = list(elements(section.get("targets"), place.key("targets"), "addresses such as host:8000"))
    if name is not None and len(found) > 1:
        where.key("name").refuse("the group has several targets", "A name is for a group of one target.")
    targets = []
    for element, at in found:
        address = _address(value(element, at, _ADDRESS), scheme, at)
        if address is not None:
            targets.append(
                replace(
                    shared,
                    name=name or address.name(host.name),
                    url=address.url,
                    nodes=nodes_of(nodes, address, host),
                )
            )
    return targets


def _labels(node: Node | None, place: Place, ignored: dict[str, None]) -> dict[str, Node]:
    if node is None or is_empty(node):
        return {}
    labels = mapping(node, place, node.keys() if isinstance(node, dict) else ("model_name",))
    for name, content in labels.items():
        if name.startswith("__param_"):
            place.key(name).refuse("query parameters stand in the path", "Write __metrics_path__: /metrics?NAME=VALUE.")
        elif not isinstance(content, Scalar):
            place.key(name).refuse("must be a text", "A label has a single value.")
        elif name not in LABELS and not name.startswith("__meta_"):
            ignored[name] = None
    return {name: content for name, content in labels.items() if name in LABELS}


def _label(labels: dict[str, Node], name: str, place: Place, kind: Kind[T]) -> T | None:
    """A label's value. Prometheus takes every label as text, so `group: 7` is no mistake here; empty means unset."""
    content = labels.get(name)
    if not isinstance(content, Scalar) or content.kind == "nothing" or not content.text:
        return None
    return parsed(content.text, place.key(name), kind)


def _shared(labels: dict[str, Node], place: Place, defaults: Target, runtimes: Collection[str]) -> Target:
    runtime = _label(labels, "runtime", place, runtime_kind(runtimes))
    gpu_count = _label(labels, "gpu_count", place, GPU_COUNT)
    role = _label(labels, "role", place, ROLE)
    return replace(
        defaults,
        metrics_path=_label(labels, "__metrics_path__", place, kinds.METRICS_PATH) or defaults.metrics_path,
        runtime=defaults.runtime if runtime is None else None if runtime == AUTO else runtime,
        model_name=_label(labels, "model_name", place, MODEL_NAME) or defaults.model_name,
        role=defaults.role if role is None else Role(role),
        group=_label(labels, "group", place, GROUP) or defaults.group,
        gpu_count=gpu_count or defaults.gpu_count,
        gpu_share=_label(labels, "gpu_share", place, kinds.SHARE) or defaults.gpu_share,
        gpu_model=_label(labels, "gpu_model", place, _GPU_MODEL) or defaults.gpu_model,
        tensor_parallel_size=_label(labels, "tensor_parallel_size", place, PARALLEL_SIZE)
        or defaults.tensor_parallel_size,
        pipeline_parallel_size=_label(labels, "pipeline_parallel_size", place, PARALLEL_SIZE)
        or defaults.pipeline_parallel_size,
        batch_limit_requests=_label(labels, "batch_limit_requests", place, BATCH_LIMIT)
        or defaults.batch_limit_requests,
        context_limit_tokens=_label(labels, "context_limit_tokens", place, CONTEXT_LIMIT)
        or defaults.context_limit_tokens,
    )


def _address(text: str | None, scheme: str, place: Place) -> Address | None:
    if text is None:
        return None
    if "/" in text:
        place.refuse(
            f"{shown(text)} is not host:port" if "@" not in text else "this is not host:port",
            "Set the scheme and the path by the labels __scheme__ and __metrics_path__.",
        )
        return None
    try:
        return parse_url(f"{scheme}://{text}")
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return None
