"""Counters of cost that outlive their process, on clocks that the test moves and in a real folder: what Prometheus adds up of them."""

from __future__ import annotations

import errno
import logging
import random
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.cost.meters import Costs
from llm_serving_exporter.daemon import cost_keeper
from llm_serving_exporter.daemon.cost_earlier import BELIEVED_SECONDS, Clocks
from llm_serving_exporter.daemon.cost_keeper import MOST_FAILURES, CostKeeper
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.model.cost import CostSnapshot, Storage
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.reading import TargetReading, View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Target
from llm_serving_exporter.settings.config import Config, CostConfig
from llm_serving_exporter.state.cost_folder import NAME, CostFolder
from tests.support.builders.costmeter import BOOK, TARGET, WORKED, page
from tests.support.builders.target_readings import make_reading
from tests.support.waiting import PATIENCE_SECONDS

# of two GPUs whose second costs a USD
USD_PER_SECOND = 2.0
UNIX = 100.0


class Machine:
    """What outlives a process: the folder, the clocks, and how the disk is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.boot = folder, "boot-1"
        self.boot_seconds, self.unix = 5000.0, UNIX
        self.failing: frozenset[str] = frozenset()

    def sleep(self, seconds: float) -> None:
        self.boot_seconds += seconds
        self.unix += seconds


class Disk(CostFolder):
    """The folder on a machine whose disk may refuse: any of write, sync, remove."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(str(machine.folder))
        self._machine = machine

    def _try(self, step: str) -> None:
        if step in self._machine.failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, snapshot: CostSnapshot) -> None:
        self._try("write")
        super().write(snapshot)

    def sync(self) -> None:
        self._try("sync")
        super().sync()

    def remove(self) -> None:
        self._try("remove")
        super().remove()


class Process:
    """One exporter, from its start to its end."""

    def __init__(
        self,
        machine: Machine,
        target: Target = TARGET,
        uuids: tuple[str, ...] = (),
        folder: Path | None = None,
        gap_limit: float = 120.0,
    ) -> None:
        self.machine, self.target, self.uuids = machine, target, uuids
        # its own clock begins anywhere
        begun, costs = machine.boot_seconds - 7.0, Costs()
        self.costs, self.reading = costs, TargetReading(target)
        self.clocks = Clocks(
            lambda: machine.boot_seconds - begun, lambda: machine.unix, lambda: machine.boot_seconds, machine.boot
        )
        self.folders: list[CostFolder] = []
        self.config = Config(
            targets=(),
            prices=BOOK,
            state_dir=str(folder or machine.folder),
            cost=CostConfig(gap_limit_seconds=gap_limit),
        )
        self.keeper = CostKeeper(self.config, costs, self.view, clocks=self.clocks, open_folder=self._open)
        self.keeper.begin()
        costs.begin_target(target)

    def _open(self, path: str) -> CostFolder:
        # a path that is not the machine's has no disk to fail
        found = Disk(self.machine) if path == str(self.machine.folder) else CostFolder(path)
        self.folders.append(found)
        return found

    def view(self) -> View:
        return replace(EMPTY, targets=(self.reading,))

    def tick(self, seconds: float = 5.0) -> Process:
        self.machine.sleep(seconds)
        now = self.clocks.monotonic()
        found = make_reading(self.target, uuids=self.uuids, total=TargetGpus(2, "H100"), **page(now, WORKED))
        self.reading = self.costs.advance_target(found, None, self.config, monotonic=now, unix=UNIX)
        return self

    def kill(self) -> None:
        for one in self.folders:
            if one._descriptor >= 0:
                one.close()
                one._descriptor = -1

    def shown(self, what: str = "usd") -> dict[str, float]:
        """What /metrics shows of the target, by phase or state; {}: nothing."""
        (reading,) = self.keeper.hold_back().targets
        found: dict[str, float] = {}
        for one in reading.cost.engines:
            for labels, value in getattr(one.totals, what).items():
                found[labels[0]] = found.get(labels[0], 0.0) + value
        return found

    def spent(self) -> float:
        return sum(self.shown().values())

    @property
    def storage(self) -> Storage:
        return self.keeper.report().storage


EMPTY = Store().view()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def lived(machine: Machine, **more: Any) -> Process:
    """A process that has counted 20 s on disk, 5 s more in memory, and was killed."""
    process = Process(machine, **more).tick(0)
    for _ in range(4):
        process.tick()
    process.keeper.write()
    process.tick().kill()
    return process


