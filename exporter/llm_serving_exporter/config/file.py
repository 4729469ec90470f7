"""The configuration file: found, read, its top-level keys checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from llm_serving_exporter.config.options import file_keys
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.schema.document import read_document
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.reading import mapping
from llm_serving_exporter.schema.tree import Node, Scalar

# sections of discovery, in the order in which their targets are taken; config/discovery.py reads each
DISCOVERY_KEYS = ("file_sd", "http_sd", "kubernetes")
# keys that no option takes
LIST_KEYS = frozenset({"targets", "target_defaults", *DISCOVERY_KEYS, "expected_replicas", "runtimes", "gpu_models"})
# what users of Prometheus, or of other exporters, would write
_HINTS = {
    "static_configs": "Write targets: with one element per server.",
    "scrape_configs": "Write targets: with one element per server.",
    "target": "Write targets: with one element per server.",
    "file_sd_configs": "Write file_sd:.",
    "kubernetes_sd_configs": "Write kubernetes:, with one element per set of namespaces.",
    "http_sd_configs": "Write http_sd:, with hosts: for the servers that it may name.",
    "runtime": "Write it in an element of targets: or in target_defaults:; a table of your own in runtimes:.",
    "gpus": "Write gpu_models: to describe GPUs; which of them a server has stands in its element of targets:.",
    "gpu_model": "Write it in an element of targets: or in target_defaults:; a description of your own in gpu_models:.",
    "mappings": "Write runtimes: with one element per runtime.",
    "global": "Write scrape: {interval: 5s}.",
    "listen_address": "Write it below web: web: {listen_address: …}.",
    "interval": "Write it below scrape: scrape: {interval: …}.",
    "timeout": "Write it below scrape: scrape: {timeout: …}.",
}


class ConfigFile(Struct, frozen=True):
    """The configuration file."""

    # its known top-level keys; {} where there is no file or it is not usable
    tree: Mapping[str, Node]
    # where its faults are reported
    place: Place
    # None = there is no file
    path: str | None

    @property
    def folder(self) -> str | None:
        """Where the file's relative paths start; None without a file."""
        return None if self.path is None else os.path.dirname(self.path)

    def find_key(self, key: str) -> tuple[Node | None, Place]:
        """The value of a top-level key, and its place."""
        return self.tree.get(key), self.place.key(key)


def read_config_file(path: str | None, problems: list[Problem], read: Callable[[Path], str]) -> ConfigFile:
    """The file at `path`, or an empty one for None. What is wrong with it is reported."""
    if path is None:
        return ConfigFile({}, Place("configuration", "", problems), None)
    place = Place(path, "", problems)
    node = read_document(path, place, read)
    if isinstance(node, dict):
        return ConfigFile(mapping(node, place, file_keys() | LIST_KEYS, _HINTS), place, path)
    if isinstance(node, Scalar) and node.kind == "nothing":
        place.refuse("the file is empty", "Write settings into it, or leave out --config.file.")
    elif node is not None:
        place.refuse("the file must be a mapping (key: value) at its top level", "Start with a line such as targets:.")
    return ConfigFile({}, place, path)
