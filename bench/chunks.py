"""Samples as a Prometheus keeps them: chunks of XOR-compressed values at a steady interval, for blocks that are written without it.

https://github.com/prometheus/prometheus/blob/main/tsdb/docs/format/chunks.md. A shape's bits depend on its values and its interval only, so
that thousands of series, and every two hours of one, share the work of one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), reflected
_CHUNK_SAMPLES = 120
_XOR = b"\x01"


def _crc_table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_CRC_TABLE = _crc_table()


def crc32c(content: bytes) -> int:
    """The checksum of Prometheus' files."""
    return _register_after(content, 0xFFFFFFFF) ^ 0xFFFFFFFF


def _register_after(content: bytes, crc: int) -> int:
    table = _CRC_TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


@cache
def _zeros_behind(length: int) -> list[list[int]]:
    """What so many zero bytes make of each byte of a register, the lowest first."""
    tables = []
    for place in range(4):
        table = [0]
        for bit in range(8 * place, 8 * place + 8):
            image = _register_after(bytes(length), 1 << bit)
            table += [image ^ other for other in table]
        tables.append(table)
    return tables


def checksum(content: bytes) -> bytes:
    """As it stands in a file."""
    return struct.pack(">I", crc32c(content))


class Ending:
    """The end that many contents share: its checksum is worked out once. Zeros behind a content change its checksum bit by bit alike."""

    def __init__(self, content: bytes) -> None:
        self.content, self._own = content, crc32c(content)
        self._tables = _zeros_behind(len(content))

    def behind(self, crc: int) -> int:
        """The checksum of a content with that checksum and this behind it."""
        first, second, third, fourth = self._tables
        return self._own ^ first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24]


def uvarint(number: int) -> bytes:
    """Go's unsigned varint."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def varint(number: int) -> bytes:
    """Go's signed varint."""
    return uvarint(number << 1 if number >= 0 else (~number << 1) | 1)


class _Bits:
    def __init__(self) -> None:
        self._value = self._length = 0

    def add(self, value: int, length: int) -> None:
        self._value = self._value << length | value
        self._length += length

    def content(self) -> bytes:
        padding = -self._length % 8
        return (self._value << padding).to_bytes((self._length + padding) // 8, "big")


@dataclass(frozen=True)
class _Part:
    """One chunk of a shape: everything but its first moment."""

    samples: int
    first: bytes  # its first value
    rest: bytes


class Shape:
    """Values at a steady interval that begin anew after the last. `interval_ms`: milliseconds between two."""

    def __init__(self, values: Sequence[float], interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.length_ms = len(values) * interval_ms
        starts = range(0, len(values), _CHUNK_SAMPLES)
        self._parts = [_encoded(values[start : start + _CHUNK_SAMPLES], interval_ms) for start in starts]

    def chunks(self, begin_ms: int, end_ms: int) -> list[tuple[int, int, int, bytes]]:
        """Its chunks from one moment until before another, a whole number of its lengths later: first and last moment in milliseconds,
        samples, and the bytes in a segment."""
        found = []
        for anew in range(begin_ms, end_ms, self.length_ms):
            start = anew
            for part in self._parts:
                last = start + (part.samples - 1) * self.interval_ms
                data = b"".join((struct.pack(">H", part.samples), varint(start), part.first, part.rest))
                found.append((start, last, part.samples, uvarint(len(data)) + _XOR + data + checksum(_XOR + data)))
                start = last + self.interval_ms
        return found


def _encoded(values: Sequence[float], interval_ms: int) -> _Part:
    bits = _Bits()
    number = struct.unpack(">Q", struct.pack(">d", values[0]))[0]
    leading = trailing = -1
    for index, value in enumerate(values[1:]):
        # the first difference of moments is written out, of the others that it is the same
        if index:
            bits.add(0, 1)
        before, number = number, struct.unpack(">Q", struct.pack(">d", value))[0]
        delta = before ^ number
        if not delta:
            bits.add(0, 1)
            continue
        ahead, behind = min(64 - delta.bit_length(), 31), (delta & -delta).bit_length() - 1
        if leading >= 0 and ahead >= leading and behind >= trailing:
            bits.add(0b10, 2)
        else:
            leading, trailing = ahead, behind
            bits.add(0b11, 2)
            bits.add(leading, 5)
            # 64 does not go into six bits and is written as 0
            bits.add((64 - leading - trailing) & 63, 6)
        bits.add(delta >> trailing, 64 - leading - trailing)
    delta_of_moments = uvarint(interval_ms) if len(values) > 1 else b""
    return _Part(len(values), struct.pack(">d", values[0]), delta_of_moments + bits.content())
