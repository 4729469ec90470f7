"""The Helm chart as files, its schema and its refusals: what it takes is what the exporter takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_exporter import __version__
from llm_serving_exporter.errors import ConfigError
from scripts.chart_readme import list_values
from scripts.chart_schema import CONFIG, TARGET
from tests.support.builders.configuration import load_text
from tests.support.helm import CHART, KUSTOMIZE, STACKS, kustomize, template
from tests.support.paths import ROOT
from tests.support.yaml_text import load_all_yaml, load_yaml

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


# --- the keys of the exporter's configuration in the chart's schema ---


DEFINITIONS = SCHEMA["definitions"]
EXAMPLES = [
    ROOT / "deploy/llm-serving-exporter.example.yml",
    *sorted(ROOT.glob("deploy/compose/exporter.yml")),
    *sorted(ROOT.glob("deploy/kustomize/**/exporter.yml")),
]
PAGES = [
    ROOT / "docs/configuration.md",
    ROOT / "docs/kubernetes-discovery.md",
    ROOT / "docs/discovery.md",
    ROOT / "docs/mapping.md",
]
UNKNOWN = "this key is not known"


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    return DEFINITIONS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def unknown(tree: Any, schema: dict[str, Any], above: str = "") -> Iterator[str]:
    """Keys that the schema does not have."""
    schema = resolve(schema)
    if isinstance(tree, list) and "items" in schema:
        for one in tree:
            yield from unknown(one, schema["items"], above)
    if isinstance(tree, dict) and "properties" in schema:
        for name, one in tree.items():
            if name in schema["properties"]:
                yield from unknown(one, schema["properties"][name], f"{above}{name}.")
            else:
                yield f"{above}{name}"


def paths(schema: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, one in resolve(schema).get("properties", {}).items():
        yield (name,)
        yield from ((name, *rest) for rest in paths(one.get("items", one)))


def refused(folder: Path, text: str) -> str:
    try:
        load_text(folder, text)
    except ConfigError as error:
        return str(error)
    return ""


def test_the_exporter_takes_every_key_of_the_schema(tmp_path: Path) -> None:
    """Whatever it says of the values, it says of no key that it does not know it."""
    found = [*paths(DEFINITIONS[CONFIG])]
    assert {("web", "config", "file"), ("dcgm", "tls"), ("kubernetes", "defaults"), ("targets", "gpus")} <= set(found)
    for keys in found:
        tree: Any = None
        for name in reversed(keys):
            tree = {name: [tree] if name in ("kubernetes", "http_sd", "targets") else tree}
        said = refused(tmp_path, yaml.safe_dump(tree))
        assert UNKNOWN not in said, f"{keys}: {said}"


def test_what_the_exporter_does_not_know_the_schema_refuses(tmp_path: Path) -> None:
    for text in ("scrap: {}", "scrape: {intervall: 5s}", "targets: [{url: 'http://a:1', gpus: none, modell: a}]"):
        assert UNKNOWN in refused(tmp_path, text)
        assert [*unknown(load_yaml(text), DEFINITIONS[CONFIG])]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_schema_takes_every_configuration_that_is_shipped(path: Path) -> None:
    assert [*unknown(load_yaml(path.read_text()), DEFINITIONS[CONFIG])] == []


def test_the_schema_takes_the_examples_of_the_pages() -> None:
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    ]
    documents = [one for block in blocks for one in load_all_yaml(block)]
    ours = [
        one
        for one in documents
        if isinstance(one, dict) and one.keys() & DEFINITIONS[CONFIG]["properties"].keys() and "kind" not in one
    ]
    assert len(ours) >= 8
    assert [name for one in ours for name in unknown(one, DEFINITIONS[CONFIG])] == []


@pytest.mark.packages
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("config.scrape.intervall=5s", "at '/config/scrape': additional properties 'intervall' not allowed"),
        ("config.scrap.interval=5s", "at '/config': additional properties 'scrap' not allowed"),
        (
            "config.target_defaults.gpu_modell=a",
            "at '/config/target_defaults': additional properties 'gpu_modell' not allowed",
        ),
        ("config.kubernetes[0].selektor=a", "at '/config/kubernetes/0': additional properties 'selektor' not allowed"),
        ("sidecar.target.runtim=vllm", "at '/sidecar/target': additional properties 'runtim' not allowed"),
    ],
)
def test_helm_says_which_key_is_wrong(wrong: str, said: str) -> None:
    done = template("--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_target_has_its_own_keys() -> None:
    assert {"url", "name", "gpus", "labels", "tls", "auth"} <= DEFINITIONS[TARGET]["properties"].keys()
