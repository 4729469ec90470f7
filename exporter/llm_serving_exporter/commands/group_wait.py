"""How long an Alertmanager waits for more alerts of a group before it notifies: its own configuration -> seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from llm_serving_exporter.errors import Problem
from llm_serving_exporter.settings.document import parse_yaml
from llm_serving_exporter.settings.kinds import parse_duration
from llm_serving_exporter.settings.problems import InvalidValueError, Place, Scalar

# of a route that says nothing, nor any above it (prometheus.io, docs/alerting/latest/configuration, "route")
DEFAULT_SECONDS = 30.0


def find_group_wait(configuration: str, receivers: Collection[str]) -> float | None:
    """The longest `group_wait` of the routes that lead to any of these receivers, in seconds.

    `configuration`: YAML, as Alertmanager's status has it. None where it is not such a configuration, or no route leads there.
    """
    problems: list[Problem] = []
    tree = parse_yaml(configuration, Place("alertmanager.yml", "", problems))
    if problems or not isinstance(tree, dict):
        return None
    waits = (
        seconds for receiver, seconds in _walk_routes(tree.get("route"), "", DEFAULT_SECONDS) if receiver in receivers
    )
    return max(waits, default=None)


def _walk_routes(route: Any, receiver: str, seconds: float) -> Iterator[tuple[str, float]]:
    """Receiver and wait of each route; a route has those of the one above it where it says nothing."""
    if not isinstance(route, dict):
        return
    receiver = _read_text(route, "receiver") or receiver
    with suppress(InvalidValueError):
        seconds = parse_duration(_read_text(route, "group_wait") or "")
    yield receiver, seconds
    below = route.get("routes")
    for one in below if isinstance(below, list) else ():
        yield from _walk_routes(one, receiver, seconds)


def _read_text(route: dict[str, Any], key: str) -> str | None:
    found = route.get(key)
    return found.text if isinstance(found, Scalar) else None
