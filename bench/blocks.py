"""Blocks of a Prometheus' data folder, written without Prometheus: a day of a thousand targets in a minute instead of an hour.

https://github.com/prometheus/prometheus/tree/main/tsdb/docs/format has the files: chunks of XOR-compressed values at a steady interval, and
their index. What is written is what `bench.rules` needs: series that are there all the time. A shape's bits depend on its values and its
interval only, so that thousands of series, and every two hours of one, share the work of one.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HOUR_MS = 3_600_000
# Prometheus' own: two hours, compacted by three; the newest last
SPANS_HOURS = (18, 6, 2)
_SEGMENT_BYTES = 512 * 1024 * 1024
_SEGMENT_HEAD = struct.pack(">IB3x", 0x85BD40DD, 1)
_INDEX_HEAD = struct.pack(">IB", 0xBAAAD700, 2)
_BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
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
    table, crc = _CRC_TABLE, 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def checksum(content: bytes) -> bytes:
    return struct.pack(">I", crc32c(content))


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


# --- blocks of series

Labels = tuple[tuple[str, str], ...]  # sorted by name, __name__ among them


@dataclass(frozen=True, slots=True)
class Series:
    labels: Labels
    shape: Shape


def end_before(now_ms: int) -> int:
    """The last moment before which blocks of all spans fit behind one another."""
    rhythm, behind = SPANS_HOURS[0] * HOUR_MS, sum(SPANS_HOURS[1:]) * HOUR_MS
    return (now_ms - behind) // rhythm * rhythm + behind


def write_blocks(series: Sequence[Series], folder: Path, end_ms: int, hours: int) -> int:
    """Writes so many hours of all series, an even number, up to before `end_ms`; the number of samples."""
    found = sorted(series, key=lambda one: one.labels)
    begin_ms, samples, upto = end_ms - hours * HOUR_MS, 0, end_ms
    for number, span in enumerate(reversed(SPANS_HOURS)):
        if upto <= begin_ms:
            break
        start = max(begin_ms, upto - span * HOUR_MS)
        samples += _Block(folder, number, start, upto).write(found)
        upto = start
    if upto > begin_ms:
        raise ValueError(f"{hours} hours are more than {sum(SPANS_HOURS)}")
    return samples


class _Block:
    def __init__(self, folder: Path, number: int, begin_ms: int, end_ms: int) -> None:
        self._begin, self._end = begin_ms, end_ms
        self._id = _ulid(begin_ms, number)
        self._folder = folder / self._id
        (self._folder / "chunks").mkdir(parents=True)
        self._samples = self._chunks = 0

    def write(self, series: Sequence[Series]) -> int:
        """Writes it; the number of samples."""
        refs = self._write_chunks(series)
        _write_index(self._folder / "index", series, refs)
        meta = {
            "ulid": self._id,
            "minTime": self._begin,
            "maxTime": self._end,
            "stats": {"numSamples": self._samples, "numSeries": len(series), "numChunks": self._chunks},
            "compaction": {"level": 1, "sources": [self._id]},
            "version": 1,
        }
        (self._folder / "meta.json").write_text(json.dumps(meta))
        return self._samples

    def _write_chunks(self, series: Sequence[Series]) -> Iterator[bytes]:
        """Of each series in order, what its index entry says of its chunks; they are written on the way."""
        made: dict[int, _Chunks] = {}
        segments = itertools.count()
        out, number, offset = None, 0, _SEGMENT_BYTES
        try:
            for one in series:
                found = made.get(id(one.shape))
                if found is None:
                    found = made[id(one.shape)] = _put_together(one.shape.chunks(self._begin, self._end))
                if out is None or offset + len(found.content) > _SEGMENT_BYTES:
                    if out is not None:
                        out.close()
                    number = next(segments)
                    out = (self._folder / "chunks" / f"{number + 1:06}").open("wb")
                    offset = out.write(_SEGMENT_HEAD)
                self._chunks += found.chunks
                self._samples += found.samples
                first = number << 32 | offset
                offset += out.write(found.content)
                yield found.before + uvarint(first) + found.behind
        finally:
            if out is not None:
                out.close()


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Of one shape in a block: chunks behind one another, and their index entry before and behind the place of the first."""

    content: bytes
    before: bytes
    behind: bytes
    chunks: int
    samples: int


def _put_together(chunks: Sequence[tuple[int, int, int, bytes]]) -> _Chunks:
    first, last, _, content = chunks[0]
    before = uvarint(len(chunks)) + varint(first) + uvarint(last - first)
    entries, length = [], len(content)
    for start, end, _, content in chunks[1:]:
        entries += [uvarint(start - last), uvarint(end - start), varint(length)]
        last, length = end, len(content)
    samples = sum(count for _, _, count, _ in chunks)
    return _Chunks(b"".join(content for *_, content in chunks), before, b"".join(entries), len(chunks), samples)


def _write_index(path: Path, series: Sequence[Series], chunks: Iterator[bytes]) -> None:
    symbols = sorted({text for one in series for pair in one.labels for text in pair})
    numbers = {text: uvarint(number) for number, text in enumerate(symbols)}
    postings: dict[tuple[str, str], list[int]] = {("", ""): []}
    with path.open("wb") as out:
        out.write(_INDEX_HEAD)
        symbols_at = out.tell()
        texts = b"".join(uvarint(len(text.encode())) + text.encode() for text in symbols)
        out.write(_section(struct.pack(">I", len(symbols)) + texts))
        series_at = at = _pad(out.tell(), 16)
        out.seek(at)
        for one, of_chunks in zip(series, chunks, strict=True):
            names = b"".join([numbers[text] for pair in one.labels for text in pair])
            content = uvarint(len(one.labels)) + names + of_chunks
            entry = uvarint(len(content)) + content + checksum(content)
            entry += bytes(-len(entry) % 16)
            for pair in (("", ""), *one.labels):
                postings.setdefault(pair, []).append(at // 16)
            at += out.write(entry)
        table = []
        postings_at = at
        for pair in sorted(postings):
            found = postings[pair]
            where = b"".join(uvarint(len(text.encode())) + text.encode() for text in pair)
            table.append(b"\x02" + where + uvarint(at))
            # a multiple of four bytes, so that the next one is aligned
            at += out.write(_section(struct.pack(f">{len(found) + 1}I", len(found), *found)))
        out.write(_section(struct.pack(">I", len(table)) + b"".join(table)))
        # no tables of label indices: no version since 2.0 reads them
        toc = struct.pack(">6Q", symbols_at, series_at, 0, 0, postings_at, at)
        out.write(toc + checksum(toc))


def _section(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content + checksum(content)


def _pad(at: int, width: int) -> int:
    return at + -at % width


def _ulid(unix_ms: int, number: int) -> str:
    value, text = unix_ms << 80 | number, ""
    for _ in range(26):
        value, digit = divmod(value, 32)
        text = _BASE32[digit] + text
    return text
