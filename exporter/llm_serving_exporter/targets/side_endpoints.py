"""A server's side endpoints (/version, /v1/models …): asked at start and when something changed, never each tick."""

from __future__ import annotations

import logging
from collections.abc import Callable

from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.fetch.http import Connect, HttpClient
from llm_serving_exporter.model.later import Retry
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason, Refusal
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import Target

log = logging.getLogger("llm_serving_exporter.target")

# an endpoint that failed for a passing reason is asked again after this long, twice as long each time
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 30.0, 600.0
# less time than this is not worth a question
SHORTEST_TIMEOUT_SECONDS = 0.25


class SideEndpoints:
    """What one server said beside its page. Used by one thread at a time.

    `facts` is the last that is known; `ask_again` has another round asked for; `forget` is for a new engine life.
    """

    def __init__(
        self,
        target: Target,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        connect: Connect = HttpClient,
    ) -> None:
        self._connect = connect
        self.facts = ServerFacts()
        # where they are asked: the target's URL, or the one at which its page was found
        self.base_url = target.url
        self._target, self._monotonic, self._wall = target, monotonic, wall
        # whether the next round is to be made, and not before when
        self._asks, self._retry = True, Retry(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)

    def ask_again(self) -> None:
        """Has the next `refresh` ask."""
        self._asks = True
        self._retry.reset()

    def forget(self) -> None:
        """Nothing that was said before is true of a restarted server."""
        self.facts = ServerFacts()
        self.ask_again()

    async def refresh(self, runtime: Runtime, metrics_path: str) -> bool:
        """One round where one is due; whether something new was said. Never raises.

        Each endpoint may take what the interval leaves beside the metrics page; at the first that takes longer the round ends, so that no
        page comes late. Endpoints stand below the same prefix as the page ("/vllm/metrics": "/vllm/version").
        """
        if not (self._asks and self._retry.is_due(self._monotonic())):
            return False
        before, self._asks = self.facts, True
        try:
            self._asks = await self._ask(runtime, metrics_path)
        except Exception:
            log.exception("target=%s: side endpoints failed; this is a bug, please report it", self._target.name)
        if self._asks:
            self._retry.note_failure(self._monotonic())
        else:
            self._retry.reset()
        return self.facts != before

    async def _ask(self, runtime: Runtime, metrics_path: str) -> bool:
        """One round; whether another may be answered better."""
        http = self._target.http
        timeout = max(SHORTEST_TIMEOUT_SECONDS, self._target.interval_seconds - http.timeout_seconds)
        settings = replace(http, timeout_seconds=min(timeout, http.timeout_seconds))
        client = self._connect(self.base_url, settings, monotonic=self._monotonic, wall=self._wall)
        again = False
        try:
            for endpoint in runtime.endpoints:
                answer = await client.get_json(place_beside(runtime, metrics_path, endpoint.path))
                if not isinstance(answer, Refusal):
                    self.facts = endpoint.read(answer.value, self.facts)
                    continue
                log.debug(
                    "target=%s: %s does not say %s: %s",
                    self._target.name,
                    endpoint.path,
                    endpoint.summary,
                    answer.detail,
                )
                again = again or not is_for_good(answer)
                if answer.reason in (FailureReason.TIMEOUT, FailureReason.UNREACHABLE):
                    break
        finally:
            client.close()
        return again


def place_beside(runtime: Runtime, metrics_path: str, path: str) -> str:
    """The path of an endpoint that stands beside a metrics page: below the same prefix, with the same query ("?model=…" of a router)."""
    page, _, query = metrics_path.partition("?")
    known = max((known for known in runtime.paths if page.endswith(known)), key=len, default=page)
    prefix = page.removesuffix(known)
    joint = "&" if "?" in path else "?"
    return f"{prefix}{path}{joint}{query}" if query else prefix + path


def is_for_good(answer: Refusal) -> bool:
    """Whether asking again would be answered the same: the server does not have the endpoint, or not for us."""
    if answer.reason is FailureReason.STATUS:
        # 408 and 429 are the server's load; 501: what the endpoint needs is switched off (llama.cpp without --metrics, with --no-slots)
        return (
            answer.status is not None
            and answer.status not in (408, 429)
            and (answer.status < 500 or answer.status == 501)
        )
    return answer.reason in (FailureReason.CONTENT_TYPE, FailureReason.UNAUTHORIZED, FailureReason.REDIRECT)
