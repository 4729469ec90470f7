"""A day's ticks of the real exporter, while its targets come, go, restart and lie: nothing of it grows.

`make test-soak`, or `SOAK_TICKS=1000 .venv/bin/python -m pytest -m soak tests/faults/test_soak.py -s` for a shorter day, after a quarter
of an hour in which what is kept fills up.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.builders.lying_pages import LIES, change_samples, list_names
from tests.support.builders.recordings import recording
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.faultserver import Behaviour, FaultServer

# of one target at the usual 15 s: 86,400 / 15
TICKS = int(os.environ.get("SOAK_TICKS", "5760"))
# as short as a target's page is read and worked out on a busy machine
INTERVAL_SECONDS = 0.2
TARGETS = 8
# a target that is replaced gets a name that was never there
REPLACED_EVERY_SECONDS, CHANGED_EVERY_SECONDS = 20.0, 5.0
# not counted is the time until so many targets have come: by then what is kept is full, such as 256 layouts of pages (`expose.families`),
# of which each target has some six. Ticks are no measure of it: as many come to a quick machine in less time
WARM_UP_TARGETS = 50
# of 320,000 that its objects have, which vary by a tenth with what the targets show; a block has 70 bytes or so
MOST_GROWTH_BLOCKS = 15_000
# the resident size rises in steps as the allocator finds no arena that is free in one piece, by 2.5 MB in half an hour with as many objects
MOST_GROWTH_BYTES = 2**22
# of a run, the last; they come in turn
PAGES = 60
RUNS = ("vllm-0.32", "sglang-0.5.23", "trtllm-050f80de")


def behave(chance: random.Random, pages: list[bytes]) -> Behaviour:
    """What a server does until it is changed."""
    page = chance.choice(pages)
    name = chance.choice(list_names(page))
    lie = chance.choice(LIES)
    return chance.choice(
        [
            fault.page(page),
            fault.page(page, compress=True),
            fault.page(page, framing="chunked"),
            fault.page(change_samples(page, name, lambda _: lie)),
            fault.page(page + b'vllm:made_up_total{who="%d"} 1\n' % chance.randrange(10**9)),
            fault.page(page.replace(b'model_name="', b'model_name="m%d-' % chance.randrange(10**9))),
            fault.status(500),
            fault.loading(),
            fault.hang_up(reset=True),
            fault.silent(),
            fault.truncated(page, len(page) // 2),
            fault.garbage(),
            fault.redirect("http://192.0.2.1/"),
        ]
    )


def answer_in_turn(pages: list[bytes], chance: random.Random) -> Behaviour:
    """A server that works: its counters rise with the pages of a run, and begin again at the end of it."""
    turn = itertools.islice(itertools.cycle(pages), chance.randrange(len(pages)), None)
    return lambda exchange: fault.page(next(turn))(exchange)


class Fleet:
    """Targets out of a file, of which one after another is replaced by one that was never there, or changes what it does."""

    def __init__(self, folder: Path, server: FaultServer) -> None:
        self.file = folder / "targets.yml"
        self.begun = 0
        self._server, self._chance = server, random.Random(20)
        self._pages = [[*recording(run).pages.values()][-PAGES:] for run in RUNS]
        self._last = [page for pages in self._pages for page in pages[-3:]]
        self._paths = [self._begin() for _ in range(TARGETS)]
        self._write()

    def replace_one(self) -> None:
        """The oldest goes, and another comes."""
        self._server.behave(self._paths.pop(0), fault.status(404))
        self._paths.append(self._begin())
        self._write()

    def change_one(self) -> None:
        """Any of them answers otherwise from now on."""
        self._server.behave(self._chance.choice(self._paths), behave(self._chance, self._last))

    def _begin(self) -> str:
        path, pages = f"/{self.begun}/metrics", self._pages[self.begun % len(RUNS)]
        self.begun += 1
        self._server.behave(path, answer_in_turn(pages, self._chance))
        return path

    def _write(self) -> None:
        groups = [
            {
                "targets": [self._server.authority],
                "labels": {"__metrics_path__": path, "name": f"replica-{path.split('/')[1]}"},
            }
            for path in self._paths
        ]
        fresh = self.file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(groups))
        fresh.replace(self.file)


# in the exporter's own process: how many blocks of memory its objects hold
COUNT_BLOCKS = """
import gc, os, sys, threading, time
def count():
    while True:
        gc.collect()
        with open({file!r} + ".new", "w") as file:
            file.write(str(sys.getallocatedblocks()))
        os.replace({file!r} + ".new", {file!r})
        time.sleep(1.0)
