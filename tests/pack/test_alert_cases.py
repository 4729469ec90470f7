"""promtool judges every case."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pack.promtool import FOLDER
from tests.pack.write import texts

ROOT = Path(__file__).parents[2]
# another promtool, such as one of Prometheus 3, judges the same files: PROMTOOL=/path/to/promtool
PROMTOOL = os.environ.get("PROMTOOL") or "promtool"


def test_the_committed_files_are_what_the_cases_make() -> None:
    assert {path.name: path.read_text() for path in (ROOT / FOLDER).glob("*.yml")} == texts()


@pytest.mark.parametrize("name", sorted(texts()))
def test_promtool_agrees(name: str) -> None:
    program = shutil.which(PROMTOOL)
    assert program, f"{PROMTOOL} is missing; `make test` installs it"
    judged = subprocess.run(
        [program, "test", "rules", name], cwd=ROOT / FOLDER, capture_output=True, text=True, timeout=120
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
