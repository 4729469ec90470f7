"""Data points in protobuf's wire format: to make a message of each with the library takes several times as long.

Facts: protobuf.dev/programming-guides/encoding, and opentelemetry/proto/metrics/v1/metrics.proto 1.x, whose numbers of fields stand below.
The library reads what is written here: into the message that is sent, and in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.otlp.reading import Labels

# attributes that are no text, as the semantic conventions have them
_WHOLE_NUMBERS = frozenset({"server.port"})
# (number of the field << 3) | how it is written: 1 for 8 bytes, 2 for a length and so many bytes, 0 for a varint
_DATA_POINTS = b"\x0a"  # 1 of Gauge, Sum and Histogram
_NUMBER_ATTRIBUTES, _HISTOGRAM_ATTRIBUTES = b"\x3a", b"\x4a"  # 7 and 9
_NUMBER_FLAGS, _HISTOGRAM_FLAGS = b"\x40", b"\x50"  # 8 and 10
_TIMES = struct.Struct("<cQcQ")  # 2 and 3 of both
_DOUBLE = struct.Struct("<cd")
_COUNT = struct.Struct("<cQ")
_START, _TIME, _AS_DOUBLE, _EVENTS, _SUM = b"\x11", b"\x19", b"\x21", b"\x21", b"\x29"
_BUCKET_COUNTS, _EXPLICIT_BOUNDS = b"\x32", b"\x3a"  # 6 and 7 of a histogram, packed
_ENDED = bytes([DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK])


def write_number(labels: Labels, start_nanos: int, now_nanos: int, value: float | None) -> bytes:
    """A point of a gauge or a sum, as a field of it. `start_nanos`: 0 for none; `value`: None where the series has ended."""
    return _delimit(
        _DATA_POINTS,
        write_attributes(_NUMBER_ATTRIBUTES, labels)
        + _TIMES.pack(_START, start_nanos, _TIME, now_nanos)
        + (_NUMBER_FLAGS + _ENDED if value is None else _DOUBLE.pack(_AS_DOUBLE, value)),
    )


def write_histogram(
    labels: Labels,
    start_nanos: int,
    now_nanos: int,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float | None,
    *,
    ended: bool,
) -> bytes:
    """A point of a histogram, as a field of it. `counts`: of each bucket by itself, one more than `bounds`; `total`: None for no sum."""
    return _delimit(
        _DATA_POINTS,
        write_attributes(_HISTOGRAM_ATTRIBUTES, labels)
        + _TIMES.pack(_START, start_nanos, _TIME, now_nanos)
        + _COUNT.pack(_EVENTS, add_up(counts))
        + (b"" if total is None else _DOUBLE.pack(_SUM, total))
        + _delimit(_BUCKET_COUNTS, struct.pack(f"<{len(counts)}Q", *counts))
        + _delimit(_EXPLICIT_BOUNDS, struct.pack(f"<{len(bounds)}d", *bounds))
        + (_HISTOGRAM_FLAGS + _ENDED if ended else b""),
    )


@lru_cache(maxsize=4096)
def write_attributes(tag: bytes, labels: Labels) -> bytes:
    """Attributes, each as a field with this tag. Most series of a target share them."""
    return b"".join([tag + _write_attribute(pair) for pair in labels])


@lru_cache(maxsize=4096)
def _write_attribute(pair: tuple[str, str]) -> bytes:
    """With its length before it."""
    return _delimit(b"", make_attribute(*pair).SerializeToString())


def make_attribute(name: str, text: str) -> KeyValue:
    """One attribute, as the library has it."""
    value = AnyValue(int_value=int(text)) if name in _WHOLE_NUMBERS else AnyValue(string_value=text)
    return KeyValue(key=name, value=value)


def _delimit(tag: bytes, content: bytes) -> bytes:
    return tag + _write_length(len(content)) + content


@lru_cache(maxsize=4096)
def _write_length(length: int) -> bytes:
    written = bytearray()
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    written.append(length)
    return bytes(written)