threading.Thread(target=count, daemon=True).start()
"""


class Usage:
    """What the exporter takes of the machine, look by look."""

    def __init__(self, exporter: Exporter, blocks: Path) -> None:
        self._own, self._blocks = Path(f"/proc/{exporter.process.pid}"), blocks
        self.blocks: list[int] = []
        self.bytes: list[int] = []
        self.threads: list[int] = []
        self.files: list[int] = []

    def look(self) -> None:
        found = re.search(r"^VmRSS:\s+(\d+) kB", (self._own / "status").read_text(), re.MULTILINE)
        self.blocks.append(int(self._blocks.read_text()))
        self.bytes.append(int(found[1]) * 1024)
        self.threads.append(len(os.listdir(self._own / "task")))
        self.files.append(len(os.listdir(self._own / "fd")))


def compare_lowest(values: Sequence[int]) -> int:
    """What the last third has more at its lowest than the first."""
    size = len(values) // 3
    return min(values[-size:]) - min(values[:size])


def quarters(values: Sequence[int]) -> tuple[float, float]:
    """Means of the first and of the last quarter."""
    size = max(1, len(values) // 4)
    return statistics.mean(values[:size]), statistics.mean(values[-size:])


@pytest.mark.soak
def test_nothing_grows_in_a_days_ticks(tmp_path: Path) -> None:
    temporary, state, config = tmp_path / "tmp", tmp_path / "state", tmp_path / "exporter.yml"
    site, blocks = tmp_path / "site", tmp_path / "blocks"
    site.mkdir()
    (site / "sitecustomize.py").write_text(COUNT_BLOCKS.format(file=str(blocks)))
    paths = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    temporary.mkdir()
    state.mkdir()
    with FaultServer(fault.status(404)) as server:
        fleet = Fleet(tmp_path, server)
        settings = {
            "scrape": {"interval": f"{INTERVAL_SECONDS}s"},
            "window": "5s",
            "file_sd": [{"files": [str(fleet.file)]}],
            "state_file": str(state / "state.json"),
        }
        config.write_text(yaml.safe_dump(settings))
        with Exporter("--config.file", str(config), env={"TMPDIR": str(temporary), "PYTHONPATH": paths}) as exporter:
            began, lasts = time.monotonic(), TICKS * INTERVAL_SECONDS
            replace_at, change_at = began + REPLACED_EVERY_SECONDS, began + CHANGED_EVERY_SECONDS
            usage, attempts, ends = Usage(exporter, blocks), 0.0, None
            while (now := time.monotonic()) < (ends or math.inf):
                attempts = max(attempts, exporter.scrape().total("scrape_attempts_total"))
                exporter.get("/")
                if now >= replace_at:
                    replace_at += REPLACED_EVERY_SECONDS
                    fleet.replace_one()
                if now >= change_at:
                    change_at += CHANGED_EVERY_SECONDS
                    fleet.change_one()
                if fleet.begun >= WARM_UP_TARGETS:
                    ends = ends or now + lasts
                    usage.look()
                time.sleep(1.0)
            blocks_more, bytes_more = compare_lowest(usage.blocks), compare_lowest(usage.bytes)
            print(
                f"{lasts:.0f} s after {WARM_UP_TARGETS} targets, {fleet.begun} in all; {min(usage.blocks):,} to {max(usage.blocks):,} "
                f"blocks, {blocks_more:+,} at the lowest; resident {min(usage.bytes) / 1e6:.1f} to {max(usage.bytes) / 1e6:.1f} MB, "
                f"{bytes_more / 1e6:+.2f} MB; {min(usage.threads)} to {max(usage.threads)} threads, {min(usage.files)} to "
                f"{max(usage.files)} descriptors"
            )
            assert attempts > 0
            assert blocks_more < MOST_GROWTH_BLOCKS
            assert bytes_more < MOST_GROWTH_BYTES
            before, after = quarters(usage.threads)
            assert after < before + 2
            before, after = quarters(usage.files)
            assert after < before + TARGETS
            assert not any("Traceback" in line for line in exporter.log)
    assert [path.name for path in state.iterdir()] == ["state.json"]
    assert list(temporary.iterdir()) == []
