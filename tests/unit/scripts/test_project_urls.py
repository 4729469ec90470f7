"""Addresses of the project come from one place, and where it states none there is none."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.project_urls import CHART, DOCKERFILE, UNIT, WRITERS, read_urls, render
from tests.support.paths import ROOT
from tests.support.yaml_text import load_yaml

URLS = {
    "Homepage": "https://example.com/exporter",
    "Documentation": "https://docs.example.com/exporter/",
    "Source": "https://git.example.com/exporter",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that have addresses, and pyproject.toml without any."""
    for path in (*WRITERS, Path("pyproject.toml")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    text = (tmp_path / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(re.sub(r"\[project\.urls\]\n(?:.+\n)*", "", text))
    return tmp_path


def state(checkout: Path, urls: dict[str, str]) -> dict[Path, str]:
    """Writes [project.urls] and then the files; what they say."""
    path = checkout / "pyproject.toml"
    without = re.sub(r"\[project\.urls\]\n(?:.+\n)*", "", path.read_text())
    stated = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    path.write_text(without.replace("[project.scripts]", f"[project.urls]\n{stated}\n[project.scripts]", 1))
    made = render(checkout)
    for file, text in made.items():
        (checkout / file).write_text(text)
    return made


def test_one_setting_changes_all_of_them_and_takes_them_away_again(checkout: Path) -> None:
    before = state(checkout, {})
    made = state(checkout, URLS)
    chart = load_yaml(made[CHART])
    assert (chart["home"], chart["sources"]) == (URLS["Homepage"], [URLS["Source"]])
    assert re.findall(r"^Documentation=(.*)$", made[UNIT], re.MULTILINE) == [URLS["Documentation"]]
    assert made[UNIT].index("[Unit]") < made[UNIT].index("Documentation=") < made[UNIT].index("[Service]")
    labels = dict(re.findall(r'^LABEL org\.opencontainers\.image\.(\w+)="(https.*)"$', made[DOCKERFILE], re.MULTILINE))
    assert labels == {"url": URLS["Homepage"], "documentation": URLS["Documentation"], "source": URLS["Source"]}
    # labels of the first stage are on no image
    assert made[DOCKERFILE].index("image.source") > made[DOCKERFILE].rindex("\nFROM ")
    assert state(checkout, URLS) == made
    assert state(checkout, {}) == before


def test_a_page_of_the_project_alone_is_what_the_unit_shows(checkout: Path) -> None:
    made = state(checkout, {"Homepage": URLS["Homepage"]})
    assert f"Documentation={URLS['Homepage']}\n" in made[UNIT]
    assert "sources:" not in made[CHART]


@pytest.mark.process
def test_no_file_has_an_address_of_ours_that_the_one_place_does_not_have() -> None:
    stated = set(read_urls((ROOT / "pyproject.toml").read_text()).values())
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
    own = re.compile(r"https?://(?!\S*example)[\w.-]+\.[a-z]{2,}/[\w./-]*llm-serving-exporter[\w./-]*")
    found = {}
    for name in filter(None, tracked.stdout.split("\0")):
        path = ROOT / name
        if name.startswith(("tests/captures/", "tests/fuzz/corpus/")) or not path.is_file():
            continue
        unstated = set(own.findall(path.read_text(errors="replace"))) - stated
        if unstated:
            found[name] = unstated
    assert found == {}
