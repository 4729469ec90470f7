"""The keys of the exporter's configuration in the chart's schema: those that the exporter takes, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_exporter.errors import ConfigError
from scripts.chart_schema import CONFIG, TARGET
from tests.support.builders.configuration import load_text
from tests.support.helm import template
from tests.support.paths import ROOT
from tests.support.yaml_text import load_all_yaml, load_yaml
from tests.unit.deploy.test_chart import SCHEMA as IN_USE

DEFINITIONS = IN_USE["definitions"]
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
