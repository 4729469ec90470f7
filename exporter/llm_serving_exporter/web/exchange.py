"""Request and response, as the handlers of pages take and return them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from llm_serving_exporter.model.record import Struct

PLAIN = "text/plain; charset=utf-8"


class Request(Struct, frozen=True):
    """A request without its body, which no page reads."""

    # GET, HEAD or another
    method: str
    # without the query
    path: str
    # what follows "?"; "" without one
    query: str
    # by name in lower case; the values of a repeated name are joined by ", "
    headers: Mapping[str, str]


class LargeBody(Protocol):
    """A body that is kept compressed: too large to be in memory as it is."""

    def __len__(self) -> int:
        """Bytes as it is, not compressed."""

    @property
    def gzip_bytes(self) -> int:
        """Bytes with gzip, which is about what it takes in memory."""

    def read(self) -> Iterator[bytes]:
        """All of it as it is, piece by piece; each is made when it is taken."""

    def read_gzip(self) -> Iterator[bytes]:
        """All of it with gzip, piece by piece."""


class Response(Struct, frozen=True):
    """An answer, as its page makes it."""

    # HTTP status
    status: int
    # value of Content-Type
    content_type: str
    # not compressed, unless it is large
    body: bytes | LargeBody
    # added to the server's own; they replace those of the same name
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]


def plain(status: int, line: str, *headers: tuple[str, str]) -> Response:
    """One line of plain text; the caller writes its full stop."""
    return Response(status, PLAIN, f"{line}\n".encode(), headers)
