"""The processes of an engine -> the GPUs that their environment names by full UUIDs.

Of the environment nothing but these UUIDs leaves this module: it may hold secrets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from llm_serving_exporter.model.gpu import GPU_UUID

ENVIRONMENT_BYTES_MAX = 1 << 20
PROCESSES_MAX = 512  # of one engine
# what the container was given, and which of these the process takes
GIVEN, TAKEN = b"NVIDIA_VISIBLE_DEVICES", b"CUDA_VISIBLE_DEVICES"


def find_environment_gpus(pids: Iterable[int], proc_root: Path = Path("/proc")) -> tuple[str, ...]:
    """UUIDs of the GPUs and MIG instances that the processes were given, sorted; () where no environment says it or can be read.

    `all`, `void`, `none`, nothing at all and indices say nothing: they mean other cards in another container. Never raises.
    """
    found: set[str] = set()
    for pid in sorted(pids)[:PROCESSES_MAX]:
        try:
            with (proc_root / str(pid) / "environ").open("rb") as opened:
                text = opened.read(ENVIRONMENT_BYTES_MAX)
        except OSError:
            continue
        found.update(_read_uuids(text))
    return tuple(sorted(found))


def _read_uuids(text: bytes) -> Collection[str]:
    given: list[str] = []
    taken: list[str] | None = None
    for line in text.split(b"\0"):
        name, equals, value = line.partition(b"=")
        if equals and name in (GIVEN, TAKEN):
            words = [word.strip() for word in value.decode("ascii", "replace").split(",")]
            if name == GIVEN:
                given = words
            else:
                taken = words
    if taken is not None and all(map(GPU_UUID.fullmatch, taken)):
        return taken
    if not all(map(GPU_UUID.fullmatch, given)):
        return ()
    # indices among those that are given: all of them, or some that cannot be told; -1 and nothing mean none
    return given if taken is None or set(taken) == {str(index) for index in range(len(given))} else ()
