"""A recorded page as it would look in a later round of the same load: counters go on where the last round ended.

Pure text in, text out. Gauges, `_created` times and the process start time stay as recorded, so that a reader sees one
server that never restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal

from prometheus_client.utils import floatToGoString

from llm_serving_exporter.model.record import Struct

_COUNTED_TYPES = frozenset({"counter", "histogram", "summary"})

# Floats on a page have up to 17 digits and differ by up to 20 powers of ten: sums at this precision are exact, so that
# the last page of a round and the first of the next one agree to the last digit.
# No traps: infinity minus infinity is NaN, which then counts as no difference.
_EXACT = Context(prec=60, traps=[])


class Line(Struct, frozen=True):
    """One sample as text."""

    series: str  # name and labels as written
    value: str  # as written
    counts: bool  # whether it is a counter's, which goes on from round to round


def sample_lines(page: bytes) -> list[str | Line]:
    """Every line of a page in order: samples as `Line`, comments and empty lines as they are.

    A sample counts when the TYPE line above it says counter, histogram or summary and it is neither a quantile nor a
    `_created` time. Timestamps behind values are not expected.
    """
    lines: list[str | Line] = []
    family = kind = ""
    for text in page.decode().split("\n"):
        if text.startswith("# TYPE "):
            _, _, family, kind = text.split(" ", 3)
        if not text or text.startswith("#"):
            lines.append(text)
            continue
        series, _, value = text.rpartition(" ")
        name = series.partition("{")[0]
        quantile = kind == "summary" and name == family
        counts = kind in _COUNTED_TYPES and name.startswith(family) and not quantile and not name.endswith("_created")
        lines.append(Line(series, value, counts))
    return lines


class Carry:
    """What one round of a recording adds to each counter, and any page of it in any round.

    Built from the first and the last page. Raises ValueError where a counter of the first page is missing from the
    last or higher than there: the server restarted in between, so its rounds cannot be joined.
    """

    def __init__(self, first: bytes, last: bytes) -> None:
        before = _samples(first)
        self._template = sample_lines(last)
        self._added: dict[str, Decimal] = {}
        for line in self._template:
            if isinstance(line, Line) and line.counts:
                start = before.pop(line.series, None)
                self._added[line.series] = _difference(line.value, start.value if start else "0.0")
        fallen = [series for series, added in self._added.items() if added < 0]
        fallen += [series for series, line in before.items() if line.counts]
        if fallen:
            raise ValueError(f"{len(fallen)} counters fall or vanish between first and last page, {fallen[0]} is one")

    @property
    def added(self) -> Mapping[str, Decimal]:
        """What one round adds, by series as written on the page."""
        return self._added

    def page(self, recorded: bytes, round_number: int) -> bytes:
        """The page `recorded` as it looks in round 0, 1, 2 …; round 0 is the recording itself.

        From round 1 on the page has the series of the recording's last page: a counter that was born in an earlier
        round is still there. A gauge that the recorded page lacks is left out, save `_created` times.
        """
        if round_number == 0:
            return recorded
        now = _samples(recorded)
        lines = []
        for line in self._template:
            if isinstance(line, str):
                lines.append(line)
                continue
            seen = now.get(line.series)
            if line.counts:
                recorded_value = seen.value if seen else "0.0"
                lines.append(f"{line.series} {self._carried(line.series, recorded_value, round_number)}")
            elif seen is not None or line.series.partition("{")[0].endswith("_created"):
                lines.append(f"{line.series} {(seen or line).value}")
        return "\n".join(lines).encode()

    def _carried(self, series: str, value: str, round_number: int) -> str:
        added = self._added[series]
        if added.is_zero():
            return value
        total = _EXACT.add(Decimal(value), _EXACT.multiply(added, Decimal(round_number)))
        return str(floatToGoString(float(total)))  # type: ignore[no-untyped-call]  # the library leaves it untyped


def _samples(page: bytes) -> dict[str, Line]:
    return {line.series: line for line in sample_lines(page) if isinstance(line, Line)}


def _difference(later: str, earlier: str) -> Decimal:
    difference = _EXACT.subtract(Decimal(later), Decimal(earlier))
    return difference if difference.is_finite() else Decimal(0)
