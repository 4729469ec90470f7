"""Request and response, as the handlers of pages take and return them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its body, which no page reads."""

    # GET, HEAD or another
    method: str
    # without the query
    path: str
    # what follows "?"; "" without one
    query: str
    # by name in lower case; the values of a repeated name are joined by ", "
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, not yet compressed."""

    # HTTP status
    status: int
    # value of Content-Type
    content_type: str
    # not compressed
    body: bytes
    # added to the server's own; they replace those of the same name
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]


def plain(status: int, line: str, *headers: tuple[str, str]) -> Response:
    """One line of plain text; the caller writes its full stop."""
    return Response(status, PLAIN, f"{line}\n".encode(), headers)
