"""Series as lines of text: the samples of one name that share labels, and the families that they make up.

A page has hundreds of samples a target. An object for each of them costs more than its text, so that none is made unless somebody asks.
Until a page is put together, its lines are a template with places for the numbers: the digits of all numbers are made in one call, as
one by one they took half of a page's time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import orjson
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from llm_serving_exporter.catalogue.spec import Kind, Metric
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.expose.spool import PART_BYTES, Spool
from llm_serving_exporter.model.text import escape_label_value

# the place of a number in a template
NUMBER = "%s"
_NOT_FINITE = b"null"
# of a number in a list, until its digits are made
_FLOAT_BYTES = 32
# from here on the client library writes numbers otherwise than Python
_PLAIN_BELOW = 1e6
# for the text before the first label of a sample's own, and after each of them
_MARKS = tuple(map(chr, range(1, 9)))
_FIRST_MARK, _SECOND_MARK = _MARKS[:2]
_NO_MARKS = dict.fromkeys(range(1, 9), "\N{REPLACEMENT CHARACTER}")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")

Keys = Sequence[tuple[str, ...]]


class LineFamily(Family):
    """A family of lines; to the client library's functions one like its own."""

    unit = ""
    # how many of its lines were counted, and the characters of them
    _counted = _size = 0

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        # templates of whole lines, behind those of `spool`, and the numbers for their places
        self.lines: list[str] = []
        self.numbers: list[float] = []
        # None: nothing of it was compressed yet
        self.spool: Spool | None = None

    def spool_lines(self) -> None:
        """Compresses the lines where they are enough for a part."""
        self._size += sum(map(len, self.lines[self._counted :]))
        self._counted = len(self.lines)
        if self._size + _FLOAT_BYTES * len(self.numbers) >= PART_BYTES:
            if self.spool is None:
                self.spool = Spool()
            self.spool.add_parts(fill_in("".join(self.lines), self.numbers))
            self.lines.clear()
            self.numbers.clear()
            self._counted = self._size = 0

    def under_former_name(self, former: Metric) -> LineFamily:
        """The same samples under the name that the metric had: a line begins with its name, and has no line break in it."""
        new, old, found = f"\n{self.metric.full_name}", f"\n{former.full_name}", LineFamily(former)
        if self.spool is not None:
            found.spool, rest = Spool(), b"\n"
            for part in self.spool.read():
                # the last line may go on in the next part, and so may its name
                text, _, begun = (rest + part).rpartition(b"\n")
                found.spool.add((text + b"\n").replace(new.encode(), old.encode())[1:])
                rest = b"\n" + begun
        found.lines = [f"\n{piece}".replace(new, old)[1:] for piece in self.lines]
        found.numbers = list(self.numbers)
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
        return text + fill_in("".join(self.lines), self.numbers)


def fill_in(template: str, numbers: Sequence[float]) -> str:
    """Text with a number in each of its places: the shortest that is read as the same number. "%%" in a template is a "%"."""
    if not numbers:
        return template.replace("%%", "%")
    digits = orjson.dumps(numbers)
    if _NOT_FINITE in digits:  # JSON has neither NaN nor infinities
        return template % tuple(map(write_number, numbers))
    return template % tuple(digits[1:-1].decode().split(","))


def write_number(value: float) -> str:
    """A number as the client library writes it."""
    if -_PLAIN_BELOW < value < _PLAIN_BELOW:  # neither NaN nor an infinity
        return repr(value)
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # the library leaves it unannotated
    return text


def write_lines(name: str, shared: SharedLabels, own: tuple[str, ...], keys: Keys) -> str:
    """The template of the lines of samples of one name, each with its newline, and a place for its number.

    `name`: on the wire, with its suffix. `shared`: labels that all of them have. `own`: names of the labels that each has beside them.
    `keys`: for each sample the values of `own`.
    """
    texts, order = shared.pieces.get(own) or shared.cut(own)
    lines = _lay_out(order, tuple(keys)).replace(_FIRST_MARK, name + texts[0])
    if len(texts) == 2:  # as most have, and half of this would be the loop
        return lines.replace(_SECOND_MARK, texts[1])
    for mark, text in zip(_MARKS[1:], texts[1:], strict=False):
        lines = lines.replace(mark, text)
    return lines


@lru_cache(maxsize=512)
def _lay_out(order: tuple[int, ...], keys: tuple[tuple[str, ...], ...]) -> str:
    """Lines with marks for what their target makes different, and a place for the number: the same for all targets and all pages.

    `order`: as of `Pieces`.
    """
    lines = []
    for key in keys:
        values = [_clean(escape_label_value(key[place])) for place in order]
        between = [f"{value}{mark}" for value, mark in zip(values, _MARKS[1:], strict=False)]
        lines.append("".join((_MARKS[0], *between, NUMBER, "\n")))
    return "".join(lines)


def _clean(text: str) -> str:
    """A label's value in a layout; marks are control characters, which no value has that was cleaned."""
    return text.translate(_NO_MARKS).replace("%", "%%")


def _read_line(line: str) -> Sample:
    """A sample of a line as written here."""
    start, _, number = line.rpartition(" ")
    name, _, labels = start.partition("{")
    return Sample(name, {label: _unescape(text) for label, text in _LABEL.findall(labels)}, float(number))


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
