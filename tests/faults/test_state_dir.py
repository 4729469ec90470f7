"""A real file system below `state_dir` that takes nothing: the exporter serves, counts and ends as ever, and says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.test_read_only import in_a_mount

# one exporter beside a server that nobody reaches, until it has given the folder up
EXPORTER = """
import sys
from tests.support.servers.exporter_process import Exporter

with Exporter("--target", "http://127.0.0.1:9", "--scrape.interval", "500ms", "--state-dir", sys.argv[1]) as exporter:
    ticked = exporter.scrape().total("scrape_attempts_total")
    page = exporter.until(lambda page: page.value("exporter_cost_storage", storage="memory") == 1, "memory")
    assert page.value("exporter_cost_snapshot_failures_total") >= 3
    assert page.total("scrape_attempts_total") > ticked
told = [line for line in exporter.log if "counters of cost cannot be written to" in line]
assert len(told) == 1, exporter.log
print(told[0])
"""


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("option", "cause"),
    [("ro", "Read-only file system"), ("nr_inodes=1", "No space left on device")],
    ids=["read-only", "full"],
)
def test_a_folder_that_takes_nothing_stops_neither_ticks_nor_pages(tmp_path: Path, option: str, cause: str) -> None:
    done = in_a_mount(tmp_path, option, sys.executable, "-c", EXPORTER, str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert cause in done.stdout
