"""The bench's own blocks, read by a real Prometheus: every sample, of values that need every kind of bits."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from bench.blocks import Series, Shape, crc32c, end_before, write_blocks
from tests.support.servers.prometheus_server import PrometheusServer

_MS = 1_795_377_600_000
_SHAPES = {
    "constant": ([1.0] * 480, 15_000),
    "counter": ([7.0 * number for number in range(480)], 15_000),
    "random": (random.Random(7).choices([0.1, 3.7e300, -2.0, 5e-324, math.inf, 1e9], k=480), 15_000),
    "waves": ([math.sin(number / 9) * 1e9 if number % 7 else float(number) for number in range(480)], 15_000),
    "seldom": ([float(number) for number in range(60)], 120_000),
}


def test_crc32c_is_castagnoli_s() -> None:
    # RFC 3720, B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes([0xFF] * 32)) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.process
@pytest.mark.seam("Prometheus")
@pytest.mark.parametrize("hours", [2, 24])
def test_prometheus_reads_what_was_written(tmp_path: Path, hours: int) -> None:
    end_ms = end_before(_MS)
    series = [
        Series((("__name__", name), ("copy", copy)), Shape(values, interval_ms))
        for name, (values, interval_ms) in _SHAPES.items()
        for copy in ("a", "b", "ä")
    ]
    samples = write_blocks(series, tmp_path / "data", end_ms, hours)
    assert samples == 3 * hours * (4 * 240 + 30)
    with PrometheusServer(tmp_path, "global: {}\n", retention="100y") as server:
        for name, (values, interval_ms) in _SHAPES.items():
            for copy in ("a", "ä"):
                expression = f'{name}{{copy="{copy}"}}[{hours}h]'
                answer = server.get("/api/v1/query", query=expression, time=str(end_ms / 1000)).json()
                (found,) = answer["data"]["result"]
                assert [float(value) for _, value in found["values"]] == values * (hours // 2)
                stamps = [round(1000 * stamp) for stamp, _ in found["values"]]
                assert stamps == list(range(end_ms - hours * 3_600_000, end_ms, interval_ms))


def test_more_hours_than_blocks_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="28 hours are more than 26"):
        write_blocks([Series((("__name__", "x"),), Shape([1.0] * 480, 15_000))], tmp_path, end_before(_MS), 28)
