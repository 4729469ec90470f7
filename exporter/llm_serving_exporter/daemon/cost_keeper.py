"""Keeps the counters of cost in the state folder, and from /metrics what is not there yet.

A counter that comes back lower than it was scraped makes increase() add its whole life. So:

- what is published is what the newest snapshot on disk has (`_Hold.kept`), never more;
- where the folder cannot be written, that holds for as long as a later process would believe the snapshot that may be there
  (`_Hold.until`); then counters go on from memory, and a later process begins at 0;
- a process that begins at 0 beside a snapshot that might be believed later publishes nothing, or removes it first.

Reading and writing happen in a thread of its own: a disk that hangs holds up neither ticks nor scrapes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from math import inf

from llm_serving_exporter.cost.meters import Costs, hold_back
from llm_serving_exporter.daemon.cost_earlier import BELIEVED_SECONDS, Clocks, list_resumes, read_believed
from llm_serving_exporter.errors import CostSnapshotError
from llm_serving_exporter.model.cost import CostSnapshot, KeptCost, Storage, StorageReport
from llm_serving_exporter.model.reading import View
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.state.cost_folder import CostFolder, FolderTakenError
from llm_serving_exporter.state.json_values import describe_cause

log = logging.getLogger("llm_serving_exporter.cost")

EVERY_SECONDS = 10.0
# for as long after a start they come more often: a process that crashes again and again may not live for ten seconds
EARLY_EVERY_SECONDS, EARLY_SECONDS = 1.0, 10.0
# so many writes in a row that fail, and the folder is given up until one succeeds
MOST_FAILURES = 3
# the start waits so long for a snapshot to be read, the end for the last one to be written
PATIENCE_SECONDS, LAST_PATIENCE_SECONDS = 5.0, 1.0


class _Hold(Struct, frozen=True):
    """What /metrics may show."""

    kept: Mapping[str, KeptCost] | None  # no more than this, by target; None: nothing at all
    until: float  # by the boot's clock: from then on it may show everything


class CostKeeper:
    """The snapshots of one process. Nothing that a disk does stops it; `report` tells of it.

    `view`: the latest readings. `clocks`: default, the machine's.
    """

    def __init__(
        self,
        config: Config,
        costs: Costs,
        view: Callable[[], View],
        *,
        clocks: Clocks | None = None,
        open_folder: Callable[[str], CostFolder] = CostFolder,
    ) -> None:
        self._path, self._gap_limit = config.state_dir, config.cost.gap_limit_seconds
        self._costs, self._view = costs, view
        self._clocks = clocks = clocks or Clocks()
        self._boot_clock = clocks.boot_clock
        self._open_folder = open_folder
        self._folder: CostFolder | None = None
        # guards what follows, and that what is published and what is kept are of one moment; never held while the disk is asked
        self._lock = threading.Lock()
        self._hold = _Hold({}, -inf) if self._path is None else _Hold(None, clocks.boot_clock() + BELIEVED_SECONDS)
        self._begun, self._late = threading.Event(), False
        self._report = StorageReport() if self._path is None else StorageReport(Storage.BEHIND, failures_total=0)
        self._saved_at = -inf  # when the last snapshot was taken that is on disk, by the boot's clock
        self._failures = 0  # in a row
        self._said = ""
        self._not_before, self._forget_at = -inf, inf
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cost-keeper", daemon=True)

    def start(self) -> None:
        """Reads what an earlier process kept, so that targets that begin afterwards go on from it; then keeps what is counted."""
        if self._path is None:
            log.info("state_dir is not set: counters of cost and GPU time begin at 0 with each start")
            return
        self._thread.start()
        if not self._begun.wait(PATIENCE_SECONDS):
            with self._lock:
                self._late = not self._begun.is_set()
            log.error("state_dir %s does not answer: cost is not published before it does", self._path)

    def stop(self) -> None:
        """Keeps what was counted last, where the disk does not take too long."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(LAST_PATIENCE_SECONDS)

    def hold_back(self) -> View:
        """The latest readings, with counters of cost as far as they may be published."""
        with self._lock:
            view, hold = self._view(), self._hold
            held = self._boot_clock() < hold.until
        return hold_back(view, hold.kept) if held else view

    def report(self) -> StorageReport:
        """How it goes."""
        with self._lock:
            now, report, until = self._boot_clock(), self._report, self._hold.until
            if report.storage is Storage.DISK and now - self._saved_at > MOST_FAILURES * EVERY_SECONDS:
                # the keeper's thread cannot say so: it waits for the disk
                self._say("state_dir %s does not answer", logging.ERROR)
                report = replace(report, storage=Storage.BEHIND)
        if report.storage is Storage.BEHIND and now >= until:
            return replace(report, storage=Storage.MEMORY)
        return report

    # --- in the keeper's own thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        self._guard(self.begin)
        self._begun.set()
        early = self._boot_clock() + EARLY_SECONDS
        while not self._stopping.wait(EARLY_EVERY_SECONDS if self._boot_clock() < early else EVERY_SECONDS):
            self._guard(self.write)
        self._guard(self.write)

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            log.exception("counters of cost are not kept; this is a bug, please report it")

    def begin(self) -> None:
        """Opens the folder and reads what is there; on any fault counting begins at 0. In the keeper's own thread."""
        assert self._path is not None
        try:
            folder = self._open_folder(self._path)
        except (OSError, FolderTakenError) as error:
            self._say_unusable(error)
            with self._lock:
                self._hold = _Hold({}, -inf)
            return
        snapshot = read_believed(folder, self._path, self._clocks)
        resumes = [] if snapshot is None else list_resumes(snapshot, self._clocks, self._gap_limit)
        now = self._boot_clock()
        with self._lock:
            self._folder = folder
            if self._late:  # targets have begun at 0 meanwhile: what is there is only written over
                return
            kept = self._costs.put_kept(resumes)
            self._begun.set()
            self._report, self._saved_at = StorageReport(Storage.DISK, failures_total=0), now
            self._hold, self._forget_at = _Hold(kept, now + BELIEVED_SECONDS), now + BELIEVED_SECONDS
        log.info("counters of cost go on from %s: %d targets", self._path, len(kept))

    def write(self) -> None:
        """One snapshot. In the keeper's own thread."""
        now = self._boot_clock()
        if now >= self._forget_at:
            self._costs.forget_waiting()
            self._forget_at = inf
        if now < self._not_before or not self._has_folder():
            return
        assert self._folder is not None
        with self._lock:
            offset = self._clocks.boot_offset
            taken, unix = self._boot_clock(), self._clocks.wall()
            kept = self._costs.keep(lambda at: at + offset)
            before = self._hold
            # from now on the new one may be there, whatever becomes of the call
            self._hold = _Hold(
                kept if taken >= before.until else before.kept, max(before.until, taken + BELIEVED_SECONDS)
            )
        try:
            self._folder.write(CostSnapshot(self._clocks.boot, taken, unix, tuple(kept.values())))
        except (OSError, CostSnapshotError) as error:
            with self._lock:
                self._hold = before
            self._note_failure(error)
            return
        try:
            self._folder.sync()
        except OSError as error:
            # it may be there or not: nobody may add to what is published until neither is believed any more
            self._not_before = taken + BELIEVED_SECONDS
            self._failures = MOST_FAILURES
            self._note_failure(error)
            return
        with self._lock:
            self._hold = _Hold(kept, taken + BELIEVED_SECONDS)
            self._report = StorageReport(Storage.DISK, unix, self._report.failures_total)
            self._saved_at = taken
        self._failures = 0
        self._say("counters of cost are kept in %s", logging.INFO)

    def _has_folder(self) -> bool:
        """Whether the folder is ours; tries to get one that could not be used, or that was replaced."""
        assert self._path is not None
        if self._folder is not None:
            if self._folder.is_current:
                return True
            self._folder.close()
            self._folder = None
        try:
            folder = self._open_folder(self._path)
            try:
                folder.remove()  # of another process: this one has begun at 0, or published what it does not know
            except OSError:
                folder.close()
                raise
        except (OSError, FolderTakenError) as error:
            self._say_unusable(error)
            return False
        self._folder = folder
        return True

    def _say_unusable(self, error: Exception) -> None:
        taken = isinstance(error, FolderTakenError)
        self._count_failure(Storage.ELSEWHERE if taken else Storage.BEHIND)
        cause = "another exporter has it" if taken else describe_cause(error)
        self._say(f"state_dir %s cannot be used ({cause}): cost is counted without it", logging.ERROR)

    def _note_failure(self, error: Exception) -> None:
        self._count_failure(Storage.BEHIND)
        self._failures += 1
        self._say(f"counters of cost cannot be written to %s ({describe_cause(error)})", logging.ERROR)
        if self._failures >= MOST_FAILURES and self._folder is not None:
            try:
                self._folder.remove()
            except OSError:
                return  # it is there, and believed for a while: what is published stands still until then
            with self._lock:
                self._hold = _Hold({}, -inf)
            self._not_before = -inf

    def _count_failure(self, storage: Storage) -> None:
        with self._lock:
            number = (self._report.failures_total or 0) + (storage is Storage.BEHIND)
            self._report = replace(self._report, storage=storage, failures_total=number)

    def _say(self, sentence: str, level: int) -> None:
        if sentence != self._said:
            self._said = sentence
            log.log(level, sentence, self._path)
