"""Text that is kept compressed until it is sent, so that a page of thousands of targets is never in memory as text.

Text comes in parts, each compressed by itself: raw deflate that ends with a whole byte and is not final, as zlib's full flush leaves it.
Parts may stand behind one another in any order and be read back one by one. A gzip member is a header, such parts, an empty final block
and the CRC of all the text (RFC 1951, RFC 1952).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

# text of a part: twice the window that deflate looks back in, so that little is lost at its start
PART_BYTES = 64 * 1024
# the quickest: a page is compressed for the way, not to be kept
LEVEL = 1

_RAW = -zlib.MAX_WBITS
# no name, no time, the quickest compression, no operating system stated
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
# an empty final block with the fixed code
_FINAL_BLOCK = b"\x03\x00"
_TRAILER_BYTES = 8
# RFC 1952's polynomial, bits reversed
_POLYNOMIAL = 0xEDB88320
# 1 as such a polynomial
_ONE = 1 << 31


def compress_part(text: bytes) -> bytes:
    """A part of a page, which decompresses by itself."""
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)
    return compressor.compress(text) + compressor.flush(zlib.Z_FULL_FLUSH)


def _decompress_part(data: bytes) -> bytes:
    return zlib.decompressobj(_RAW).decompress(data)


class Spool:
    """Text in parts. `text_bytes`, `crc`: of all of it; `kept_bytes`: what is kept of it."""

    __slots__ = ("crc", "kept_bytes", "parts", "text_bytes")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.text_bytes = self.kept_bytes = self.crc = 0

    def add_parts(self, text: str) -> None:
        """Adds text, cut into parts."""
        whole = text.encode()
        for start in range(0, len(whole), PART_BYTES):
            self.add(whole[start : start + PART_BYTES])

    def add(self, text: bytes) -> None:
        """Adds text as one part."""
        self._add_part(compress_part(text))
        self.crc = zlib.crc32(text, self.crc)
        self.text_bytes += len(text)

    def add_spool(self, other: Spool) -> None:
        """Adds what another one holds."""
        for part in other.parts:
            self._add_part(part)
        self.crc = combine_crc(self.crc, other.crc, other.text_bytes)
        self.text_bytes += other.text_bytes

    def _add_part(self, data: bytes) -> None:
        self.parts.append(data)
        self.kept_bytes += len(data)

    def read(self) -> Iterator[bytes]:
        """The text, a part at a time."""
        return map(_decompress_part, self.parts)

    @property
    def gzip_bytes(self) -> int:
        """How long it is with gzip."""
        return len(_HEADER) + self.kept_bytes + len(_FINAL_BLOCK) + _TRAILER_BYTES

    def read_gzip(self) -> Iterator[bytes]:
        """The text with gzip, as one member."""
        yield _HEADER
        yield from self.parts
        yield _FINAL_BLOCK + self.crc.to_bytes(4, "little") + (self.text_bytes & 0xFFFFFFFF).to_bytes(4, "little")

    def __len__(self) -> int:
        return self.text_bytes


def join_text(pieces: Sequence[str | Spool], largest: int) -> bytes | Spool:
    """A page of such pieces: as it is where it has at most `largest` characters and nothing of it is compressed yet, else in parts."""
    texts = [piece for piece in pieces if type(piece) is str]
    if len(texts) == len(pieces) and sum(map(len, texts)) <= largest:
        return "".join(texts).encode()
    spool, pending, size = Spool(), list[str](), 0
    for piece in pieces:
        if isinstance(piece, Spool):
            spool.add_parts("".join(pending))
            pending, size = [], 0
            spool.add_spool(piece)
            continue
        pending.append(piece)
        size += len(piece)
        if size >= PART_BYTES:
            spool.add_parts("".join(pending))
            pending, size = [], 0
    spool.add_parts("".join(pending))
    return spool


# --- the CRC of two texts behind one another ---------------------------------------------------------------------------


def combine_crc(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32 of two texts behind one another, from theirs and the length of the second.

    A CRC is the remainder of the text, as a polynomial over GF(2), by the polynomial: what follows the first text multiplies it by x to the
    number of bits that follow.
    """
    return _multiply(first, _power(second_bytes)) ^ second


def _power(count: int) -> int:
    """x to the power of so many bytes."""
    found, square = _ONE, 0
    while count:
        if count & 1:
            found = _multiply(found, _square(square))
        square, count = square + 1, count >> 1
    return found


@lru_cache(maxsize=64)
def _square(times: int) -> int:
    """x to the power of 8, squared so many times."""
    if not times:
        return _ONE >> 8
    root = _square(times - 1)
    return _multiply(root, root)


def _multiply(one: int, other: int) -> int:
    """The product of two polynomials, modulo the polynomial; the highest bit is that of the power 0."""
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = (other >> 1) ^ _POLYNOMIAL if other & 1 else other >> 1
    return product
