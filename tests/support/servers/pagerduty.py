"""PagerDuty's Events API v2 on loopback: keeps what is POSTed, refuses what PagerDuty refuses. Takes other webhooks too, so that a test
has one inbox for everybody who may be told.

    with PagerDuty() as inbox:
        …  # somebody posts to inbox.url
        event = inbox.wait_for(lambda event: event["event_action"] == "trigger", "a page")

Limits: developer.pagerduty.com, docs/events-api-v2 (overview, trigger-events).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers.http_server import QuietHandler, serve
from tests.support.waiting import PATIENCE_SECONDS

ENQUEUE = "/v2/enqueue"
ROUTING_KEY = "0123456789abcdef0123456789abcdef"
LARGEST_EVENT_BYTES = 512 * 1000

Event = dict[str, Any]


def faults(event: Any) -> list[str]:
    """What PagerDuty would refuse an event for; [] for a good one."""
    if not isinstance(event, dict):
        return ["the event is no object"]
    found = []
    key, action, dedup = event.get("routing_key"), event.get("event_action"), event.get("dedup_key")
    if not isinstance(key, str) or len(key) != 32:
        found.append("Length of 'routing_key' is incorrect (should be 32 characters)")
    if action not in ("trigger", "acknowledge", "resolve"):
        found.append("'event_action' is invalid")
    if dedup is not None and (not isinstance(dedup, str) or len(dedup) > 255):
        found.append("'dedup_key' is longer than 255 characters")
    if action in ("acknowledge", "resolve"):
        return found if dedup else [*found, "'dedup_key' is missing or blank"]
    payload = event.get("payload")
    if not isinstance(payload, dict):
        return [*found, "'payload' is missing"]
    found += [
        f"'payload.{name}' is missing or blank" for name in ("summary", "source", "severity") if not payload.get(name)
    ]
    if len(str(payload.get("summary"))) > 1024:
        found.append("'payload.summary' is longer than 1024 characters")
    if payload.get("severity") not in ("critical", "error", "warning", "info"):
        found.append("'payload.severity' is invalid")
    if not isinstance(payload.get("custom_details", {}), dict):
        found.append("'payload.custom_details' is no object")
    for link in event.get("links") or []:
        parts = urlsplit(str(link.get("href")))
        if parts.scheme not in ("http", "https") or not parts.netloc:
            found.append(f"link {link!r} has no URL")
    return found


class PagerDuty:
    """The server; a context manager. `events`: accepted ones in order; `refused`: bodies that PagerDuty would refuse; `posts(path)`: what
    came to other paths."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._posts: list[tuple[str, Any]] = []
        self._planned: list[tuple[int, Mapping[str, str]]] = []
        self.events: list[Event] = []
        self.refused: list[tuple[Any, list[str]]] = []
        self.attempts = 0

    def __enter__(self) -> PagerDuty:
        inbox = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                status, headers, answer = inbox._take(self.path, self.read_body())
                self.answer(status, answer, **headers)

        self._serving = serve(Handler)
        self.base = self._serving.__enter__()
        self.url = self.base + ENQUEUE
        return self

    def __exit__(self, *exc: object) -> None:
        self._serving.__exit__(None, None, None)

    def answer(self, status: int, *, times: int = 1, headers: Mapping[str, str] | None = None) -> None:
        """Answers the next `times` events like this, without keeping them."""
        with self._changed:
            self._planned += [(status, headers or {})] * times

    def _take(self, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        with self._changed:
            self._changed.notify_all()
            content = _content(body)
            if path != ENQUEUE:
                self._posts.append((path, content))
                return 200, {}, b"{}"
            self.attempts += 1
            if self._planned:
                status, headers = self._planned.pop(0)
                return status, headers, b"{}"
            wrong = faults(content)
            if len(body) > LARGEST_EVENT_BYTES:
                wrong.append("the event is larger than 512 KB")
            if wrong:
                self.refused.append((content, wrong))
                return (
                    400,
                    {},
                    _json({"status": "invalid event", "message": "Event object is invalid", "errors": wrong}),
                )
            self.events.append(content)
            accepted = {"status": "success", "message": "Event processed", "dedup_key": content.get("dedup_key")}
            return 202, {}, _json(accepted)

    def posts(self, path: str) -> list[Any]:
        """What was POSTed to another path, in order."""
        with self._changed:
            return [content for where, content in self._posts if where == path]

    def wait_for(self, wanted: Callable[[Event], bool], what: str) -> Event:
        """The first accepted event that is wanted; fails with what was awaited."""
        return self.until(lambda: next((event for event in self.events if wanted(event)), None), what)

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """The first true value of `found`, asked again after each POST."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while True:
                value = found()
                if value:
                    return value
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise AssertionError(
                        f"{what} did not come in {PATIENCE_SECONDS:g} s; refused: {self.refused}; events: {self.events}"
                    )


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
