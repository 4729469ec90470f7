"""`retired:` in the settings: models that somebody took away on purpose, so that nobody is told of what they have lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from llm_serving_alerts.identity_labels import read_label_values
from llm_serving_alerts.setting_kinds import MOMENT
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.keys import elements, key, keys_of, read_complete
from llm_serving_exporter.settings.problems import Node, Place

_EXAMPLE = "Write {model_name: …, until: 2026-01-31T00:00:00Z}."


@dataclass(frozen=True, slots=True)
class Retired:
    """A model that may be gone, in whole or in part. What is not said is any."""

    model_name: str = key(kinds.text("model name"), required=True)  # as served
    # from this moment on (Unix seconds) a loss is told again
    until_unix_seconds: float = key(MOMENT, name="until", required=True)
    role: str | None = key(kinds.choice("role", [role.value for role in Role]))  # None = every one
    labels: Mapping[str, str] = key(read_label_values, unset={})  # identity labels


def read_retired(node: Node, place: Place, context: object) -> tuple[Retired, ...]:
    """A list of them; what is not usable is reported and left out."""
    entries = [
        read_complete(keys_of(Retired), element, at, _EXAMPLE)
        for element, at in elements(node, place, "mappings such as {model_name: …, until: 2026-01-31T00:00:00Z}")
    ]
    return tuple(Retired(**entry) for entry in entries if entry is not None)


def refuse_unknown_labels(retired: Iterable[Retired], identity: Collection[str], place: Place) -> None:
    """Reports labels that no record has."""
    for number, entry in enumerate(retired):
        for name in entry.labels:
            if name not in identity:
                at = place.item(number).key("labels").key(name)
                at.refuse(f"{name} is not one of identity_labels", "Name it there too, or leave it out here.")
