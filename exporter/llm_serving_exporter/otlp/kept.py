"""What is kept of a metric between two sendings, in little memory: which series a receiver has, and how far their counters were."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Mapping

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.otlp.reading import Buckets, Labels, Value


class Kept(Struct, frozen=True):
    """One metric as it was received. While its series stay the same, only `counts` is new."""

    layout: int  # hash of its series in their order, and of their bounds
    packed: bytes  # these series and bounds, compressed
    counts: array[float]  # for each of them: the number, of a histogram its events
    sent_nanos: int  # when it was sent, Unix time

    @property
    def size_bytes(self) -> int:
        """How much memory it takes, but for the object itself."""
        return len(self.packed) + self.counts.itemsize * len(self.counts)


def keep_values(values: Mapping[Labels, Value], earlier: Kept | None, now_nanos: int) -> Kept:
    """What has to be known of `values` at the next sending. `earlier`: as it was kept at the last one; None: it was not."""
    layout = hash_layout(values)
    packed = earlier.packed if earlier is not None and earlier.layout == layout else _pack(values)
    return Kept(layout, packed, array("d", map(count_events, values.values())), now_nanos)


def hash_layout(values: Mapping[Labels, Value]) -> int:
    """The same for the same series in the same order, with the same bounds."""
    return hash(
        tuple(
            [(labels, *value.cumulative) if isinstance(value, Buckets) else labels for labels, value in values.items()]
        )
    )


def unpack_kept(kept: Kept) -> dict[Labels, tuple[Value, float]]:
    """By series: a value that has its bounds, if it has any, and nothing else; and how far it was."""
    found: dict[Labels, tuple[Value, float]] = {}
    for (labels, bounds, has_sum), count in zip(json.loads(zlib.decompress(kept.packed)), kept.counts, strict=True):
        value: Value = 0.0
        if bounds is not None:
            value = Buckets(dict.fromkeys(bounds, 0.0), 0.0, 0.0 if has_sum else None)
        found[tuple([(name, text) for name, text in labels])] = value, count
    return found


def count_events(value: Value) -> float:
    """What of a counter only rises: the number, of a histogram its events."""
    return value.count if isinstance(value, Buckets) else value


def _pack(values: Mapping[Labels, Value]) -> bytes:
    rows = [
        (labels, list(value.cumulative), value.sum is not None) if isinstance(value, Buckets) else (labels, None, False)
        for labels, value in values.items()
    ]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)
