"""CONTRIBUTING's steps for a new gauge, followed to the letter on a copy of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
NAME = "waiting_per_running_ratio"
PLACE = 'container="",namespace="",node="",pod=""'
# a target's page, landing page and `once`, after two pages of one engine; run with the copy, whose words it prints
SCRIPT = """
import json, sys
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.commands.once import as_document_of, as_table
from llm_serving_exporter.derive.derive import DeriveSettings, derive
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.encode import write_text
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.model.target import Role
from tests.support.builders import views
from tests.support.builders.landingpage import page_of
from tests.support.builders.windows import engine, pages

asked = json.loads(sys.argv[1])
role = Role(asked.pop("role", "unified"))
window = pages((engine(**asked),), (engine(**asked),), seconds=60.0)
derived = derive(window, DeriveSettings(role=role), None)
reading = views.reading("chat-0", [(window.later.engines[0], derived.engines[0])])
page = replace(reading.page, derivation=derived)
reading = replace(reading, page=page, target=replace(reading.target, role=role))
families = Families()
serving.add_serving(families, reading)
serving.add_target_health(families, reading, fresh=True, now_monotonic_seconds=views.NOW_MONOTONIC)
print(json.dumps({
    "page": write_text(families).decode(),
    "landing": page_of(views.view(reading)).card("chat-0"),
    "table": as_table(reading, everything=True),
    "json": as_document_of(reading),
}))
"""


def blocks(language: str) -> list[str]:
    start = TEXT.index("**Add a metric.**")
    section = TEXT[start : TEXT.index("\n**", start)]
    return [dedent(found) for found in re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)]


def changed(path: Path, above: str, code: str, diff: str = "") -> None:
    """Puts the code above a line of the file and makes the change that the diff shows, if there is one."""
    text = path.read_text()
    assert text.count(f"\n{above}") == 1
    text = text.replace(f"\n{above}", f"\n{code}\n\n{above}")
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert not diff or text.count(before) == 1
    path.write_text(text.replace(before, after) if diff else text)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the function, its row and its declaration, and nothing else changed."""
    folder = tmp_path_factory.mktemp("contributed")
    package = folder / "llm_serving_exporter"
    shutil.copytree(ROOT / "exporter" / "llm_serving_exporter", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", folder / "docs")  # a part of them is generated
    (row, declaration), (in_rows,) = blocks("python"), blocks("diff")
    changed(package / "derive" / "batch.py", "ROWS = (", row, in_rows)
    changed(package / "catalogue" / "derived.py", "KV_CACHE_USED_TOKENS = _derived(", declaration)
    return folder


def run(copy: Path, *words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environ, cwd=copy, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(copy: Path, **asked: object) -> dict[str, str]:
    found: dict[str, str] = json.loads(run(copy, "-c", SCRIPT, json.dumps(asked)))
    return found


def series(page: str, name: str) -> dict[str, float]:
    """Values by labels, of the lines of one series."""
    lines = re.findall(rf"^llm_serving_{name}(\{{.*\}}) (\S+)$", page, re.MULTILINE)
    return {labels: float(value) for labels, value in lines}


@pytest.mark.process
def test_the_gauge_is_exported_and_available(copy: Path) -> None:
    found = shown(copy, requests_waiting=6.0, requests_running=4.0)
    (ratio,) = series(found["page"], NAME).values()
    assert ratio == 1.5
    # what is available has no line of its own
    assert f'signal="{NAME}"' not in found["page"]
    assert f"# HELP llm_serving_{NAME} Waiting requests per running request over the window.\n" in found["page"]
    assert found["json"]["signals"][NAME] == ""
    assert found["json"]["engines"][0]["derived"][NAME] == 1.5
    # in the place that the declaration has on the page
    families = re.findall(r"^# TYPE llm_serving_(\S+)", found["page"], re.MULTILINE)
    assert families.index(NAME) > families.index("requests_running")


@pytest.mark.process
def test_it_is_documented(copy: Path) -> None:
    run(copy, "-m", "llm_serving_exporter.docgen.generate", "--write")
    written = (copy / "METRICS.md").read_text()
    assert (
        f"| `llm_serving_{NAME}` | gauge, ratio | Waiting requests per running request over the window. = "
        "mean of requests_waiting / mean of requests_running. Range 0 to 1e+06. |"
    ) in written


@pytest.mark.e2e
def test_it_is_absent_with_its_own_sentence(copy: Path) -> None:
    found = shown(copy, requests_waiting=0.0, requests_running=0.0)
    assert series(found["page"], NAME) == {}
    assert f'llm_serving_signal_available{{{PLACE},reason="idle",signal="{NAME}",target="chat-0"}} 0.0' in found["page"]
    sentence = "No request ran at any reading of the window, so that none can wait behind it."
    for place in ("landing", "table"):
        assert f"waiting per running ratio: {sentence}" in " ".join(found[place].split())


@pytest.mark.e2e
def test_it_is_absent_for_the_reason_of_the_field_that_it_lacks(copy: Path) -> None:
    found = shown(copy, requests_waiting=None, requests_running=4.0)
    assert series(found["page"], NAME) == {}
    signals = found["json"]["signals"]
    assert signals[NAME] == signals["requests_waiting"] == "not_exported"


@pytest.mark.e2e
def test_it_is_silent_on_a_front_end(copy: Path) -> None:
    found = shown(copy, requests_waiting=6.0, requests_running=4.0, role="frontend")
    assert series(found["page"], NAME) == {}
    assert found["json"]["signals"][NAME] == "other_role"
    assert found["json"]["engines"][0]["derived"].get(NAME) is None


@pytest.mark.process
def test_the_table_with_it_is_sound(copy: Path) -> None:
    script = "from tests.support.signal_table import list_faults; print(list_faults())"
    assert run(copy, "-c", script).strip() == "[]"


def test_only_the_files_that_the_text_names_are_touched(copy: Path) -> None:
    package = ROOT / "exporter" / "llm_serving_exporter"
    differ = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.read_bytes() != (copy / "llm_serving_exporter" / path.relative_to(package)).read_bytes()
    }
    assert differ == {"derive/batch.py", "catalogue/derived.py"}
