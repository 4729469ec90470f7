"""Answer -> body bytes: bounded, decompressed, complete or refused."""

from __future__ import annotations

import http.client
import zlib

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.scrape.failure import ScrapeError
from llm_serving_exporter.scrape.head import Head
from llm_serving_exporter.scrape.wire import READ_BYTES, Connection

_GZIP = 16 + zlib.MAX_WBITS  # zlib.decompressobj: a gzip header and trailer, the largest window
_EXCERPT_BYTES = 4096

# A server compresses a page into one member. Each of thousands of empty members would cost a copy of the block.
_MAX_GZIP_MEMBERS = 100


class Body:
    """The bytes of an answer's body as they come, without their framing."""

    def __init__(self, response: Head, connection: Connection) -> None:
        self._connection, self._chunked = connection, response.chunked
        # bytes that are still to come of the body, or of the chunk; None: until the connection ends
        self._left: int | None = 0 if response.chunked else response.length
        # whether a chunk has been read, whose end comes before the next one
        self._in_chunks = False

    async def read_block(self) -> bytes:
        """The next bytes; b"" at the body's end. Raises http.client.IncompleteRead where it ends too early."""
        if self._left == 0 and not (self._chunked and await self._begin_chunk()):
            return b""
        most = READ_BYTES if self._left is None else min(self._left, READ_BYTES)
        block = await self._connection.read_some(most)
        if self._left is not None:
            if not block:
                raise http.client.IncompleteRead(b"", self._left)
            self._left -= len(block)
        return block

    async def _begin_chunk(self) -> bool:
        """Reads what stands before a chunk; False where there is none, after what stands behind the last one."""
        if self._in_chunks:
            ended = await self._connection.read_line()
            if not ended.endswith(b"\n"):
                raise http.client.IncompleteRead(b"")
            if ended.strip():
                raise http.client.HTTPException("a chunk is longer than it says")
        size = (await self._connection.read_line()).partition(b";")[0]
        try:
            self._left = int(size, 16)
        except ValueError:
            raise http.client.IncompleteRead(b"") from None
        if self._left < 0:
            raise http.client.HTTPException("a chunk's size is no size")
        self._in_chunks = True
        if self._left:
            return True
        while (await self._connection.read_line()) not in (b"\r\n", b"\n", b""):
            pass
        self._chunked = False
        return False


async def read_body(response: Head, connection: Connection, max_bytes: int) -> tuple[bytes, int]:
    """The body after decompression, and its size in bytes before.

    Raises ScrapeError: TOO_LARGE as soon as more than `max_bytes` would come out; ENCODING for an encoding that was not
    requested, and for a body that does not unpack; PROTOCOL for a length that is not a number. Raises
    http.client.IncompleteRead for a body that ends before the announced length. A body without length or chunks ends where
    the server closes the connection; only the parser can see that such a body was cut short.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise ScrapeError(
            FailureReason.ENCODING, "the body has a content encoding that was not asked for; only gzip is read", 200
        )
    plain = encoding in ("", "identity")
    length = response.length
    if length is None and not response.chunked:
        _refuse_unknown_framing(response)
    if length is not None and length > max_bytes:
        raise _too_large_error(max_bytes)
    body = Body(response, connection)
    return await _collect(body, max_bytes) if plain else await _unpack(body, max_bytes)


async def read_excerpt(response: Head, connection: Connection) -> str:
    """The beginning of an error's body as text: what the first read returned, "" where it failed."""
    try:
        raw = (await Body(response, connection).read_block())[:_EXCERPT_BYTES]
        if response.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip"):
            raw = zlib.decompressobj(_GZIP).decompress(raw, _EXCERPT_BYTES)
    except (OSError, ValueError, http.client.HTTPException, zlib.error, LLMServingExporterError):
        return ""  # the status is the news; its page only decorates it
    return raw.decode(errors="replace")


def _refuse_unknown_framing(response: Head) -> None:
    # http.client reads such answers to the end of the connection, which on a live one only comes with the deadline.
    if "content-length" in response.headers:
        raise ScrapeError(FailureReason.PROTOCOL, "the answer's Content-Length is not a length", 200)
    if "transfer-encoding" in response.headers:
        raise ScrapeError(FailureReason.ENCODING, "the answer's Transfer-Encoding is not chunked alone", 200)


async def _collect(body: Body, max_bytes: int) -> tuple[bytes, int]:
    parts: list[bytes] = []
    total = 0
    while block := await body.read_block():
        total += len(block)
        if total > max_bytes:
            raise _too_large_error(max_bytes)
        parts.append(block)
    return b"".join(parts), total


async def _unpack(body: Body, max_bytes: int) -> tuple[bytes, int]:
    """Gunzip block by block, each step's output bounded, so that a bomb costs `max_bytes` and one block at most."""
    parts: list[bytes] = []
    total = wire_bytes = 0
    unpacker, members = zlib.decompressobj(_GZIP), 1
    try:
        while block := await body.read_block():
            wire_bytes += len(block)
            packed = block
            while packed:
                if unpacker.eof:  # RFC 1952, 2.2: a file may have several members
                    unpacker, members = zlib.decompressobj(_GZIP), members + 1
                    if members > _MAX_GZIP_MEMBERS:
                        raise zlib.error
                part = unpacker.decompress(packed, READ_BYTES)
                total += len(part)
                if total > max_bytes:
                    raise _too_large_error(max_bytes)
                parts.append(part)
                packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    except zlib.error as error:
        raise ScrapeError(
            FailureReason.ENCODING, "the body says gzip but does not unpack; does a proxy rewrite it?", 200
        ) from error
    if wire_bytes and not unpacker.eof:
        raise ScrapeError(FailureReason.ENCODING, "the gzip body ends in the middle; was it cut off?", 200)
    return b"".join(parts), wire_bytes


def _too_large_error(max_bytes: int) -> ScrapeError:
    return ScrapeError(
        FailureReason.TOO_LARGE,
        f"the body exceeds {max_bytes} bytes after decompression; "
        "check the path, or raise max_body_bytes if the page is that large",
        200,
    )
