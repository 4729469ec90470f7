"""Where a request ends in the bytes that a client has sent: pure, so that waiting for the rest of one takes no thread."""

from __future__ import annotations

import re
from typing import NamedTuple

from llm_serving_exporter.web.limits import Limits

_BLANK_LINES = re.compile(rb"(?:[ \t\v\f\r]*\n)+")
_END = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"\ncontent-length[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r?\n)", re.IGNORECASE)
_ENCODED = re.compile(rb"\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_EXPECTS = re.compile(rb"\nexpect[ \t]*:[ \t]*100-continue[ \t]*\r?\n", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(rb"[0-9]{1,15}")
_WORDS = 3  # of a request line


class Raw(NamedTuple):
    """One request as it was sent, whole, or as much of it as shows that it is none."""

    # its line and headers, with the empty line after them
    head: bytes
    # as long as Content-Length says; b"" where it says what is to be refused
    body: bytes = b""
    # whether the head is longer than it may be
    too_large: bool = False


class Framing:
    """The bytes of one connection that no request has been made of yet."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = bytearray()
        # how far the end of the head has been looked for
        self._searched = 0
        self._has_continued = False

    @property
    def has_begun(self) -> bool:
        """Whether there is a part of a request."""
        return bool(self._bytes)

    def feed(self, data: bytes) -> None:
        """Adds what came."""
        self._bytes += data

    def take_request(self) -> Raw | None:
        """The first request of what came; None where its end is still to come. After one that is too large nothing follows."""
        if blank := _BLANK_LINES.match(self._bytes):  # to be skipped: RFC 9112, section 2.2
            del self._bytes[: blank.end()]
            self._searched = 0
        line_end = self._bytes.find(b"\n") + 1
        if line_end and len(self._bytes[:line_end].split()) != _WORDS:
            return self._cut(line_end, 0)
        end = _END.search(self._bytes, max(0, self._searched - 2)) if line_end else None
        size = len(self._bytes) if end is None else end.end()
        if size > self._limits.head_bytes:
            self._bytes.clear()
            return Raw(b"", too_large=True)
        if end is None:
            self._searched = len(self._bytes)
            return None
        body = self._find_body_bytes(end.end())
        return None if len(self._bytes) < end.end() + body else self._cut(end.end(), body)

    def take_continue(self) -> bool:
        """Whether the client is to be told, for the first time in this request, that it may send the body."""
        if self._has_continued or not (end := _END.search(self._bytes)):
            return False
        self._has_continued = bool(_EXPECTS.search(self._bytes, 0, end.end()))
        return self._has_continued

    def _find_body_bytes(self, head: int) -> int:
        """How many bytes follow the head; 0 where that is to be refused, whatever follows."""
        lengths = _LENGTH.findall(self._bytes, 0, head)
        if len(lengths) != 1 or _ENCODED.search(self._bytes, 0, head) or not _WHOLE_NUMBER.fullmatch(lengths[0]):
            return 0
        length = int(lengths[0])
        return length if length <= self._limits.body_bytes else 0

    def _cut(self, head: int, body: int) -> Raw:
        raw = Raw(bytes(self._bytes[:head]), bytes(self._bytes[head : head + body]))
        del self._bytes[: head + body]
        self._searched, self._has_continued = 0, False
        return raw
