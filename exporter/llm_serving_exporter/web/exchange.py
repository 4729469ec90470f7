"""What a page's handler gets and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its body, which no page reads. `query` is what follows "?", "" without one.

    `headers`: names in lower case; a name that came more than once has its values joined by ", ".
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, not yet compressed. `headers` come on top of the server's own and replace those of the same name."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]


def plain(status: int, line: str, *headers: tuple[str, str]) -> Response:
    """A line of text for a person; the full stop and the line end are the caller's and ours."""
    return Response(status, PLAIN, f"{line}\n".encode(), headers)
