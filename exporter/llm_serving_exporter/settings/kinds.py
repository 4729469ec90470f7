"""Kinds of values: one parser from text for each, used alike for flags, environment variables and the file. Durations and URLs too."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from math import nan
from typing import Generic, TypeVar
from urllib.parse import SplitResult, urlsplit

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import is_own_host
from llm_serving_exporter.model.text import has_control_characters
from llm_serving_exporter.settings.problems import InvalidValueError, Place, did_you_mean, listed, shown

# Prometheus' model.ParseDuration: every unit at most once, largest first; a year has 365 days.
_UNIT_MILLISECONDS = {
    "y": 31_536_000_000,
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Zµ]+)")
LONGEST_SECONDS = 2**63 / 1e9  # Prometheus' own limit: an int64 of nanoseconds
_LONGEST_TEXT = 64
# durations are added up as whole numbers of so small a part of a millisecond that no text has a smaller one: `fractions` takes 0.5 MB
_PARTS = 10**_LONGEST_TEXT
_UNITS_SENTENCE = "Use y, w, d, h, m, s or ms, as in 500ms, 5s or 1m30s."


def parse_duration(text: str) -> float:
    """Seconds of "500ms", "5s", "1m30s", "1h", "1d", "1w", "1y" or "0".

    Like Prometheus: units once each, largest first, no spaces, no sign. Beyond Prometheus, seconds may have a fraction
    ("2.5s"), because latency thresholds are written so. Raises `InvalidValueError` (a ValueError).
    """
    if text == "0":
        return 0.0
    if not text:
        raise InvalidValueError("the duration is empty", "Write one such as 5s.")
    if text.startswith("-"):
        raise InvalidValueError(f"the duration {shown(text)} is negative", "Write one such as 5s.")
    if any(character.isspace() for character in text):
        raise InvalidValueError(f"the duration {shown(text)} has a space in it", "Write it in one word, as in 1m30s.")
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        written = text if len(text) <= _LONGEST_TEXT else "5"
        fix = f"Write {written}s for seconds" + ("" if "." in written else f", {written}ms for milliseconds")
        raise InvalidValueError(f"the duration {shown(text)} has no unit", f"{fix}.")
    total = 0
    position = 0
    order = list(_UNIT_MILLISECONDS)
    for part in _PART.finditer(text[:_LONGEST_TEXT]):
        number, unit = part.groups()
        if part.start() != position or unit not in _UNIT_MILLISECONDS:
            break
        if unit not in order:
            raise InvalidValueError(
                f"the duration {shown(text)} has a unit twice, or its units out of order",
                "Write each unit once, the largest first, as in 1h30m.",
            )
        if "." in number and unit != "s":
            raise InvalidValueError(
                f"the duration {shown(text)} has a fraction of {unit}",
                "Only seconds may have a fraction; write 1h30m for an hour and a half.",
            )
        order = order[order.index(unit) + 1 :]
        whole, _, fraction = number.partition(".")
        total += int(whole + fraction) * _UNIT_MILLISECONDS[unit] * _PARTS // 10 ** len(fraction)
        position = part.end()
    if position != len(text):
        raise InvalidValueError(f"{shown(text)} is not a duration", _UNITS_SENTENCE)
    seconds: float = total / (1000 * _PARTS)  # of whole numbers: rounded once, to the nearest
    if seconds > LONGEST_SECONDS:
        raise InvalidValueError(f"the duration {shown(text)} is too long", "The longest is 292y.")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back as `seconds` (to the millisecond), as messages show it."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0"
    if milliseconds > 1000 and milliseconds % 1000 and milliseconds < 60_000:
        return f"{milliseconds / 1000:g}s"
    parts = []
    for unit, size_milliseconds in _UNIT_MILLISECONDS.items():
        if unit in ("y", "w") and milliseconds % size_milliseconds:
            continue
        count, milliseconds = divmod(milliseconds, size_milliseconds)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


# --- kinds -------------------------------------------------------------------------------------------------------------

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_SIZE_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
SHORTEST_INTERVAL_SECONDS = 0.1  # below that, sampling would be a busy loop


class Kind(Struct, Generic[T], frozen=True):
    """A kind of value, with its bounds."""

    expects: str  # completes "must be …"
    parse: Callable[[str], T]  # raises `InvalidValueError`
    is_text: bool = False  # free text: in YAML an unquoted `on`, `no` or `123` is refused rather than guessed

    def read(self, text: str, place: Place) -> T | None:
        """The value of a text; None where it is not usable, which is then reported."""
        try:
            return self.parse(text)
        except InvalidValueError as error:
            place.refuse(error.what, error.fix)
            return None


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise InvalidValueError(f"{shown(text)} is neither true nor false", "Write true or false.")


def _interval(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < SHORTEST_INTERVAL_SECONDS:
        shortest = format_duration(SHORTEST_INTERVAL_SECONDS)
        raise InvalidValueError(f"{shown(text)} is shorter than {shortest}", f"Write {shortest} or more.")
    return seconds


def _positive_duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise InvalidValueError(f"{shown(text)} is not longer than 0", "Write a duration such as 4s.")
    return seconds


OFF = 0.0
# "off" is a boolean to YAML, so that a template engine may turn it into "false"
_OFF_WORDS = frozenset({"off", "false", "no"})


def _threshold(text: str) -> float:
    if text.lower() in _OFF_WORDS:
        return OFF
    try:
        return _positive_duration(text)
    except InvalidValueError as error:
        raise InvalidValueError(error.what, f"{error.fix} To count no events for this SLO write off.") from None


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15}) ?([a-zA-Z]*)", text)
    if match is None or match[2] not in _SIZE_UNITS:
        raise InvalidValueError(
            f"{shown(text)} is not a size", "Write bytes, or a size such as 16MiB (2^20) or 16MB (10^6)."
        )
    size = int(match[1]) * _SIZE_UNITS[match[2]]
    if not 2**10 <= size <= 2**30:
        raise InvalidValueError(f"the size {shown(text)} is out of range", "Write a size from 1KiB to 1GiB.")
    return size


def integer(lowest: int, highest: int) -> Kind[int]:
    """A whole number within bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise InvalidValueError(f"{shown(text)} is not a whole number", f"Write one from {lowest} to {highest}.")
        if not lowest <= int(text) <= highest:
            raise InvalidValueError(f"{text} is out of range", f"Write a whole number from {lowest} to {highest}.")
        return int(text)

    return Kind(f"a whole number from {lowest} to {highest}", parse)