def test_nothing_is_published_before_it_is_on_disk(machine: Machine) -> None:
    process = Process(machine).tick(0).tick()
    assert process.spent() == 0.0
    assert {"prefill", "decode", "unattributed"} <= process.shown().keys()  # born at 0: increase() counts from there
    process.keeper.write()
    assert process.spent() == 10.0
    assert process.tick().spent() == 10.0
    process.keeper.write()
    assert process.spent() == 20.0
    assert (process.storage, process.keeper.report().snapshot_unix_seconds) == (Storage.DISK, UNIX + 10)


def test_what_nobody_saw_is_booked_as_unattributed(machine: Machine) -> None:
    before = lived(machine)
    machine.sleep(30)
    after = Process(machine).tick(0)
    assert after.spent() == before.spent() == 40.0
    after.keeper.write()
    # 5 s in memory and the 30 s after
    assert {phase: usd for phase, usd in after.shown().items() if usd} == {
        "prefill": 10.0,
        "decode": 30.0,
        "unattributed": 70.0,
    }
    assert {state: found for state, found in after.shown("gpu_seconds").items() if found} == {
        "busy": 40.0,
        "unknown": 70.0,
    }
    after.tick().keeper.write()
    assert after.spent() == 120.0


@pytest.mark.parametrize(("gap", "booked"), [(114.9, 239.8), (115.1, 0.0), (500.0, 0.0)])
def test_a_gap_over_the_limit_is_left_to_the_review(machine: Machine, gap: float, booked: float) -> None:
    lived(machine)
    machine.sleep(gap)
    after = Process(machine).tick(0)
    after.keeper.write()
    assert after.spent() == pytest.approx(40.0 + booked)


def test_a_snapshot_that_may_not_be_the_newest_is_not_gone_on_from(machine: Machine) -> None:
    lived(machine)
    machine.sleep(BELIEVED_SECONDS)
    after = Process(machine).tick(0).tick()
    assert after.spent() == 0.0
    after.keeper.write()
    assert after.spent() == 10.0


