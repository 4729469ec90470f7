"""Whose page it is where the page does not say: endpoints that only one runtime answers so are asked, seldom."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.fetch.http import Client
from llm_serving_exporter.model.later import Retry
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import FailureReason, Layout, Refusal
from llm_serving_exporter.targets.side_endpoints import SHORTEST_TIMEOUT_SECONDS, place_beside

# asked again after this long, twice as long each time, while the families of the page stay the same
FIRST_ASKING_SECONDS, LONGEST_ASKING_SECONDS = 60.0, 600.0
# a page that shows other families is asked about at once, so often; after that, as often as one that does not change
MOST_FRESH_ROUNDS = 6


class _Asked(Struct):
    """What was found out about the page of one path."""

    families: frozenset[str]  # that the page had then
    retry: Retry  # when to ask again
    runtime: Runtime | None = None  # whose it is, as an endpoint said; None: none did


class Recognition:
    """Asks one server what it is. Used by one thread at a time; never raises. It remembers a verdict for each path that was asked about."""

    def __init__(self, runtimes: Mapping[str, Runtime], client: Client, monotonic: Callable[[], float]) -> None:
        self._runtimes, self._client, self._monotonic = runtimes, client, monotonic
        self._asked: dict[str, _Asked] = {}
        # rounds that found nothing
        self._rounds = 0

    async def ask(self, layout: Layout, path: str, deadline: float) -> Runtime | None:
        """The runtime that an endpoint beside the page at `path` shows; None where none does, or none did a short while ago.

        Each endpoint is asked once a round, until `deadline` (monotonic seconds). A verdict stands while the page's families are the same.
        """
        families = frozenset(layout.types) | layout.names
        asked = self._asked.get(path)
        if asked is None or asked.families != families:
            often = asked is not None and self._rounds >= MOST_FRESH_ROUNDS
            retry = asked.retry if asked and often else Retry(FIRST_ASKING_SECONDS, LONGEST_ASKING_SECONDS)
            asked = self._asked[path] = _Asked(families, retry)
        if asked.runtime is None and asked.retry.is_due(self._monotonic()):
            asked.runtime = await self._ask_all(path, deadline)
            if asked.runtime is None:
                asked.retry.note_failure(self._monotonic())
                self._rounds += 1
        return asked.runtime

    async def _ask_all(self, path: str, deadline: float) -> Runtime | None:
        answers: dict[str, object] = {}
        for runtime in self._runtimes.values():
            for endpoint, is_its in runtime.shows:
                place = place_beside(runtime, path, endpoint)
                if place not in answers:
                    left = deadline - self._monotonic()
                    if left < SHORTEST_TIMEOUT_SECONDS:
                        return None
                    answer = await self._client.get_json(place, timeout_seconds=left)
                    if isinstance(answer, Refusal) and answer.reason in (
                        FailureReason.TIMEOUT,
                        FailureReason.UNREACHABLE,
                    ):
                        return None
                    answers[place] = None if isinstance(answer, Refusal) else answer.value
                if answers[place] is not None and is_its(answers[place]):
                    return runtime
        return None
