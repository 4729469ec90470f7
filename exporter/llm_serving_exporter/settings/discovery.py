"""The sections of discovery: files and servers that list targets, as Prometheus' file_sd and http_sd have them."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import ClassVar, TypeAlias
from urllib.parse import urlsplit

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.target import HttpSettings, Mode, Secret, Target, is_own_host
from llm_serving_exporter.settings import keys, kinds
from llm_serving_exporter.settings.checks import Placed, refuse_timeout, target_warnings
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.http import PROMETHEUS_HINTS, Auth, Tls, read_auth, read_headers, read_tls
from llm_serving_exporter.settings.kinds import Kind, ServerAddress, parse_url
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery, read_kubernetes
from llm_serving_exporter.settings.options import ConfigFile, Context, Settings
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, shown
from llm_serving_exporter.settings.target_keys import TargetSettings
from llm_serving_exporter.settings.targets import build_server, build_target, read_defaults, read_section_defaults

# --- paths: plain, or with wildcards in the last element, as in Prometheus ---------------------------------------------

_EXTENSIONS = (".json", ".yml", ".yaml")
_WILDCARDS = frozenset("*?[")
MOST_FILES = 1000  # of one folder; beyond that, discovery would cost more than the scrapes
_MOST_ENTRIES = 100_000


def check_pattern(pattern: str, place: Place) -> bool:
    """Whether a pattern can be used; reported at `place` where not."""
    folder, last = os.path.split(pattern)
    if not last.lower().endswith(_EXTENSIONS):
        place.refuse(f"{shown(pattern)} does not end in .json, .yml or .yaml", "Use a file with one of these endings.")
    elif _WILDCARDS & set(folder):
        place.refuse(f"{shown(pattern)} has a wildcard in a folder's name", "Wildcards are for the file name only.")
    else:
        return True
    return False


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match any number of files, none included."""
    return bool(_WILDCARDS & set(os.path.basename(pattern)))


def list_files(pattern: str) -> list[str]:
    """The files that a pattern names now, sorted; [] where there are none or the folder cannot be read.

    Hidden files match only a pattern that starts with a dot. At most `MOST_FILES` + 1.
    """
    if not is_glob(pattern):
        return [pattern] if os.path.exists(pattern) else []
    folder, last = os.path.split(pattern)
    try:
        with os.scandir(folder or ".") as entries:
            names = sorted(
                entry.name
                for entry in islice(entries, _MOST_ENTRIES)
                if fnmatchcase(entry.name, last) and entry.name.startswith(".") == last.startswith(".")
            )
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names[: MOST_FILES + 1]]


# --- `hosts`: the servers that a list from elsewhere may name ----------------------------------------------------------

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_ANY_HOST = "*"
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_HOST_EXAMPLE = "Write a name, *.example.com for all names below one, an address, a network such as 10.0.0.0/8, or *."


def _pattern(text: str) -> str:
    """A pattern in its normal form."""
    if text == _ANY_HOST:
        return text
    plain = text.lower().rstrip(".")
    bare = plain[1:-1] if plain.startswith("[") and plain.endswith("]") else plain
    if "/" in plain or find_address(bare) is not None:
        try:
            return _write_network(bare)
        except ValueError as error:
            fix = _HOST_EXAMPLE
            if "has host bits set" in str(error):
                fix = f"Write {_write_network(bare, strict=False)}."
            raise InvalidValueError(f"{shown(text)} is neither an address nor a network", fix) from None
    if not _HOST_NAME.fullmatch(plain.removeprefix("*.")):
        fix = "Write the host alone, without scheme and port." if ":" in text else _HOST_EXAMPLE
        raise InvalidValueError(f"{shown(text)} is not a host", fix)
    return plain


def _write_network(text: str, strict: bool = True) -> str:
    """In its normal form. Raises ValueError."""
    network = ipaddress.ip_network(text, strict=strict)
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    # from 3.13 on the library writes it so too
    return str(network) if mapped is None else f"::ffff:{mapped}/{network.prefixlen}"


HOST_PATTERN = Kind("a host, a network or *", _pattern, is_text=True)


def find_address(host: str) -> IPAddress | None:
    """The address that a host of a URL is; None for a name.

    127.1 and 2130706433 are addresses too: the system's resolver takes them for 127.0.0.1 (inet_aton).
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


class AllowedHosts:
    """Decides which hosts a list of targets may name. `patterns`: as HOST_PATTERN gives them.

    A name is compared with names, an address with addresses: nothing is resolved, so that whoever owns a name's zone decides nothing about
    networks. `*` stands for every host but loopback, link-local, multicast and reserved ones, among them the metadata services of clouds:
    those are allowed only where a pattern names them.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._any = False
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._names: set[str] = set()
        self._endings: list[str] = []
        for pattern in patterns:
            if pattern == _ANY_HOST:
                self._any = True
            elif "/" in pattern:
                self._networks.append(ipaddress.ip_network(pattern))
            elif pattern.startswith("*."):
                self._endings.append(pattern[1:])
            else:
                self._names.add(pattern)

    def allow(self, host: str) -> bool:
        """Whether `host`, as a URL names it (no brackets), is allowed."""
        host = host.lower().rstrip(".")
        address = find_address(host)
        if address is None:
            named = host in self._names or any(host.endswith(ending) for ending in self._endings)
            return named or (self._any and not is_own_host(host, ""))
        is_special = (
            address.is_loopback
            or address.is_unspecified
            or address.is_link_local
            or address.is_multicast
            or (address.version == 4 and address.is_reserved)
        )
        return any(address in network for network in self._networks) or (self._any and not is_special)