@pytest.mark.parametrize("broken", [b"", b"nonsense\n", None])
def test_a_damaged_snapshot_begins_at_0_and_says_so(
    machine: Machine, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    lived(machine)
    file = machine.folder / NAME
    file.write_bytes(file.read_bytes()[:-1] if broken is None else broken)
    after = Process(machine).tick(0).tick()
    after.keeper.write()
    assert after.spent() == 10.0
    assert "cannot be used" in caplog.text


OTHERS = {
    "address": {"target": replace(TARGET, url="http://elsewhere:8000")},
    "stated GPUs": {"target": replace(TARGET, gpu_count=2)},
    "GPUs": {"uuids": ("GPU-3", "GPU-4")},
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS)
def test_the_gap_of_a_target_that_is_elsewhere_is_nobody_s(machine: Machine, changed: dict[str, Any]) -> None:
    lived(machine, uuids=("GPU-1", "GPU-2"))
    machine.sleep(30)
    after = Process(machine, **{"uuids": ("GPU-1", "GPU-2"), **changed}).tick(0)
    after.keeper.write()
    assert after.spent() == 40.0
    after.tick().keeper.write()
    assert after.spent() == 50.0


def test_gpus_that_are_seen_after_the_first_tick_decide_then(machine: Machine) -> None:
    lived(machine, uuids=("GPU-1", "GPU-2"))
    machine.sleep(30)
    after = Process(machine).tick(0).tick()
    after.keeper.write()
    assert after.spent() == 40.0
    after.uuids = ("GPU-2", "GPU-1")
    after.tick().keeper.write()
    assert after.spent() == 40.0 + 45 * USD_PER_SECOND


def test_gpus_that_are_never_seen_again_cost_from_the_first_tick(machine: Machine) -> None:
    lived(machine, uuids=("GPU-1", "GPU-2"))
    machine.sleep(30)
    after = Process(machine).tick(0)
    for _ in range(20):
        after.tick()
    after.keeper.write()
    assert after.spent() == 40.0 + 100 * USD_PER_SECOND


def test_another_pod_of_the_name_owes_nothing(machine: Machine) -> None:
    lived(machine, target=replace(TARGET, identity=Identity("llm", "chat-0", "uid-1")))
    after = Process(machine, target=replace(TARGET, identity=Identity("llm", "chat-0", "uid-2"))).tick(0).tick()
    after.keeper.write()
    assert after.spent() == 10.0


def test_after_a_boot_counting_goes_on_and_the_gap_is_left_out(machine: Machine) -> None:
    lived(machine)
    machine.boot, machine.boot_seconds, machine.unix = "boot-2", 20.0, machine.unix + 60
    after = Process(machine).tick(0).tick()
    after.keeper.write()
    assert after.spent() == 50.0


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (-3600.0, " s from now by this clock, so that its age is not known"),
        (BELIEVED_SECONDS, " s old: cost may have been published"),
    ],
)
def test_after_a_boot_with_a_clock_that_was_set_counting_begins_at_0(
    machine: Machine, step: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    lived(machine)
    machine.boot, machine.boot_seconds, machine.unix = "boot-2", 20.0, machine.unix + step
    after = Process(machine).tick(0).tick()
    after.keeper.write()
    assert after.spent() == 10.0
    assert said in caplog.text


@pytest.mark.parametrize("step", [-6e8, -3600.0, 3600.0, 6e8])
def test_a_step_of_the_wall_clock_changes_nothing_on_the_same_boot(machine: Machine, step: float) -> None:
    lived(machine)
    machine.unix = max(0.0, machine.unix + step)
    machine.sleep(30)
    after = Process(machine).tick(0)
    after.keeper.write()
    assert after.spent() == 110.0


def test_a_full_disk_holds_what_is_published_and_then_is_given_up(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    process = Process(machine).tick(0).tick()
    process.keeper.write()
    machine.failing = frozenset({"write"})
    for _ in range(MOST_FAILURES - 1):
        process.tick().keeper.write()
        assert (process.spent(), process.storage) == (10.0, Storage.BEHIND)
    process.tick().keeper.write()
    assert (process.spent(), process.storage) == (40.0, Storage.MEMORY)
    assert process.keeper.report().failures_total == MOST_FAILURES
    assert caplog.text.count("cannot be written to") == 1
    # the next process begins at 0, never at what was there before
    process.kill()
    machine.failing = frozenset()
    assert not (machine.folder / NAME).exists()
    after = Process(machine).tick(0)
    after.keeper.write()
    assert (after.spent(), after.storage) == (0.0, Storage.DISK)


def test_a_folder_that_becomes_read_only_holds_until_its_snapshot_is_not_believed(machine: Machine) -> None:
    process = Process(machine).tick(0).tick()
    process.keeper.write()
    machine.failing = frozenset({"write", "remove"})
    while machine.boot_seconds < 5005.0 + BELIEVED_SECONDS - 5.0:
        process.tick().keeper.write()
        assert (process.spent(), process.storage) == (10.0, Storage.BEHIND)
    process.tick()
    assert (process.spent(), process.storage) == (10.0 + BELIEVED_SECONDS * USD_PER_SECOND, Storage.MEMORY)
    process.kill()
    after = Process(machine).tick(0).tick()
    assert after.spent() == 0.0


def test_a_snapshot_that_may_be_there_or_not_is_not_published(machine: Machine) -> None:
    process = Process(machine).tick(0).tick()
    process.keeper.write()
    machine.failing = frozenset({"sync", "remove"})
    process.tick().keeper.write()
    assert process.spent() == 10.0
    machine.failing = frozenset()
    process.tick().keeper.write()  # not tried again before neither is believed
    assert process.spent() == 10.0
    machine.sleep(BELIEVED_SECONDS)
    process.tick().keeper.write()
    assert (process.spent() > 1000.0, process.storage) == (True, Storage.DISK)


def test_a_second_exporter_goes_on_without_the_folder_and_says_so(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    first = Process(machine).tick(0).tick()
    first.keeper.write()
    second = Process(machine).tick(0).tick()
    second.keeper.write()
    assert (second.spent(), second.storage) == (10.0, Storage.ELSEWHERE)
    assert caplog.text.count("another exporter has it") == 1
    first.kill()
    # nor does it take what is the first one's for its own
    second.tick().keeper.write()
    assert (second.spent(), second.storage) == (20.0, Storage.DISK)


def test_what_another_exporter_left_is_gone_before_the_folder_is_this_one_s(machine: Machine) -> None:
    first = Process(machine).tick(0).tick()
    first.keeper.write()
    second = Process(machine).tick(0).tick()
    second.keeper.write()
    first.kill()
    machine.failing = frozenset({"write"})
    second.tick().keeper.write()
    second.kill()
    machine.failing = frozenset()
    # else the third would go on from 10, where 20 were published
    third = Process(machine).tick(0)
    third.keeper.write()
    assert third.spent() == 0.0


def test_a_folder_that_is_not_there_is_used_as_soon_as_it_is(machine: Machine) -> None:
    path = machine.folder / "late"
    process = Process(machine, folder=path).tick(0).tick()
    process.keeper.write()
    assert (process.spent(), process.storage) == (10.0, Storage.MEMORY)
    path.mkdir()
    process.keeper.write()
    assert (process.spent(), process.storage) == (10.0, Storage.DISK)


def test_without_a_folder_everything_is_published_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    keeper = CostKeeper(Config(targets=()), Costs(), lambda: EMPTY)
    keeper.start()
    keeper.stop()
    assert keeper.hold_back() is EMPTY
    assert keeper.report().storage is Storage.NONE
    assert caplog.text.count("state_dir is not set") == 1


def test_the_last_snapshot_is_taken_at_the_end(machine: Machine) -> None:
    process = Process(machine).tick(0).tick()
    process.kill()
    keeper = CostKeeper(process.config, process.costs, process.view, clocks=process.clocks)
    keeper.start()
    process.tick()
    keeper.stop()
    # its folder is free when the process has ended, which here it has not
    found = keeper._folder.read()
    assert sum(found.targets[0].engines[0].totals.usd.values()) == 20.0


def test_a_disk_that_hangs_holds_up_neither_pages_nor_the_end(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, released = threading.Event(), threading.Event()

    class Hanging(Disk):
        def write(self, snapshot: CostSnapshot) -> None:
            hanging.set()
            released.wait()
            raise OSError(errno.EIO, "Input/output error")

    process = Process(machine).tick(0)
    process.kill()
    keeper = CostKeeper(
        process.config, process.costs, process.view, clocks=process.clocks, open_folder=lambda _path: Hanging(machine)
    )
    monkeypatch.setattr(cost_keeper, "EARLY_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(cost_keeper, "LAST_PATIENCE_SECONDS", 0.01)
    keeper.start()
    assert hanging.wait(PATIENCE_SECONDS)
    process.tick()
    process.keeper = keeper
    assert process.spent() == 0.0
    machine.sleep(3 * cost_keeper.EVERY_SECONDS + 1)
    assert keeper.report().storage is Storage.BEHIND
    keeper.stop()  # returns while the disk hangs still
    assert not released.is_set()
    released.set()


def add_up(values: list[float]) -> float:
    """What increase() adds up: a value below the one before it began at 0."""
    return sum(now - before if now >= before else now for before, now in pairwise(values))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_and_dies_prometheus_never_adds_up_more_than_was_spent(tmp_path: Path, seed: int) -> None:
    """And where the disk is well, nothing is lost but what came after the last snapshot."""
    machine, chance = Machine(tmp_path), random.Random(seed)
    well = seed % 2 == 0
    process = Process(machine).tick(0)
    if well:
        process.keeper.write()
    scraped, begun = [0.0], machine.boot_seconds
    for _ in range(200):
        match chance.choices(("tick", "write", "kill", "disk"), (10, 6, 1, 1))[0]:
            case "tick":
                process.tick(chance.uniform(1, 10))
            case "write":
                process.keeper.write()
            case "kill":
                process.kill()
                machine.sleep(chance.choice([0.1, 1, 10, 30] if well else [0.1, 10, 200, 700]))
                if not well:
                    machine.unix += chance.choice([0, 0, -7200, 7200])
                process = Process(machine, gap_limit=BELIEVED_SECONDS).tick(0)
            case "disk" if not well:
                steps = ("write", "sync", "remove")
                machine.failing = frozenset(one for one in steps if chance.random() < 0.3)
        if process.shown():
            scraped.append(process.spent())
    truth = (machine.boot_seconds - begun) * USD_PER_SECOND
    assert add_up(scraped) <= truth + 1e-6
    if well:
        process.tick(0)
        process.keeper.write()
        assert add_up([*scraped, process.spent()]) == pytest.approx(truth)
