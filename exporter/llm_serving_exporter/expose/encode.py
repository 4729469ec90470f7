"""Families -> the text that Prometheus reads, as the client library writes it but for the digits of large and small numbers, several times
as fast.

The library checks the label names of every sample again and, for OpenMetrics, goes through each name letter by letter. Ours are checked
when the catalogue is made. What it is asked for (the Accept header) is still the library's to read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from llm_serving_exporter.catalogue.spec import Kind, Metric
from llm_serving_exporter.model.text import escape_label_value

# --- Text that is kept compressed until it is sent, so that a page of thousands of targets is never in memory as text.
#
# Text comes in parts, each compressed by itself: raw deflate that ends with a whole byte and is not final, as zlib's full flush leaves it.
# Parts may stand behind one another in any order and be read back one by one. A gzip member is a header, such parts, an empty final block
# and the CRC of all the text (RFC 1951, RFC 1952).


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
    product, square = _ONE, 0
    while count:
        if count & 1:
            product = _multiply(product, _square(square))
        square, count = square + 1, count >> 1
    return product


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


# --- Series as lines of text: the samples of one name that share labels, and the families that they make up.
#
# A page has hundreds of samples a target. An object for each of them costs more than its text, so that none is made unless somebody asks.


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
        renamed = LineFamily(former, [f"\n{piece}".replace(new, old)[1:] for piece in self.lines])
        if self.spool is not None:
            renamed.spool, rest = Spool(), b"\n"
            for part in self.spool.read():
                # the last line may go on in the next part, and so may its name
                text, _, begun = (rest + part).rpartition(b"\n")
                renamed.spool.add((text + b"\n").replace(new.encode(), old.encode())[1:])
                rest = b"\n" + begun
        return renamed

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


# --- The page


# a page of at most so many bytes goes out as it is: that of four targets
LARGEST_WHOLE = 256 * 1024
_OPENMETRICS = "application/openmetrics-text"
_WEIGHT = re.compile(r";\s*q=([01](?:\.\d{0,3})?)\s*(?:;|$)", re.IGNORECASE)
_SUFFIX = {"counter": "_total", "info": "_info"}
_TEXT_TYPES = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram", "unknown": "untyped"}


def write_page(registry: Collector, accept: str) -> tuple[bytes | Spool, str]:
    """The page and its content type, as the Accept header asks for. A large page is compressed part by part."""
    theirs, content_type = _choose_encoder(accept)
    families = list(registry.collect())
    if not all(type(family) is LineFamily or _plain(family) for family in families):
        return theirs(_Collected(families)), content_type
    write = _list_openmetrics if content_type.startswith(_OPENMETRICS) else _list_text
    return join_text(write(families), LARGEST_WHOLE), content_type


def encode(registry: Collector, accept: str) -> tuple[bytes, str]:
    """As `write_page`, all of it as bytes."""
    page, content_type = write_page(registry, accept)
    return page if isinstance(page, bytes) else b"".join(page.read()), content_type


@lru_cache(maxsize=64)
def _choose_encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(_leave_out_less_wanted(accept))
    except Exception:  # noqa: BLE001  # the library raises TypeError for a version such as 1.0/x; who asks like that gets what everybody reads
        return choose_encoder("")


def _leave_out_less_wanted(accept: str) -> str:
    """The header without OpenMetrics where plain text is wanted more, or OpenMetrics not at all (RFC 9110, 12.4.2): the library takes
    OpenMetrics wherever it stands, and reads no weights."""
    ranges = [media_range.strip() for media_range in accept.split(",")]
    of_openmetrics = [media_range for media_range in ranges if media_range.lower().startswith(_OPENMETRICS)]
    weight = max(map(_read_weight, of_openmetrics), default=0.0)
    others = [media_range for media_range in ranges if media_range not in of_openmetrics]
    plain = max(
        (_read_weight(media_range) for media_range in others if media_range.lower().startswith("text/plain")),
        default=0.0,
    )
    return accept if weight > 0 and weight >= plain else ",".join(others)


def _read_weight(media_range: str) -> float:
    """How much it is wanted, 0 to 1; 1 where that is not said, or not in numbers."""
    weight = _WEIGHT.search(media_range)
    return float(weight[1]) if weight else 1.0


def write_text(families: Iterable[Family]) -> bytes:
    """Prometheus' text format 0.0.4."""
    return _join(_list_text(families))


def write_openmetrics(families: Iterable[Family]) -> bytes:
    """OpenMetrics 1.0."""
    return _join(_list_openmetrics(families))


def _join(pieces: Iterable[str | Spool]) -> bytes:
    return b"".join([piece.encode() if isinstance(piece, str) else b"".join(piece.read()) for piece in pieces])


def _list_text(families: Iterable[Family]) -> list[str | Spool]:
    return _list_pieces(families, _text_header, _TEXT_HEADERS)


def _list_openmetrics(families: Iterable[Family]) -> list[str | Spool]:
    return [*_list_pieces(families, _openmetrics_header, _OPENMETRICS_HEADERS), "# EOF\n"]


def _list_pieces(
    families: Iterable[Family], write_header: Callable[[str, str, str], str], known: dict[Metric, str]
) -> list[str | Spool]:
    pieces = list[str | Spool]()
    for family in families:
        if isinstance(family, LineFamily):
            header = known.get(family.metric)
            if header is None:
                header = known[family.metric] = write_header(family.name, family.documentation, family.type)
            pieces.append(header)
            if family.spool is not None:
                pieces.append(family.spool)
            pieces += family.lines
        else:
            pieces.append(write_header(family.name, family.documentation, family.type))
            pieces += map(_line, family.samples)
    return pieces


@lru_cache(maxsize=1024)
def _text_header(family: str, documentation: str, kind: str) -> str:
    name = family + _SUFFIX.get(kind, "")
    return f"# HELP {name} {_help(documentation)}\n# TYPE {name} {_TEXT_TYPES.get(kind, kind)}\n"


@lru_cache(maxsize=1024)
def _openmetrics_header(family: str, documentation: str, kind: str) -> str:
    return f"# HELP {family} {escape_label_value(documentation)}\n# TYPE {family} {kind}\n"


# the catalogue's
_TEXT_HEADERS: dict[Metric, str] = {}
_OPENMETRICS_HEADERS: dict[Metric, str] = {}


class _Collected(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _plain(family: Family) -> bool:
    """Whether nothing in it needs more than a name, labels and a value."""
    return (
        not family.unit
        and family.type != "gaugehistogram"
        and all(
            sample.timestamp is None
            and sample.exemplar is None
            and sample.native_histogram is None
            and not sample.name.endswith("_created")
            for sample in family.samples
        )
    )


def _line(sample: Sample) -> str:
    text = ",".join([f'{name}="{escape_label_value(label)}"' for name, label in sorted(sample.labels.items())])
    value = write_number(float(sample.value))
    return f"{sample.name}{{{text}}} {value}\n" if text else f"{sample.name} {value}\n"


def _help(documentation: str) -> str:
    return documentation.replace("\\", r"\\").replace("\n", r"\n")
