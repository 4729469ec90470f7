"""`http_sd:`: servers that list targets, as Prometheus' http_sd has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llm_serving_exporter.config.build import build_target
from llm_serving_exporter.config.checks import Placed, refuse_timeout
from llm_serving_exporter.config.credentials import drop_inherited, warn_of_dropped
from llm_serving_exporter.config.discovery_types import HttpDiscovery
from llm_serving_exporter.config.hosts import HOST_PATTERN
from llm_serving_exporter.config.http import Auth, Tls, read_auth, read_headers, read_tls
from llm_serving_exporter.config.target import read_defaults
from llm_serving_exporter.config.target_keys import TargetSettings
from llm_serving_exporter.config.warnings import target_warnings
from llm_serving_exporter.model.target import Secret, Target
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.keys import key, keys_of, list_reader, read_complete
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place
from llm_serving_exporter.schema.tree import Node
from llm_serving_exporter.schema.url import Address, parse_url

EXAMPLE = "Write {url: https://inventory.example.com/targets, hosts: [10.0.0.0/8]}."
_HINTS = {
    "bearer_token_file": "Write it below auth: auth: {bearer_token_file: …}.",
    "authorization": "Write auth: {bearer_token_file: …} or auth: {bearer_token_env: …}.",
    "basic_auth": "Write auth: {basic: {username: …, password_file: …}}.",
    "tls_config": "Write tls: {ca_file: …}.",
    "interval": "Write refresh_interval for the list, defaults: {interval: …} for its targets.",
}


def _list_url(text: str) -> tuple[Address, str]:
    """The address of a server and the request for its list."""
    base, mark, query = text.partition("?")
    address = parse_url(base)
    if mark and not re.fullmatch(r"[!$&'()*+,\-./0-9:;=?@A-Z_a-z~%]+", query):
        raise InvalidValueError("the URL has no usable query", "Write one as in https://host/targets?fleet=chat.")
    return address, (address.path or "/") + mark + query


_URL = Kind("a URL such as https://inventory.example.com/targets", _list_url, is_text=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSdSettings:
    """One section as the file has it, but for `defaults`, which are read as those of every section."""

    url: tuple[Address, str] = key(
        _URL,
        "Where the list is, with a query where it needs one. Log and landing page show the URL, the debug page the query: no secrets.",
        required=True,
    )
    hosts: tuple[str, ...] = key(
        list_reader(HOST_PATTERN, "hosts and networks"),
        "The servers that the list may name: names, `*.example.com` for all names below one, addresses, networks such as "
        '`10.0.0.0/8`, or `"*"` for any but loopback and link-local ones. Others are left out and reported.',
        required=True,
    )
    refresh_seconds: float = key(
        kinds.INTERVAL, "How often the list is asked for.", name="refresh_interval", default="60s"
    )
    timeout_seconds: float | None = key(
        kinds.DURATION,
        "Deadline of one request for the list. Default: 80 % of `refresh_interval`, at most 10s.",
        name="timeout",
    )
    max_body_bytes: int = key(kinds.SIZE, "Largest list, after decompression.", default="4MiB")
    auth: Auth | None = key(read_auth, "As for a target: for the server with the list, and for nobody that it names.")
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers, "As for a target, likewise.")
    tls: Tls | None = key(read_tls, "As for a target, likewise.")
    defaults: Node | None = key(
        lambda node, place, context: node,
        "Settings of the targets that the list names, as `defaults` of `file_sd`. Credentials of `target_defaults` do not go to them.",
    )


def read_http_sd(
    node: Node, place: Place, under: TargetSettings, context: Context
) -> tuple[HttpDiscovery, Placed] | None:
    """One section, and its defaults with their place; None where it is not usable, which is then reported.

    `under`: what holds for all targets.
    """
    before = len(place.problems)
    found = read_complete(keys_of(HttpSdSettings), node, place, EXAMPLE, context, _HINTS)
    if found is None:
        return None
    settings = HttpSdSettings(**found)
    if not settings.hosts and len(place.problems) == before:
        place.key("hosts").refuse("no host is allowed", EXAMPLE)
    where = place.key("defaults")
    own = read_defaults(settings.defaults, where, context)
    defaults = build_target(own.completed_by(drop_inherited(under)), where, context.host)
    address, path = settings.url
    server = build_target(
        TargetSettings(
            address=address,
            interval_seconds=settings.refresh_seconds,
            timeout_seconds=settings.timeout_seconds,
            max_body_bytes=settings.max_body_bytes,
            auth=settings.auth,
            headers=settings.headers,
            tls=settings.tls,
        ),
        place,
        context.host,
    )
    if server.http.timeout_seconds >= settings.refresh_seconds:
        refuse_timeout(place.key("timeout"), settings.refresh_seconds, server.http.timeout_seconds)
    _warn(server, under, own, place, context)
    section = HttpDiscovery(server.url, path, settings.hosts, settings.refresh_seconds, server.http, defaults)
    return section, Placed(defaults, where)


def _warn(server: Target, under: TargetSettings, own: TargetSettings, place: Place, context: Context) -> None:
    context.warnings.extend(target_warnings([Placed(server, place)], context.host.name))
    context.warnings.extend(warn_of_dropped(under, own, place))
