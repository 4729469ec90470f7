"""docs/kubernetes-discovery.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from llm_serving_exporter.catalogue.health import PODS_WAITING
from llm_serving_exporter.discovery.kubernetes.mirror import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from llm_serving_exporter.discovery.kubernetes.objects import ANNOTATIONS, PREFIX
from tests.support.builders.configuration import load_text
from tests.support.paths import ROOT
from tests.support.servers.kube_api import READ_PODS
from tests.support.yaml_text import load_yaml

PAGE = (ROOT / "docs" / "kubernetes-discovery.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_configuration_that_it_shows_is_good(tmp_path: Path) -> None:
    (section,) = load_text(tmp_path, BLOCKS[0]).discovery
    assert section.kind == "kubernetes"


def test_the_rights_that_it_shows_are_those_that_suffice_at_a_real_server() -> None:
    assert load_yaml(BLOCKS[1])["rules"] == READ_PODS


def test_it_names_every_annotation_the_series_and_the_pauses() -> None:
    table = PAGE.partition("| annotation")[2].partition("\n\n")[0]
    assert {name.removeprefix(PREFIX) for name in ANNOTATIONS} <= set(re.findall(r"`(\w+)`", table))
    assert f"`{PODS_WAITING.full_name}`" in PAGE
    assert f"after {FIRST_PAUSE_SECONDS:g}, 1, 2 … at most {LONGEST_PAUSE_SECONDS:g} seconds" in PAGE