def parse_number(text: str) -> float:
    """The number that a text is; NaN, which is within no bounds, for any other."""
    try:
        return float(text)
    except ValueError:
        return nan


def decimal(what: str, above: float, most: float) -> Kind[float]:
    """A number above one bound, up to another. `what` names it with both: "a share above 0, up to 1"."""

    def parse(text: str) -> float:
        number = parse_number(text)
        if not above < number <= most:
            raise InvalidValueError(f"{shown(text)} is not {what}", f"Write {what}.")
        return number

    return Kind(what, parse)


def _share_below_one(text: str) -> float:
    share = parse_number(text)
    if not 0 < share < 1:
        raise InvalidValueError(f"{shown(text)} is not a share between 0 and 1", "Write 0.99 for 99 %.")
    return share


def choice(what: str, options: Collection[str]) -> Kind[str]:
    """One of a few words. `what` names the kind: "role"."""

    def parse(text: str) -> str:
        if text in options:
            return text
        near = did_you_mean(text, options) if len(options) > 4 else f"Write {listed(options)}."
        raise InvalidValueError(f"{shown(text)} is not a {what}", near)

    return Kind(f"a {what}: {listed(options)}", parse)


def member(what: str, members: Iterable[E]) -> Kind[E]:
    """One of the words of an enumeration, or of some of its members, as the member. `what` names the kind: "role"."""
    by_word = {each.value: each for each in members}
    word = choice(what, by_word)
    return Kind(word.expects, lambda text: by_word[word.parse(text)])


