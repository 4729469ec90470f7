"""Series as lines of text: the samples of one name that share labels, and the families that they make up.

A page has hundreds of samples a target. An object for each of them costs more than its text, so that none is made unless somebody asks.
"""

from __future__ import annotations

import re

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from llm_serving_exporter.catalogue.spec import Kind, Metric
from llm_serving_exporter.expose.spool import PART_BYTES, Spool

# from here on the client library writes numbers otherwise than Python
_PLAIN_BELOW = 1e6
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


class LineFamily(Family):
    """A family of lines; to the client library's functions one like its own."""

    unit = ""
    # how many of its lines were counted, and the characters of them
    _counted = _size = 0

    def __init__(self, metric: Metric, lines: list[str]) -> None:
        """`lines`: whole ones, each time one or many; they are taken out when they are compressed."""
        self.metric = metric
        # behind those of `spool`
        self.lines = lines
        # None: nothing of it was compressed yet
        self.spool: Spool | None = None

    def spool_lines(self) -> None:
        """Compresses the lines where they are enough for a part."""
        self._size += sum(map(len, self.lines[self._counted :]))
        self._counted = len(self.lines)
        if self._size >= PART_BYTES:
            if self.spool is None:
                self.spool = Spool()
            self.spool.add_parts("".join(self.lines))
            self.lines.clear()
            self._counted = self._size = 0

    def under_former_name(self, former: Metric) -> LineFamily:
        """The same samples under the name that the metric had: a line begins with its name, and has no line break in it."""
        new, old = f"\n{self.metric.full_name}", f"\n{former.full_name}"
        found = LineFamily(former, [f"\n{piece}".replace(new, old)[1:] for piece in self.lines])
        if self.spool is not None:
            found.spool, rest = Spool(), b"\n"
            for part in self.spool.read():
                # the last line may go on in the next part, and so may its name
                text, _, begun = (rest + part).rpartition(b"\n")
                found.spool.add((text + b"\n").replace(new.encode(), old.encode())[1:])
                rest = b"\n" + begun
        return found

    # --- for the client library --------------------------------------------------------------------------------------

    @property
    def name(self) -> str:  # type: ignore[override]  # an attribute there
        """Without the suffix of its kind."""
        kind = self.metric.kind
        return self.metric.full_name.removesuffix(
            "_total" if kind is Kind.COUNTER else "_info" if kind is Kind.INFO else ""
        )

    @property
    def documentation(self) -> str:  # type: ignore[override]  # an attribute there
        """The help text."""
        return self.metric.help

    @property
    def type(self) -> str:  # type: ignore[override]  # an attribute there
        """The kind in the client library's words."""
        return self.metric.kind.value

    @property
    def samples(self) -> list[Sample]:  # type: ignore[override]  # an attribute there
        """The samples as objects, read back from the lines each time."""
        return [_read_line(line) for line in self.read_text().split("\n")[:-1]]

    def read_text(self) -> str:
        """All its lines."""
        text = b"".join(self.spool.read()).decode() if self.spool is not None else ""
        return text + "".join(self.lines)


def write_number(value: float) -> str:
    """A number as the client library writes it."""
    if -_PLAIN_BELOW < value < _PLAIN_BELOW:  # neither NaN nor an infinity
        return repr(value)
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # the library leaves it unannotated
    return text


def _read_line(line: str) -> Sample:
    """A sample of a line as written here."""
    start, _, number = line.rpartition(" ")
    name, _, labels = start.partition("{")
    return Sample(name, {label: _unescape(text) for label, text in _LABEL.findall(labels)}, float(number))


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
