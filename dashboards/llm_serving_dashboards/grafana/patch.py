"""Changes to JSON by dotted paths: keys that are added, replaced and removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from llm_serving_dashboards.grafana.fields import Json
from llm_serving_dashboards.panels import Panel, Query

Drawn = TypeVar("Drawn", Panel, Query, None)


@dataclass(frozen=True, slots=True)
class Changes(Generic[Drawn]):
    """Keys by dotted path. A value is a constant, or a function of what is drawn; None leaves the key out."""

    # grafanalib does not write them
    added: Mapping[str, Any] = field(default_factory=dict)
    # grafanalib writes another value, and its class has no argument for ours
    replaced: Mapping[str, Any] = field(default_factory=dict)
    # Grafana 12 ignores them, migrates them, or reads them as something that is not meant
    removed: tuple[str, ...] = ()


def apply_changes(written: Json, changes: Changes[Drawn], drawn: Drawn) -> Json:
    """A copy of `written` with the changes. Keys whose value is None are left out, except in lists: the first threshold of a list starts at null."""
    changed = _copy_with_values(written)
    for path in changes.removed:
        _set_value(changed, path, None)
    for path, value in (*changes.replaced.items(), *changes.added.items()):
        _set_value(changed, path, value(drawn) if callable(value) else value)
    return changed


def _copy_with_values(written: Json) -> Json:
    return {
        name: _copy_with_values(value) if isinstance(value, dict) else value
        for name, value in written.items()
        if value is not None
    }


def _set_value(target: Json, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    if value is None:
        for parent in parents:
            target = target.get(parent, {})
        target.pop(last, None)
        return
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
