"""Settings of a target from several places -> one Target."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.config.http import Auth, Tls
from llm_serving_exporter.config.identity import build_identity, choose_name, place_locally
from llm_serving_exporter.config.target_keys import TargetSettings
from llm_serving_exporter.config.target_kinds import AUTO
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.target import HttpSettings, Target
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.schema.context import Host
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.url import Address

# the share of the interval that one scrape may take by default, and its upper bound
TIMEOUT_SHARE = 0.8
LONGEST_DEFAULT_TIMEOUT_SECONDS = 10.0
# a target takes these over as they are; its name and its nodes depend on its address too
CARRIED = {*name_fields(TargetSettings)} & {*name_fields(Target)} - {"name", "nodes"}


def build_target(settings: TargetSettings, place: Place, host: Host) -> Target:
    """The target of complete settings. Without an address (a block of defaults) its name and URL are ""."""
    interval = settings.interval_seconds
    # the process's own settings are the last in line and have both
    assert interval is not None
    assert settings.max_body_bytes is not None
    if settings.gpus is not None and settings.gpu_count is not None and len(settings.gpus) != settings.gpu_count:
        what = f"gpus names {count_nouns(len(settings.gpus), 'GPU')}, gpu_count says {settings.gpu_count}"
        place.refuse(what, "Remove gpu_count where gpus is given.")
    auth = settings.auth or Auth()
    headers = settings.headers or ()
    if (auth.bearer_token or auth.basic_username) and any(name.lower() == "authorization" for name, _ in headers):
        place.refuse("both auth and a header Authorization are given", "Keep one of them.")
    address = settings.address
    identity = place_locally(build_identity(_by_name(settings)), address, host)
    return Target(
        name=settings.name or (choose_name(identity, address, host) if address else ""),
        url=address.url if address else "",
        identity=identity,
        nodes=choose_nodes(settings.nodes, address, host),
        http=HttpSettings(
            timeout_seconds=settings.timeout_seconds or default_timeout(interval),
            max_body_bytes=settings.max_body_bytes,
            headers=headers,
            **_by_name(auth),
            **_by_name(settings.tls or Tls()),
        ),
        **carried(_by_name(settings)),
    )


def carried(settings: dict[str, Any]) -> dict[str, Any]:
    """The fields of a Target that settings, by their names, set as they are. What they leave open (None) is left out."""
    found = {name: content for name, content in settings.items() if name in CARRIED and content is not None}
    if found.get("runtime") == AUTO:
        found["runtime"] = None
    return found


def _by_name(settings: TargetSettings | Auth | Tls) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in name_fields(settings)}


def choose_nodes(configured: tuple[str, ...] | None, address: Address | None, host: Host) -> tuple[str, ...]:
    """The nodes of a target: as configured, else the exporter's node for a local server, else () = unknown."""
    if configured:
        return configured
    return (host.node,) if address is not None and address.is_local(host.name) else ()


def default_timeout(interval_seconds: float) -> float:
    """80 % of the interval, at most 10 s."""
    return min(TIMEOUT_SHARE * interval_seconds, LONGEST_DEFAULT_TIMEOUT_SECONDS)