# --- what the daemon gets ----------------------------------------------------------------------------------------------


class FileDiscovery(Struct, frozen=True):
    """Prometheus file_sd, read again when a file changes."""

    kind: ClassVar[str] = "file_sd"  # of the configuration file

    files: tuple[str, ...]  # paths, or globs with wildcards in the last element only
    defaults: Target  # every setting but name and URL, for the targets found there


class HttpDiscovery(Struct, frozen=True):
    """Prometheus http_sd: a server that lists targets, asked again and again; settings/discovery.py declares its keys."""

    kind: ClassVar[str] = "http_sd"  # of the configuration file

    url: str  # scheme://host:port
    path: str  # of the list, with a query where it needs one
    hosts: tuple[str, ...]
    refresh_seconds: float
    http: HttpSettings
    defaults: Target  # every setting but name and URL, for the targets found there

    @property
    def name(self) -> str:
        """By which users know it: the URL without its query."""
        return self.url + self.path.partition("?")[0]


# what `Config.discovery` may hold; discovery/sections.py knows what runs each
DiscoverySection: TypeAlias = FileDiscovery | HttpDiscovery | KubernetesDiscovery


# --- `http_sd:` --------------------------------------------------------------------------------------------------------

_HTTP_SD_EXAMPLE = "Write {url: https://inventory.example.com/targets, hosts: [10.0.0.0/8]}."
_HTTP_SD_HINTS = {
    **PROMETHEUS_HINTS,
    "interval": "Write refresh_interval for the list, defaults: {interval: …} for its targets.",
}


def _list_url(text: str) -> tuple[ServerAddress, str]:
    """The address of a server and the request for its list."""
    base, mark, query = text.partition("?")
    address = parse_url(base)
    if mark and not re.fullmatch(r"[!$&'()*+,\-./0-9:;=?@A-Z_a-z~%]+", query):
        raise InvalidValueError("the URL has no usable query", "Write one as in https://host/targets?fleet=chat.")
    return address, (address.path or "/") + mark + query