def matching(what: str, pattern: str, fix: str) -> Kind[str]:
    """Text that a regular expression fits as a whole. `what` names it: "the name of a label"."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise InvalidValueError(f"{shown(text)} is not {what}", fix)
        return text

    return Kind(what, parse, is_text=True)


def text(what: str, longest: int = 200) -> Kind[str]:
    """Free text that ends up in a label: not empty, bounded, without control characters."""

    def parse(value: str) -> str:
        if not value.strip():
            raise InvalidValueError(f"the {what} is empty", f"Write a {what} or remove the line.")
        if len(value) > longest:
            raise InvalidValueError(f"the {what} has {len(value)} characters", f"At most {longest} are allowed.")
        if has_control_characters(value):
            raise InvalidValueError(f"the {what} contains a control character", "Remove it; it may be a line break.")
        return value

    return Kind(f"a {what}", parse, is_text=True)


def _path(value: str) -> str:
    if not value.strip() or has_control_characters(value):
        raise InvalidValueError("this is not a path", "Write the path of a file, in one line.")
    return value


AUTO_WORD, OFF_WORD = "auto", "off"  # what a socket may be beside a path
_SOCKET_PATH_BYTES_MAX = 107  # sun_path in sys/un.h, less its end


def _socket(value: str) -> str:
    word = value.strip().lower()
    if word == AUTO_WORD:
        return AUTO_WORD
    if word in _OFF_WORDS:
        return OFF_WORD
    path = _path(value)
    if not path.startswith("/") or len(path.encode()) > _SOCKET_PATH_BYTES_MAX:
        raise InvalidValueError(
            f"{shown(value)} is not the path of a socket",
            f"Write auto, off, or a path from the root of at most {_SOCKET_PATH_BYTES_MAX} bytes.",
        )
    return path


def _listen_address(value: str) -> str:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%a-z]+\]|[^\s:/\[\]@]*):([0-9]{1,5})", value)
    if match is None or int(match[2]) > 65535:
        raise InvalidValueError(
            f"{shown(value)} is not an address to listen on",
            "Write host:port, or :port for every interface, as in :10077 or [::1]:10077.",
        )
    return value


def _url_path(value: str) -> str:
    if not re.fullmatch(r"/[!$&'()*+,\-./0-9:;=@A-Z_a-z~%]*", value) or "//" in value:
        raise InvalidValueError(f"{shown(value)} is not a URL path", "Write one that starts with /, as in /metrics.")
    if any(part in (".", "..") for part in value.lower().replace("%2e", ".").split("/")):
        raise InvalidValueError(
            f"{shown(value)} goes up or nowhere", "Write the path as it is, without . and .. in it."
        )
    return value


def _metrics_path(value: str) -> str:
    """A path, and a query where one server has a page for each of its models."""
    path, mark, query = value.partition("?")
    _url_path(path)
    if not mark:
        return path
    if not re.fullmatch(r"[!$&'()*+,\-./0-9:;=?@A-Z_a-z~%]+", query):
        raise InvalidValueError(f"{shown(value)} has no usable query", "Write one as in /metrics?model=NAME.")
    names = {part.partition("=")[0] for part in query.split("&")}
    # a router of llama.cpp loads the model that a request names; other servers ignore what they do not know
    no_load = "" if "model" not in names or "autoload" in names else "&autoload=false"
    return f"{path}?{query}{no_load}"


def _telemetry_path(value: str) -> str:
    path = _url_path(value)
    if path == "/" or path.startswith(("/-/", "/debug/")) or path.rstrip("/") in ("/-", "/debug"):
        raise InvalidValueError(
            f"{shown(value)} is a page of the exporter itself (/, /-/… and /debug/…)",
            "Choose another path, as in /metrics.",
        )
    return path


BOOLEAN = Kind("true or false", _boolean)
INTERVAL = Kind("a duration such as 5s", _interval)
DURATION = Kind("a duration such as 30s", _positive_duration)
THRESHOLD = Kind("a duration such as 2.5s, or off", _threshold)
SIZE = Kind("a size such as 16MiB", _size)
PATH = Kind("a path", _path, is_text=True)
SOCKET = Kind("auto, off, or the path of a socket", _socket)
LISTEN_ADDRESS = Kind("an address such as :10077", _listen_address, is_text=True)
URL_PATH = Kind("a path such as /metrics", _url_path, is_text=True)
METRICS_PATH = Kind("a path such as /metrics, with or without a query", _metrics_path, is_text=True)
TELEMETRY_PATH = Kind("a path such as /metrics", _telemetry_path, is_text=True)
MAX_SERIES = integer(100, 10_000_000)
SHARE = decimal("a share above 0, up to 1", 0.0, 1.0)
USD = decimal("USD above 0, up to 1e12", 0.0, 1e12)
OBJECTIVE = Kind("a share such as 0.99", _share_below_one)


# --- URLs --------------------------------------------------------------------------------------------------------------

_DEFAULT_PORTS = {"http": 80, "https": 443}
# host names as resolvers take them: letters, digits, hyphens, dots, and the underscore of container networks
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_URL_EXAMPLE = "Write one such as http://localhost:8000."


class ServerAddress(Struct, frozen=True):
    """Where a server listens."""

    scheme: str
    host: str  # lower case, without brackets
    port: int  # the scheme's own where the URL has none
    path: str | None  # of the URL, None where it has none

    @property
    def url(self) -> str:
        """`http://host:8000`: the port always stands, IPv6 in brackets."""
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}"

    def is_local(self, host_name: str) -> bool:
        """Whether the server runs on the exporter's own host, whose name is `host_name`."""
        return is_own_host(self.host, host_name)

    def name(self, host_name: str) -> str:
        """host:port, with the own host name for a local server: two sidecars never share an identity."""
        host = host_name if self.is_local(host_name) else self.host
        return f"{_bracketed(host)}:{self.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_url(
    text: str, secrets: str = "set auth: {basic: {username: …, password_file: …}} for the target in the file"
) -> ServerAddress:
    """The address that a URL names; `host:port` alone means http. `secrets`: where a user name and a password belong.

    Raises `InvalidValueError`. Its message never shows a URL that may hold a secret (credentials, query).
    """
    url = text.strip()
    if "@" in url:
        raise InvalidValueError(
            "the URL holds a user name or password",
            f"Remove it and {secrets}.",
        )
    if "?" in url or "#" in url:
        raise InvalidValueError(
            "the URL holds a query (?) or a fragment (#)",
            "Remove it; a token belongs in auth: {bearer_token_file: …} or headers.",
        )
    # of all that is white space only this one counts as printable
    if not url or " " in url or not url.isprintable():
        raise InvalidValueError(f"{shown(text)} is not a URL", _URL_EXAMPLE)
    scheme, separator, _ = url.partition("://")
    if not separator:
        url = f"http://{url}"
    elif scheme.lower() not in _DEFAULT_PORTS:
        raise InvalidValueError(f"{shown(text)} has the scheme {shown(scheme)}", "Only http and https can be read.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidValueError(f"{shown(text)} has no valid host and port", _URL_EXAMPLE) from None
    if port == 0:
        raise InvalidValueError(f"{shown(text)} has the port 0", _URL_EXAMPLE)
    if port is None:
        if not separator or parts.netloc.endswith(":"):
            raise InvalidValueError(f"{shown(text)} names no port", _URL_EXAMPLE)
        port = _DEFAULT_PORTS[parts.scheme]
    host = _host_of(parts, text)
    path = URL_PATH.parse(parts.path) if parts.path not in ("", "/") else None
    return ServerAddress(parts.scheme, host, port, path)


URL = Kind("a URL such as http://localhost:9400", parse_url, is_text=True)


def _host_of(parts: SplitResult, text: str) -> str:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            what = f"{shown(text)} holds no valid IPv6 address in its brackets"
            raise InvalidValueError(what, _URL_EXAMPLE) from None
    if not _HOST.fullmatch(host):
        raise InvalidValueError(f"{shown(text)} names no valid host", _URL_EXAMPLE)
    return host
