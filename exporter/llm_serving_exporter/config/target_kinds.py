"""How single values of a target are read: kinds for texts and numbers, readers for URL, runtime, nodes and GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection

from llm_serving_exporter.model.target import Role
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, value
from llm_serving_exporter.schema.tree import Node, Scalar
from llm_serving_exporter.schema.url import Address, parse_url

AUTO = "auto"
NAME = kinds.text("name")
MODEL_NAME = kinds.text("model name", 256)
GROUP = kinds.text("group")
NODE = kinds.text("node", 253)
ROLE = kinds.member("role", Role)
GPU_COUNT = kinds.integer(1, 65_536)
GPU_NAME = kinds.text("GPU name", 200)
BATCH_LIMIT = kinds.integer(1, 10_000_000)
CONTEXT_LIMIT = kinds.integer(1, 1_000_000_000)
PARALLEL_SIZE = kinds.integer(1, 65_536)
_URL = Kind("a URL such as http://localhost:8000", str, is_text=True)
# UUIDs as nvidia-smi -L prints them; MIG devices have a form of their own
_GPU_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{8,100}")


def runtime_kind(runtimes: Collection[str]) -> Kind[str]:
    """A runtime that has a mapping table, or auto."""
    return kinds.choice("runtime that is supported", (AUTO, *sorted(runtimes)))


def read_runtime(node: Node, place: Place, context: Context) -> str | None:
    """A runtime that the exporter or the file has a table for, or auto."""
    return value(node, place, runtime_kind(context.runtimes))


def read_url(url: str, place: Place) -> Address | None:
    """The address that a target's URL names; None where it is not usable, which is then reported."""
    try:
        address = parse_url(url)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return None
    if address.path is not None and address.path.rstrip("/") == "/v1":
        place.refuse(
            "the URL ends in /v1, which is the API", "Remove /v1: the metrics page is beside it, not below it."
        )
        return None
    return address


def read_address(node: Node, place: Place, context: Context) -> Address | None:
    """The same for a value of the file."""
    url = value(node, place, _URL)
    return None if url is None else read_url(url, place)


def read_nodes(node: Node, place: Place, context: Context) -> tuple[str, ...] | None:
    """The names of nodes, each once; None for an empty key."""
    if is_empty(node):
        return None
    found = [value(element, at, NODE) for element, at in elements(node, place, "node names")]
    names = tuple(name for name in found if name is not None)
    if len(set(names)) < len(names):
        place.refuse("a node is named twice", "Name each node once.")
    return names


def read_gpus(node: Node, place: Place, context: Context) -> tuple[str | int, ...] | None:
    """GPU UUIDs or indices, each once; () for `none`."""
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
