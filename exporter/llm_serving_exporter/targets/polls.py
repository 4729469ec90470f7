"""A runtime's JSON endpoints that are asked at each tick, and JSON that is a page itself: answers -> samples, at the rim."""

from __future__ import annotations

import logging
from collections.abc import Callable

from llm_serving_exporter.engines.index import spellings
from llm_serving_exporter.engines.mapping import Readings, Runtime
from llm_serving_exporter.fetch.http import Client
from llm_serving_exporter.model.later import Retry
from llm_serving_exporter.model.sample import Refusal, Samples
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.targets.side_endpoints import SHORTEST_TIMEOUT_SECONDS, is_for_good, place_beside

log = logging.getLogger("llm_serving_exporter.target")

# a path that was refused for good is asked again after this long, twice as long each time: it may be switched on
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 60.0, 600.0


class Polls:
    """Asks one server. Used by one thread at a time; never raises."""

    def __init__(self, target: Target, client: Client, monotonic: Callable[[], float]) -> None:
        self._target, self._client, self._monotonic = target, client, monotonic
        # paths that were refused for good, and when they are asked again
        self._silent: dict[str, Retry] = {}
        # by path, what it said last
        self._last: dict[str, Readings] = {}

    def forget(self) -> None:
        """A restarted server may answer what the old one did not."""
        self._silent.clear()
        self._last.clear()

    async def ask(self, runtime: Runtime, metrics_path: str, page: Samples, deadline: float) -> Readings:
        """The samples of every endpoint that answers before `deadline` (monotonic seconds); those that were refused for good are asked
        again now and then.

        `page`: the metrics page just read, which says whether the server is at rest.
        """
        found: list[Readings] = []
        for poll in runtime.polls:
            now = self._monotonic()
            left = deadline - now
            silent = self._silent.get(poll.path)
            if (silent is not None and not silent.is_due(now)) or left < SHORTEST_TIMEOUT_SECONDS:
                continue
            if poll.busy is not None and not (working := _working(page, poll.busy, runtime)):
                if poll.at_rest is not None and working is not None and silent is None:
                    found.append(poll.at_rest(self._last.get(poll.path, ())))
                continue
            answer = await self._client.get_json(place_beside(runtime, metrics_path, poll.path), timeout_seconds=left)
            if isinstance(answer, Refusal):
                log.debug("target=%s: %s does not say %s: %s", self._target.name, poll.path, poll.says, answer.detail)
                if is_for_good(answer):
                    self._fall_silent(poll.path)
                continue
            try:
                self._last[poll.path] = poll.read(answer.value)
                found.append(self._last[poll.path])
                self._silent.pop(poll.path, None)
            except Exception:
                log.exception("target=%s: %s failed; this is a bug, please report it", self._target.name, poll.path)
                self._fall_silent(poll.path)
        return tuple(sample for samples in found for sample in samples)

    def _fall_silent(self, path: str) -> None:
        retry = self._silent.setdefault(path, Retry(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS))
        retry.note_failure(self._monotonic())


def _working(page: Samples, name: str, runtime: Runtime) -> bool | None:
    """Whether a sample of the page is above 0; None where the page does not have it."""
    forms = spellings(name, runtime.respelt)
    values = [value for key, value in zip(page.layout.keys, page.values, strict=True) if key.name in forms]
    return any(value > 0 for value in values) if values else None
