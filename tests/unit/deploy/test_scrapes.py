"""Every scrape of the exporter that is shipped or shown keeps the exporter's own labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llm_serving_simulator.programs import Pace, Rules, prometheus_config
from tests.support.paths import ROOT
from tests.support.yaml_text import load_all_yaml, load_yaml

# folders of what is shipped or shown; tests scrape as they like
ROOTS = ("deploy", "docs", "alerts", "dashboards", "exporter")
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PORT = "10077"
# objects of prometheus-operator that say how to scrape, and the field of their endpoints
_ENDPOINTS = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}


def texts() -> Iterator[tuple[str, str]]:
    """YAML of files and of documents' examples, with where it stands. Templates are no YAML before they are rendered."""
    pages = [ROOT / "README.md", *(path for root in ROOTS for path in (ROOT / root).rglob("*.md"))]
    for path in pages:
        for number, text in enumerate(_BLOCK.findall(path.read_text())):
            yield f"{path.relative_to(ROOT)} example {number}", text
    for path in (path for root in ROOTS for path in (ROOT / root).rglob("*.y*ml")):
        text = path.read_text()
        if "{{" not in text:
            yield str(path.relative_to(ROOT)), text


def scrapes_of(document: Any) -> Iterator[tuple[str, bool]]:
    """Scrapes of the exporter in a document, each with whether our labels are kept."""
    if not isinstance(document, dict):
        return
    for job in document.get("scrape_configs") or ():
        if _PORT in str(job) or "llm-serving" in job.get("job_name", ""):
            yield job["job_name"], job.get("honor_labels") is True
    kind = document.get("kind")
    spec = document.get("spec") or {}
    for endpoint in spec.get(_ENDPOINTS.get(kind, ""), ()):
        yield str(kind), endpoint.get("honorLabels") is True
    if kind == "ScrapeConfig":
        yield kind, spec.get("honorLabels") is True


def scrapes() -> Iterator[tuple[str, bool]]:
    for where, text in texts():
        for document in load_all_yaml(text):
            for name, honors in scrapes_of(document):
                yield f"{where}: {name}", honors


def test_every_scrape_honors_the_exporters_labels() -> None:
    found = dict(scrapes())
    assert [where for where, honors in found.items() if not honors] == []
    assert {
        "deploy/compose/prometheus.yml: llm-serving",
        "alerts/alertmanager/prometheus.example.yml: llm-serving-exporter",
    } <= {*found}


def test_templates_of_scrapes_say_so_too() -> None:
    kinds = re.compile(r"^kind: (PodMonitor|ServiceMonitor|ScrapeConfig)$", re.MULTILINE)
    templates = [
        path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.suffix in (".yaml", ".yml", ".tpl")
    ]
    found = [path for path in templates if "{{" in path.read_text() and kinds.search(path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in found if "honorLabels" not in path.read_text()] == []


def test_the_demos_prometheus_does(tmp_path: Path) -> None:
    document = load_yaml(prometheus_config("127.0.0.1:1", Pace(), Rules()))
    assert [honors for _, honors in scrapes_of(document)] == [True]


def test_one_that_does_not_is_seen() -> None:
    job = {"job_name": "a", "static_configs": [{"targets": ["b:10077"]}]}
    monitor = {"kind": "PodMonitor", "spec": {"podMetricsEndpoints": [{"port": "metrics"}]}}
    assert [*scrapes_of({"scrape_configs": [job]}), *scrapes_of(monitor)] == [("a", False), ("PodMonitor", False)]