_LIST_URL = Kind("a URL such as https://inventory.example.com/targets", _list_url, is_text=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSdSettings:
    """One section as the file has it, but for `defaults`, which are read as those of every section."""

    url: tuple[ServerAddress, str] = keys.key(
        _LIST_URL,
        "Where the list is, with a query where it needs one. Log and landing page show the URL, the debug page the query: no secrets.",
        required=True,
    )
    hosts: tuple[str, ...] = keys.key(
        keys.list_reader(HOST_PATTERN, "hosts and networks"),
        "The servers that the list may name: names, `*.example.com` for all names below one, addresses, networks such as "
        '`10.0.0.0/8`, or `"*"` for any but loopback and link-local ones. Others are left out and reported.',
        required=True,
    )
    refresh_seconds: float = keys.key(
        kinds.INTERVAL, "How often the list is asked for.", name="refresh_interval", default="60s"
    )
    timeout_seconds: float | None = keys.key(
        kinds.DURATION,
        "Deadline of one request for the list. Default: 80 % of `refresh_interval`, at most 10s.",
        name="timeout",
    )
    max_body_bytes: int = keys.key(kinds.SIZE, "Largest list, after decompression.", default="4MiB")
    auth: Auth | None = keys.key(
        read_auth, "As for a target: for the server with the list, and for nobody that it names."
    )
    headers: tuple[tuple[str, str | Secret], ...] | None = keys.key(read_headers, "As for a target, likewise.")
    tls: Tls | None = keys.key(read_tls, "As for a target, likewise.")
    defaults: Node | None = keys.key(
        lambda node, place, context: node,
        "Settings of the targets that the list names, as `defaults` of `file_sd`. Credentials of `target_defaults` do not go to them.",
    )


def read_http_sd(
    node: Node, place: Place, under: TargetSettings, context: Context
) -> tuple[HttpDiscovery, Placed] | None:
    """One section, and its defaults with their place; None where it is not usable, which is then reported.

    `under`: what holds for all targets.
    """
    is_sound = place.watch()
    values = keys.read_complete(keys.keys_of(HttpSdSettings), node, place, _HTTP_SD_EXAMPLE, context, _HTTP_SD_HINTS)
    if values is None:
        return None
    settings = HttpSdSettings(**values)
    if not settings.hosts and is_sound():
        place.key("hosts").refuse("no host is allowed", _HTTP_SD_EXAMPLE)
    defaults, odd = read_section_defaults(settings.defaults, place, under, context)
    address, path = settings.url
    server = build_server(
        settings, address, settings.refresh_seconds, place, context, max_body_bytes=settings.max_body_bytes
    )
    refuse_timeout(place.key("timeout"), settings.refresh_seconds, server.http.timeout_seconds)
    context.warnings.extend(target_warnings([Placed(server, place)], context.host.name))
    context.warnings.extend(odd)
    section = HttpDiscovery(server.url, path, settings.hosts, settings.refresh_seconds, server.http, defaults.target)
    return section, defaults


# --- all sections ------------------------------------------------------------------------------------------------------

# (element of the list, its place, what holds for all targets, context) -> the section, and the defaults of its targets with their
# place; None where it is not usable, which the reader has reported
SectionReader = Callable[[Node, Place, TargetSettings, Context], tuple[DiscoverySection, Placed] | None]


def _read_file_sd(
    node: Node, place: Place, under: TargetSettings, context: Context
) -> tuple[DiscoverySection, Placed] | None:
    section = keys.mapping(
        node, place, ("files", "defaults"), {"refresh_interval": "Files are looked at in each interval."}
    )
    patterns = [(keys.value(item, where, kinds.PATH), where) for item, where in section.elements("files", "paths")]
    if isinstance(node, dict) and (keys.is_empty(section.get("files")) or section.get("files") == []):
        place.refuse("files is missing or empty", "Write files: [targets/*.yml].")
    files = tuple(context.resolve(path) for path, where in patterns if path is not None and check_pattern(path, where))
    where = place.key("defaults")
    stated = read_defaults(section.get("defaults"), where, context)
    placed = Placed(build_target(stated.completed_by(under), where, context.host), where)
    return FileDiscovery(files, placed.target), placed


# key of the configuration file, in the order in which targets are taken -> what reads an element of its list, what elements look like
READERS: Mapping[str, tuple[SectionReader, str]] = {
    "file_sd": (_read_file_sd, "mappings such as {files: [targets/*.yml]}"),
    "http_sd": (read_http_sd, "mappings such as {url: https://inventory.example.com/targets, hosts: [10.0.0.0/8]}"),
    "kubernetes": (read_kubernetes, "mappings such as {namespaces: [chat]}, or {} for pods of all namespaces"),
}
DISCOVERY_KEYS = tuple(READERS)


def read_discovery(
    settings: Settings, file: ConfigFile, defaults: TargetSettings, context: Context
) -> tuple[tuple[DiscoverySection, ...], list[Placed]]:
    """All sections of the file, those of file_sd replaced by --file-sd where it is given; and their defaults with their places."""
    placed: list[tuple[DiscoverySection, Placed]] = []
    is_whole = True
    for name, (read, expects) in READERS.items():
        sections = [read(node, at, defaults, context) for node, at in keys.elements(*file.find_key(name), expects)]
        if name == "file_sd" and "file-sd" in settings:
            sections = [_build_file_sd(settings, defaults, context)]
        placed += [section for section in sections if section is not None]
        is_whole = is_whole and None not in sections
    discovery = tuple(section for section, _ in placed)
    # what is wrong with a section has been said
    if is_whole and "gpu.dra" in settings and settings["gpu.dra"].value:
        discovery = read_claimed_devices(discovery, settings["gpu.dra"].place)
    return discovery, [defaults_placed for _, defaults_placed in placed]


def _build_file_sd(settings: Settings, defaults: TargetSettings, context: Context) -> tuple[FileDiscovery, Placed]:
    place = settings["file-sd"].place
    patterns = tuple(pattern for pattern in settings["file-sd"].value if check_pattern(pattern, place))
    placed = Placed(build_target(defaults, place, context.host), place)
    return FileDiscovery(patterns, placed.target), placed


def read_claimed_devices(sections: tuple[DiscoverySection, ...], place: Place) -> tuple[DiscoverySection, ...]:
    """The sections, the first that looks at one node with the wish to read that node's ResourceSlices too. `place`: of gpu.dra."""
    first = next((item for item in sections if isinstance(item, KubernetesDiscovery) and item.node), None)
    if first is None:
        what = "no section of kubernetes looks at one node, whose ResourceSlices could be read"
        place.refuse(what, "Write kubernetes: [{node: own}], or leave out gpu.dra.")
        return sections
    return tuple(replace(first, claimed_devices=True) if item is first else item for item in sections)


# --- the mode that follows ---------------------------------------------------------------------------------------------

_OF_A_POD = "KUBERNETES_SERVICE_HOST"  # which Kubernetes sets in every container


def choose_mode(config: Config, environ: Mapping[str, str]) -> Mode:
    """A sidecar is in a pod, looks for no targets, and reads servers at loopback addresses only."""
    if config.discovery:
        of_one_node = any(isinstance(section, KubernetesDiscovery) and section.node for section in config.discovery)
        return Mode.NODE if of_one_node else Mode.CENTRAL
    if not config.targets or not all(is_own_host(urlsplit(target.url).hostname or "", "") for target in config.targets):
        return Mode.CENTRAL
    return Mode.SIDECAR if environ.get(_OF_A_POD) else Mode.NODE
