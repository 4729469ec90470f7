"""What an earlier process left of cost, as far as this one may go on from it.

A snapshot that is damaged, or older than BELIEVED_SECONDS, is not gone on from: more may have been published since, and a counter that
comes back lower makes increase() add its whole life. One that begins at 0 loses nothing but the time between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.cost.meter import Resume
from llm_serving_exporter.errors import CostSnapshotError
from llm_serving_exporter.model.cost import CostSnapshot
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.state.cost_folder import CostFolder, read_boot_id
from llm_serving_exporter.state.json_values import describe_cause

log = logging.getLogger("llm_serving_exporter.cost")

# longer than Kubernetes' longest wait before it starts a container that crashes again (5 min)
BELIEVED_SECONDS = 600.0


class Clocks(Struct, frozen=True):
    """What a process tells the time by."""

    monotonic: Callable[[], float] = elapsed_seconds  # what ticks are counted by
    wall: Callable[[], float] = time.time  # Unix seconds
    boot_clock: Callable[[], float] = elapsed_seconds  # seconds of the host's boot, the same for every process
    boot: str = field(default_factory=read_boot_id)  # which boot that is; "": not known

    @property
    def boot_offset(self) -> float:
        """What a moment of `monotonic` is later by `boot_clock`."""
        return self.boot_clock() - self.monotonic()

    def is_own_boot(self, boot: str) -> bool:
        """Whether moments of that boot's clock are moments of this one's."""
        return bool(self.boot) and boot == self.boot


def read_believed(folder: CostFolder, path: str, clocks: Clocks) -> CostSnapshot | None:
    """The snapshot in the folder; None where there is none that may be gone on from, and the log says why.

    `path`: what the folder is called.
    """
    try:
        snapshot = folder.read()
    except (OSError, CostSnapshotError) as error:
        log.warning("the snapshot in %s cannot be used: %s; cost begins at 0", path, describe_cause(error))
        return None
    if snapshot is None:
        return None
    # on another boot only the wall clock can tell; where it was set back meanwhile, the age is below 0
    same = clocks.is_own_boot(snapshot.boot)
    age = clocks.boot_clock() - snapshot.boot_seconds if same else clocks.wall() - snapshot.unix_seconds
    if age < 0:
        log.warning(
            "the snapshot in %s was written %.0f s from now by this clock, so that its age is not known: cost begins at 0",
            path,
            -age,
        )
        return None
    if age >= BELIEVED_SECONDS:
        log.warning("the snapshot in %s is %.0f s old: cost may have been published since, and begins at 0", path, age)
        return None
    return snapshot


def list_resumes(snapshot: CostSnapshot, clocks: Clocks, gap_limit_seconds: float) -> list[Resume]:
    """What each target may go on from. One that was gone before the snapshot was taken is left out."""
    same, offset, now = clocks.is_own_boot(snapshot.boot), clocks.boot_offset, clocks.monotonic()
    found = []
    for kept in snapshot.targets:
        counted = kept.counted_seconds - offset if same and kept.counted_seconds is not None else None
        if counted is None or now - counted <= BELIEVED_SECONDS:
            found.append(Resume(kept, counted, gap_limit_seconds))
    return found
