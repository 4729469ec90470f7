"""The Helm chart as files: what can be checked without helm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from llm_serving_exporter import __version__
from scripts.chart_readme import list_values
from tests.support.helm import CHART, KUSTOMIZE, STACKS, kustomize
from tests.support.paths import ROOT
from tests.support.yaml_text import load_yaml

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = load_yaml((CHART / "values.yaml").read_text())
OLDER = sorted((ROOT / "tests/unit/deploy/values").glob("values-*.yaml"))
# maps whose keys are the user's or Kubernetes', not the chart's
FREE = {
    "global", "config", "prices", "sidecar.target", "sidecar.resources", "podSecurityContext", "securityContext", "seLinuxOptions",
    "resources", "affinity", "state.volume", "scrape.endpoint", "report.settings", "report.resources",
}  # fmt: skip
# with a default, but a null is taken for nothing of the kind
NONE_WILL_DO = {"daemonset.tolerations", "dashboards.labels", "resources", "sidecar.resources", "report.resources"}


def objects(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, one in schema["properties"].items():
        path = f"{above}{name}"
        if one.get("type") == "object":
            yield path, one
            yield from objects({"properties": one.get("properties", {})}, f"{path}.")


def test_the_chart_has_the_version_of_the_exporter() -> None:
    chart = load_yaml((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_only_maps_that_are_the_users_take_any_key() -> None:
    assert SCHEMA["additionalProperties"] is False
    free = {path for path, one in objects(SCHEMA) if one.get("additionalProperties") not in (False, {"type": "string"})}
    assert free == FREE


def test_every_value_has_a_default_and_every_default_is_in_the_schema() -> None:
    described = {path: default for path, default, _ in list_values(SCHEMA, VALUES)}
    assert len(described) > 60

    def leaves(tree: dict[str, Any], above: str = "") -> Iterator[str]:
        for name, one in tree.items():
            path = f"{above}{name}"
            if path in described or not isinstance(one, dict):
                yield path
            else:
                yield from leaves(one, f"{path}.")

    assert set(leaves(VALUES)) == set(described)


def test_a_null_is_refused_where_nothing_can_stand_in_its_place() -> None:
    """Helm takes a key with null out of the values: a chart that goes on then renders something that nobody has asked for."""

    def optional(schema: dict[str, Any], values: dict[str, Any], above: str = "") -> Iterator[str]:
        for name, default in values.items():
            path, one = f"{above}{name}", schema["properties"][name]
            if name not in schema.get("required", ()) and default not in ("", [], {}):
                yield path
            if isinstance(default, dict) and "properties" in one:
                yield from optional(one, default, f"{path}.")

    # none of these is as good as some
    assert set(optional(SCHEMA, VALUES)) == NONE_WILL_DO


def test_every_value_says_what_it_means() -> None:
    assert [path for path, _, about in list_values(SCHEMA, VALUES) if not re.match(r"[^|\n]{4,}\.$", about)] == []


@pytest.mark.parametrize("file", OLDER, ids=lambda path: path.stem)
def test_each_key_of_an_older_values_file_is_still_there(file: Any) -> None:
    """What has gone would be refused, so that an upgrade with one's own values would fail."""

    def missing(tree: dict[str, Any], schema: dict[str, Any], above: str = "") -> Iterator[str]:
        for name, one in tree.items():
            known = schema.get("properties", {}).get(name)
            if known is None:
                yield f"{above}{name}"
            elif isinstance(one, dict) and "properties" in known and known.get("additionalProperties") is False:
                yield from missing(one, known, f"{above}{name}.")

    assert list(missing(load_yaml(file.read_text()), SCHEMA)) == []


def test_there_is_a_values_file_of_this_version() -> None:
    series = ".".join(__version__.split(".")[:2])
    assert (ROOT / f"tests/unit/deploy/values/values-{series}.yaml") in OLDER


def test_each_stack_has_an_overlay() -> None:
    stacks = {path.stem for path in STACKS.glob("*.yaml")}
    assert stacks == {"vllm", "sglang", "llm-d", "kserve", "production-stack"}
    assert {path.parent.name for path in KUSTOMIZE.glob("overlays/*/kustomization.yaml")} == stacks


@pytest.mark.process
@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in KUSTOMIZE.glob("**/kustomization.yaml")), ids=lambda path: path.name
)
def test_each_kustomization_builds(folder: Any) -> None:
    assert all({"apiVersion", "kind", "metadata"} <= one.keys() for one in kustomize(folder))
