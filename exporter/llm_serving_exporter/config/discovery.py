"""The sections of discovery in the configuration: `file_sd`, `http_sd` and what else is in the table below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.config.build import build_target
from llm_serving_exporter.config.checks import Placed
from llm_serving_exporter.config.discovery_types import DiscoverySection, FileDiscovery
from llm_serving_exporter.config.file import DISCOVERY_KEYS, ConfigFile
from llm_serving_exporter.config.http_sd import read_http_sd
from llm_serving_exporter.config.kubernetes import read_claimed_devices, read_kubernetes
from llm_serving_exporter.config.options import Settings
from llm_serving_exporter.config.pattern import check_pattern
from llm_serving_exporter.config.target import read_defaults
from llm_serving_exporter.config.target_keys import TargetSettings
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, value
from llm_serving_exporter.schema.tree import Node

# (element of the list, its place, what holds for all targets, context) -> the section, and the defaults of its targets with their
# place; None where it is not usable, which the reader has reported
SectionReader = Callable[[Node, Place, TargetSettings, Context], tuple[DiscoverySection, Placed] | None]


def _read_file_sd(
    node: Node, place: Place, under: TargetSettings, context: Context
) -> tuple[DiscoverySection, Placed] | None:
    section = mapping(node, place, ("files", "defaults"), {"refresh_interval": "Files are looked at in each interval."})
    at = place.key("files")
    patterns = [(value(item, where, kinds.PATH), where) for item, where in elements(section.get("files"), at, "paths")]
    if isinstance(node, dict) and (is_empty(section.get("files")) or section.get("files") == []):
        place.refuse("files is missing or empty", "Write files: [targets/*.yml].")
    files = tuple(context.resolve(path) for path, where in patterns if path is not None and check_pattern(path, where))
    where = place.key("defaults")
    own = read_defaults(section.get("defaults"), where, context)
    placed = Placed(build_target(own.completed_by(under), where, context.host), where)
    return FileDiscovery(files, placed.target), placed


# key of the configuration file -> what reads an element of its list, and what the elements look like
READERS: Mapping[str, tuple[SectionReader, str]] = {
    "file_sd": (_read_file_sd, "mappings such as {files: [targets/*.yml]}"),
    "http_sd": (read_http_sd, "mappings such as {url: https://inventory.example.com/targets, hosts: [10.0.0.0/8]}"),
    "kubernetes": (read_kubernetes, "mappings such as {namespaces: [chat]}, or {} for pods of all namespaces"),
}


def read_discovery(
    settings: Settings, file: ConfigFile, defaults: TargetSettings, context: Context
) -> tuple[tuple[DiscoverySection, ...], list[Placed]]:
    """All sections of the file, those of file_sd replaced by --file-sd where it is given; and their defaults with their places."""
    found: list[tuple[DiscoverySection, Placed]] = []
    is_whole = True
    for key in DISCOVERY_KEYS:
        read, expects = READERS[key]
        sections = [read(node, at, defaults, context) for node, at in elements(*file.find_key(key), expects)]
        if key == "file_sd" and "file-sd" in settings:
            sections = [_build_file_sd(settings, defaults, context)]
        found += [section for section in sections if section is not None]
        is_whole = is_whole and None not in sections
    sections_found = tuple(section for section, _ in found)
    # what is wrong with a section has been said
    if is_whole and "gpu.dra" in settings and settings["gpu.dra"].value:
        sections_found = read_claimed_devices(sections_found, settings["gpu.dra"].place)
    return sections_found, [placed for _, placed in found]


def _build_file_sd(settings: Settings, defaults: TargetSettings, context: Context) -> tuple[FileDiscovery, Placed]:
    place = settings["file-sd"].place
    patterns = tuple(pattern for pattern in settings["file-sd"].value if check_pattern(pattern, place))
    placed = Placed(build_target(defaults, place, context.host), place)
    return FileDiscovery(patterns, placed.target), placed
