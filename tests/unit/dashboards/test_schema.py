"""The dashboards through Grafana's own model of them: what it does not know is lost on the way, and seen here."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.builders.default_boards import default_documents
from tests.support.rows import check_rows

register_default_plugins()


def lost(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """What the model does not give back as it was."""
    if isinstance(ours, dict):
        for name, value in ours.items():
            if not isinstance(theirs, dict) or name not in theirs:
                yield f"{where}.{name}"
            else:
                yield from lost(value, theirs[name], f"{where}.{name}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            yield where
        else:
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from lost(one, other, f"{where}[{number}]")
    elif ours != theirs:
        yield where


def round_trip(document: dict[str, Any]) -> list[str]:
    decoded = Dashboard.from_json(copy.deepcopy(document))
    return list(lost(document, json.loads(JSONEncoder(sort_keys=True).encode(decoded))))


@check_rows("uid", default_documents)
def test_grafanas_model_knows_every_key(uid: str) -> None:
    assert round_trip(default_documents()[uid]) == []


@check_rows("kind", ["timeseries", "stat", "state-timeline", "table", "heatmap", "xychart"])
def test_a_key_that_it_does_not_know_is_seen(kind: str) -> None:
    """Of each kind of panel, so that none is passed through unread."""
    for document in copy.deepcopy(default_documents()).values():
        for number, panel in enumerate(document["panels"]):
            if panel["type"] == kind:
                panel["options"]["nonsense"] = 1
                panel["fieldConfig"]["defaults"]["nonsense"] = 1
                assert set(round_trip(document)) == {
                    f".panels[{number}].options.nonsense",
                    f".panels[{number}].fieldConfig.defaults.nonsense",
                }
                return
    pytest.fail(f"no dashboard has a {kind}")
