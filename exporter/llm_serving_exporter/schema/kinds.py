"""Kinds of values: one parser from text for each, used alike for flags, environment variables and the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from enum import Enum
from math import nan
from typing import Generic, TypeVar

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import has_control_characters
from llm_serving_exporter.schema.duration import format_duration, parse_duration
from llm_serving_exporter.schema.problems import InvalidValueError, did_you_mean, listed, shown

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_SIZE_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
# below that, sampling would be a busy loop
SHORTEST_INTERVAL_SECONDS = 0.1


class Kind(Struct, Generic[T], frozen=True):
    """A kind of value, with its bounds."""

    # completes "must be …"
    expects: str
    # raises `InvalidValueError`
    parse: Callable[[str], T]
    # free text: in YAML an unquoted `on`, `no` or `123` is refused rather than guessed
    is_text: bool = False


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


def decimal(what: str, above: float, most: float) -> Kind[float]:
    """A number above one bound, up to another. `what` names it with both: "a share above 0, up to 1"."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = nan
        if not above < number <= most:
            raise InvalidValueError(f"{shown(text)} is not {what}", f"Write {what}.")
        return number

    return Kind(what, parse)


def _share_below_one(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = nan
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


def member(what: str, words: type[E]) -> Kind[E]:
    """One of the words of an enumeration, as its member. `what` names the kind: "role"."""
    one = choice(what, tuple(word.value for word in words))
    return Kind(one.expects, lambda text: words(one.parse(text)))


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


# what a socket may be beside a path
AUTO_WORD, OFF_WORD = "auto", "off"
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
    kept = "" if "model" not in names or "autoload" in names else "&autoload=false"
    return f"{path}?{query}{kept}"


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
