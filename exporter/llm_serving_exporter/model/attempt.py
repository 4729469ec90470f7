"""Health of one attempt, apart from its data: an attempt that failed publishes no data, only this."""

from __future__ import annotations

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
    UNREACHABLE = (
        "unreachable"  # no route, network down, reset while connecting, or nothing took the connection in time
    )
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
    # parse
    MALFORMED = "malformed_page"
    TRUNCATED = "truncated_page"  # the page does not end in a newline
    TOO_MANY_SERIES = "too_many_series"
    # normalise
    UNKNOWN_RUNTIME = "unknown_runtime"
    NOT_AN_ENGINE = "not_an_engine"  # a router's or gateway's page
    SEVERAL_SERVERS = "several_servers"  # one address, several replicas in turn
    PAGE_FAILS = "page_fails"  # the page alone cannot be had: at its health path the server says that it is well
    # gpu
    NO_LIBRARY = "nvml_library_missing"
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
    # a fault of ours: counted and logged, never fatal
    INTERNAL = "internal_error"


class Attempt(Struct, frozen=True):
    """Outcome of one attempt to read a target, the GPUs, dcgm-exporter or the kubelet."""

    stage: Stage  # where it ended, well or not
    reason: FailureReason | None  # None: it went well
    detail: str  # a sentence for a person, without secrets; "" where it went well
    at_unix_seconds: float  # when it ended
    duration_seconds: float  # of all the stages that it reached
    status: int | None = None  # the HTTP status; None: no answer came, or the attempt is not over HTTP
    page_bytes: int | None = None  # size of the page after decompression; None: no page came

    @property
    def ok(self) -> bool:
        """Whether the attempt yielded data."""
        return self.reason is None
