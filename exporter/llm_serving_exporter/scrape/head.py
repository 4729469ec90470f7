"""Status line and headers of an answer.

What servers send at every tick is read by one pattern; whatever is unusual in it is left to http.client, which takes 0.1 ms: most of what
a GET costs here. Where both can read a head they say the same.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
from collections.abc import Mapping
from typing import cast

from llm_serving_exporter.model.record import Struct

# 200, and lines of visible ASCII, none of which goes on with the next one
_USUAL = re.compile(rb"HTTP/1\.1 200(?: [\x20-\x7e]*)?\r\n((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e]*\r\n)*)\r\n")
# as http.client: a head with more lines is refused
_MOST_LINES = 100
# what servers send is a tenth of this
_LONGEST_USUAL = 8192
# digits of a length that is an int to everybody
_LONGEST_LENGTH = 15


class Head(Struct, frozen=True):
    """An answer's status and headers, and what they say of its body."""

    # of HTTP
    status: int
    # by their names in lower case; of several of one name the first
    headers: Mapping[str, str]
    # bytes of the body; None: it is chunked, or lasts until the connection ends, or the header is no length
    length: int | None
    # whether the body comes in chunks
    chunked: bool
    # whether the connection ends with this answer
    will_close: bool


class IncompleteHeadError(Exception):
    """What has been received ends before the headers do; never leaves this package."""


class _Received(io.BytesIO):
    """What has been received of an answer, as http.client reads a status line and headers."""

    def __init__(self, received: bytes, *, at_end: bool) -> None:
        super().__init__(received)
        self._at_end = at_end
        # whether the end of the connection was taken for the end of the headers
        self.cut_short = False

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size:
            if not self._at_end:
                raise IncompleteHeadError
            self.cut_short = True
        return line

    def makefile(self, mode: str) -> _Received:
        """http.client asks a socket for nothing else."""
        return self


def read_head(received: bytes, *, at_end: bool) -> tuple[Head, bytes]:
    """The head at the beginning of what has been received, and what comes after it. `at_end`: nothing more will come.

    Raises IncompleteHeadError where more has to come first, ConnectionResetError where the connection ended within it, and what
    http.client raises.
    """
    return read_usual_head(received) or _read_any_head(received, at_end=at_end)


def read_usual_head(received: bytes) -> tuple[Head, bytes] | None:
    """As `read_head`, of a head with nothing unusual in it; None of any other."""
    match = _USUAL.match(received, 0, _LONGEST_USUAL)
    if match is None:
        return None
    lines = match[1].decode("ascii").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines[:-1]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.lstrip(" \t")
    if len(headers) != len(lines) - 1 or len(headers) > _MOST_LINES - 1:  # a name stands twice, or there are too many
        return None
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    will_close = "close" in headers.get("connection", "").lower()
    if coding is None and length is not None and len(length) <= _LONGEST_LENGTH and length.isdigit():
        return Head(200, headers, int(length), False, will_close), received[match.end() :]
    if length is None and coding is not None and coding.lower() == "chunked":
        return Head(200, headers, None, True, will_close), received[match.end() :]
    return None


def _read_any_head(received: bytes, *, at_end: bool) -> tuple[Head, bytes]:
    readable = _Received(received, at_end=at_end)
    response = http.client.HTTPResponse(cast(socket.socket, readable), method="GET")
    response.begin()
    if readable.cut_short:
        raise ConnectionResetError
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    chunked = bool(response.chunked)
    head = Head(response.status, headers, response.length, chunked, response.will_close)
    return head, received[readable.tell() :]
