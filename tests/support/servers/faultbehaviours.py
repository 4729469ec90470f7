"""What a `tests.support.servers.faultserver.FaultServer` can do with a request: good answers, and everything else.

Each function makes a behaviour. `head` and `chunk` are the pieces for one that is not here.
"""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.servers.faultserver import Behaviour, Exchange

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def head(code: int, content_type: str | None, *headers: str, version: str = "1.1") -> bytes:
    """A status line and headers, with the blank line."""
    lines = [f"HTTP/{version} {code} Reason", *headers]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def page(
    body: bytes,
    content_type: str | None = TEXT,
    *,
    code: int = 200,
    framing: str = "length",
    compress: bool = False,
    headers: tuple[str, ...] = (),
    keep: bool = True,
) -> Behaviour:
    """A well-formed answer. `framing`: length, chunked, or close (until the connection ends, HTTP/1.0).

    `keep=False` announces and does the close. `compress` answers in gzip if the request allows it.
    """

    def answer(exchange: Exchange) -> bool:
        extra, data = list(headers), body
        if compress and "gzip" in exchange.request.headers.get("accept-encoding", ""):
            data = gzip.compress(body, mtime=0)
            extra.append("Content-Encoding: gzip")
        if not keep:
            extra.append("Connection: close")
        if framing == "length":
            exchange.send(head(code, content_type, f"Content-Length: {len(data)}", *extra) + data)
        elif framing == "chunked":
            exchange.send(head(code, content_type, "Transfer-Encoding: chunked", *extra))
            for start in range(0, len(data), 1000):
                exchange.send(chunk(data[start : start + 1000]))
            exchange.send(b"0\r\n\r\n")
        else:
            exchange.send(head(code, content_type, *extra, version="1.0") + data)
        return keep and framing != "close"

    return answer


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def status(
    code: int, body: bytes = b"", content_type: str | None = "text/plain", headers: tuple[str, ...] = ()
) -> Behaviour:
    """An answer with this status."""
    return page(body, content_type, code=code, headers=headers)


def loading(message: str = "Loading model") -> Behaviour:
    """503 with a JSON body, as llama.cpp answers while it loads."""
    error = {"error": {"code": 503, "message": message, "type": "unavailable_error"}}
    return status(503, json.dumps(error).encode(), "application/json")


def redirect(location: str | None, code: int = 302, body: bytes = b"") -> Behaviour:
    """A redirect, without the Location header if that is None."""
    return status(code, body, headers=() if location is None else (f"Location: {location}",))


def raw(data: bytes, *, keep: bool = False) -> Behaviour:
    """These bytes as the answer, whatever they are, then close (or not)."""

    def answer(exchange: Exchange) -> bool:
        exchange.send(data)
        return keep

    return answer


def garbage() -> Behaviour:
    """Bytes that are not HTTP."""
    return raw(b"220 mail.example ESMTP ready\r\n\x00\x01\x02\r\n\r\n")


def silent() -> Behaviour:
    """Half open: the request is read and never answered."""

    def answer(exchange: Exchange) -> bool:
        exchange.wait_for_hang_up()
        return False

    return answer


def hang_up(*, reset: bool = False) -> Behaviour:
    """Close before a single byte of the answer, orderly or with a TCP reset."""

    def answer(exchange: Exchange) -> bool:
        if reset:
            exchange.reset()
        return False

    return answer


def closes_idle(body: bytes, content_type: str = TEXT) -> Behaviour:
    """One good answer that promises to keep the connection, which is then closed, like an idle timeout."""
    return raw(head(200, content_type, f"Content-Length: {len(body)}") + body)


def first_only(good: Behaviour, then: Behaviour) -> Behaviour:
    """`good` for the first request of each connection, `then` for the ones after it."""
    return lambda exchange: good(exchange) if exchange.nth == 1 else then(exchange)


def drip(body: bytes, *, interval_seconds: float, part: str = "body", content_type: str = TEXT) -> Behaviour:
    """A correct answer, one byte per interval; `part` says from where on: "headers" or "body"."""

    def answer(exchange: Exchange) -> bool:
        start = head(200, content_type, f"Content-Length: {len(body)}")
        slow = body
        if part == "headers":
            slow = start + body
        else:
            exchange.send(start)
        for byte in slow:
            if exchange.wait(interval_seconds):
                return False
            exchange.send(bytes([byte]))
        return True

    return answer


def endless(line: bytes = b"filler_total 1\n", *, framing: str = "chunked", cap_bytes: int = 256 << 20) -> Behaviour:
    """A page that does not end (up to `cap_bytes`, so that a test does). `framing`: chunked or close."""

    def answer(exchange: Exchange) -> bool:
        block = line * (65536 // len(line) + 1)
        chunked = framing == "chunked"
        extra = "Transfer-Encoding: chunked" if chunked else "Connection: close"
        exchange.send(head(200, TEXT, extra))
        for _ in range(cap_bytes // len(block)):
            exchange.send(chunk(block) if chunked else block)
        return False

    return answer


def gzip_bomb(unpacked_bytes: int = 256 << 20) -> Behaviour:
    """A small gzip body of zeros that unpacks to this size, whole MiB. Its checksum is wrong, to whoever gets as far."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    def mebibyte() -> bytes:
        return packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)

    # after a full flush the same input makes the same output
    bomb = mebibyte() + mebibyte() * ((unpacked_bytes >> 20) - 1) + packer.flush()
    return page(bomb, headers=("Content-Encoding: gzip",))


def truncated(body: bytes, sent: int, *, framing: str = "length", reset: bool = False) -> Behaviour:
    """An answer that announces all of `body` and ends after `sent` bytes of it."""

    def answer(exchange: Exchange) -> bool:
        if framing == "chunked":
            exchange.send(head(200, TEXT, "Transfer-Encoding: chunked") + chunk(body)[:sent])
        else:
            exchange.send(head(200, TEXT, f"Content-Length: {len(body)}") + body[:sent])
        if reset:
            exchange.reset()
        return False

    return answer


def header_flood(count: int = 100_000, name: str = "X-Flood") -> Behaviour:
    """A status line and then headers without end (up to `count`)."""

    def answer(exchange: Exchange) -> bool:
        exchange.send(b"HTTP/1.1 200 OK\r\n")
        block = "".join(f"{name}-{i}: {'y' * 100}\r\n" for i in range(1000)).encode()
        for _ in range(count // 1000):
            exchange.send(block)
        return False

    return answer


def continue_flood(cap_bytes: int = 64 << 20) -> Behaviour:
    """Interim answers (100 Continue) without end (up to `cap_bytes`), never a final one."""

    def answer(exchange: Exchange) -> bool:
        block = b"HTTP/1.1 100 Continue\r\n\r\n" * 1000
        for _ in range(cap_bytes // len(block)):
            exchange.send(block)
        return False

    return answer
