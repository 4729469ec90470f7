"""One attempt to read a page: how it ended, the answer, and the samples in it.

A page's layout (which series stand on which line) changes only when a series appears or a server restarts, so it is an
object of its own that consecutive pages share: what is computed from it once serves every page with that layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.record import Struct


class Stage(StrEnum):
    """Where an attempt ended."""

    SCRAPE = "scrape"
    PARSE = "parse"
    NORMALISE = "normalise"
    GPU = "gpu"


class FailureReason(StrEnum):
    """Every way an attempt can fail: the closed set of values of the label `reason` on failure counters."""

    # scrape
    DNS = "dns"  # the host name does not resolve
    REFUSED = "connection_refused"
    UNREACHABLE = "unreachable"  # no route, network down, reset while connecting, or nobody took it in time
    TIMEOUT = "timeout"  # the total deadline passed, wherever the exchange was from then on
    TLS = "tls"  # handshake or certificate
    SPEAKS_TLS = "speaks_tls"  # it is asked by plain HTTP
    CLOSED = "connection_closed"  # the server hung up before a complete answer
    PROTOCOL = "bad_http"  # not HTTP, or headers beyond the limits
    UNAUTHORIZED = "unauthorized"  # 401 or 403
    LOADING = "loading"  # 503 with a JSON body: the server itself says not yet
    STATUS = "http_status"  # any other status but 200
    REDIRECT = "redirect_refused"  # a redirect to another host, or too many
    CONTENT_TYPE = "content_type"  # 200 with HTML, JSON, protobuf …
    ENCODING = "bad_encoding"  # a compressed body that does not unpack, or an encoding not asked for
    TOO_LARGE = "body_too_large"  # beyond the cap, after decompression
    EMPTY = "empty_body"
    CREDENTIALS = "credentials_unreadable"  # a token, password or certificate file that cannot be read now
    MALFORMED = "malformed_page"  # parse
    TRUNCATED = "truncated_page"  # the page does not end in a newline
    TOO_MANY_SERIES = "too_many_series"
    UNKNOWN_RUNTIME = "unknown_runtime"  # normalise
    NOT_AN_ENGINE = "not_an_engine"  # a router's or gateway's page
    SEVERAL_SERVERS = "several_servers"  # one address, several replicas in turn
    PAGE_FAILS = "page_fails"  # the page alone cannot be had: at its health path the server says that it is well
    NO_LIBRARY = "nvml_library_missing"  # gpu
    NO_DRIVER = "driver_not_loaded"
    DRIVER_MISMATCH = "driver_library_mismatch"  # a driver upgrade without reload
    NO_PERMISSION = "no_permission"
    GPU_LOST = "gpu_lost"
    NVML = "nvml_error"
    # kubelet; it also refuses connections, is late, answers too much or denies permission
    NO_CLIENT = "client_not_installed"  # the extra with the gRPC client is missing
    NO_SOCKET = "socket_missing"
    UNIMPLEMENTED = "not_implemented"  # what answers does not know PodResources v1
    KUBELET = "kubelet_error"
    INTERNAL = "internal_error"  # a fault of ours: counted and logged, never fatal


class Attempt(Struct, frozen=True):
    """Outcome of one attempt to read a target, the GPUs, dcgm-exporter or the kubelet. One that failed publishes no data, only this."""

    stage: Stage  # where it ended, well or not
    reason: FailureReason | None  # None: it went well
    detail: str  # a sentence for a person, without secrets; "" where it went well
    at_unix_seconds: float  # when it ended
    duration_seconds: float  # of all the stages that it reached
    status: int | None = None  # the HTTP status; None: no answer came, or the attempt is not over HTTP
    page_bytes: int | None = None  # after decompression; None: no page came

    @property
    def ok(self) -> bool:
        """Whether the attempt yielded data."""
        return self.reason is None


class Page(Struct, frozen=True):
    """An answer with status 200 to a request for a metrics page."""

    body: bytes  # decompressed
    content_type: str  # header as the server sent it; "": it sent none
    received_unix_seconds: float  # when the last byte came, on the wall clock
    received_monotonic_seconds: float  # the same instant on a clock that never steps
    status: int = 200


class Refusal(Struct, frozen=True):
    """Why there is no page."""

    reason: FailureReason
    detail: str  # a sentence for a person, without secrets
    status: int | None  # the HTTP status; None: no answer came
    at_unix_seconds: float


class SeriesKey(Struct, frozen=True):
    """What identifies a sample on a page."""

    name: str  # as on the wire (`:` kept)
    labels: tuple[tuple[str, str], ...]  # (name, value) unescaped, sorted by name

    def label(self, name: str) -> str | None:
        """The label's value, or None where the series lacks it ("" is a value)."""
        for key, value in self.labels:
            if key == name:
                return value
        return None


class Layout(Struct, frozen=True, eq=False, weakref=True):
    """What a page consists of, without values. Compared by identity: the same object means the same layout.

    Targets whose pages are alike share one.
    """

    keys: tuple[SeriesKey, ...]  # the samples that were asked for, in page order, duplicates included
    types: Mapping[str, str]  # family -> type, of every TYPE line
    names: frozenset[str]  # every sample name on the page, asked for or not
    series_count: int  # samples on the page, asked for or not


class Samples(Struct, frozen=True, eq=False):
    """The values of one page."""

    layout: Layout  # shared with other pages of the same layout
    values: tuple[float, ...]  # one for each of `layout.keys`; NaN and infinities as the page has them
