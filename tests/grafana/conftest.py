"""A running Grafana, provisioned with the pack's files, and a Chromium that looks at it; without GRAFANA_URL these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests


@dataclass(frozen=True)
class Grafana:
    """`begin`, `end`: of the range to look at, as its URLs have them."""

    url: str
    begin: str
    end: str

    def address(self, uid: str, **more: str) -> str:
        """A dashboard without the menus around it."""
        chosen = "".join(f"&{name.replace('__', '-')}={value}" for name, value in more.items())
        return f"{self.url}/d/{uid}?from={self.begin}&to={self.end}&kiosk{chosen}"

    def get(self, path: str) -> Any:
        answer = requests.get(f"{self.url}{path}", timeout=30)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture(scope="session")
def grafana() -> Grafana:
    url = os.environ.get("GRAFANA_URL", "").rstrip("/")
    if not url:
        pytest.skip("GRAFANA_URL names no Grafana; CONTRIBUTING.md says how to bring one up over the simulated hours")
    found = Grafana(url, os.environ.get("GRAFANA_FROM", "now-2h"), os.environ.get("GRAFANA_TO", "now"))
    assert found.get("/api/health")["database"] == "ok"
    return found


@pytest.fixture(scope="session")
def browser(grafana: Grafana) -> Iterator[Any]:
    # an extra: only these tests need it
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no chromium on PATH"
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()
