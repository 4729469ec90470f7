"""What the command line of a target's processes on this host says: read when the engine starts, never at each tick."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from llm_serving_exporter.engines.arguments import find_batch_limit, read_arguments
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.model.later import Retry
from llm_serving_exporter.model.snapshot import LimitSource, Snapshot

# the driver may not have been asked yet, and an engine that has just started may not be on its list
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 30.0, 600.0


class CommandLine:
    """The batch limit by one target's own processes. Used by one thread at a time.

    `commands`: their command lines as words, the surest first; those of none where they are not on this host, or cannot be seen.
    """

    def __init__(
        self, commands: Callable[[], Sequence[Collection[Sequence[str]]]], monotonic: Callable[[], float]
    ) -> None:
        self._commands, self._monotonic = commands, monotonic
        self.batch_limit: int | None = None  # most requests that the engine runs at once; None: it does not say so
        self._asks, self._retry = True, Retry(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)

    def ask_again(self) -> None:
        """Has the next `refresh` read it: the engine may be another process now."""
        self._asks = True
        self._retry.reset()

    def forget(self) -> None:
        """What an engine was started with is not true of the next."""
        self.batch_limit = None
        self.ask_again()

    def refresh(self, runtime: Runtime, snapshot: Snapshot | None) -> bool:
        """Reads it where that is due and nothing surer says the limit; whether it says something else than before. Never raises."""
        if not self._asks or not self._retry.is_due(self._monotonic()) or snapshot is None or not _is_wanted(snapshot):
            return False
        before, seen = self.batch_limit, self._commands()
        self.batch_limit = next(
            (limit for commands in seen if (limit := _find_limit(runtime, commands)) is not None), None
        )
        self._asks = not any(seen)
        if self._asks:
            self._retry.note_failure(self._monotonic())
        return self.batch_limit != before


def _find_limit(runtime: Runtime, commands: Collection[Sequence[str]]) -> int | None:
    """What all of these say; None where they differ: nobody knows which of them is the target's."""
    limits = {find_batch_limit(runtime, read_arguments(words, (runtime,))) for words in commands}
    return limits.pop() if len(limits) == 1 else None


def _is_wanted(snapshot: Snapshot) -> bool:
    weaker = (LimitSource.COMMAND_LINE, LimitSource.OBSERVED)
    return any(
        engine.requests_running is not None
        and (engine.batch_limit_requests is None or engine.batch_limit_source in weaker)
        for engine in snapshot.engines
    )
