"""Where a target is: its base URL in parts, safe request paths, and redirects that stay on the same server."""

from __future__ import annotations

import re
from urllib.parse import quote, urljoin, urlsplit

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.fetch.waits import ScrapeError, quote_first_line
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import FailureReason

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[^\s\x00-\x20\x7f/?#@]+")
# Everything RFC 3986 allows in a path and query, and "%" so that what is encoded stays so.
_SAFE = "/%?&=:@!$'()*+,;[]~-._"


class Address(Struct, frozen=True):
    """Where a server listens."""

    scheme: str  # "http" or "https"
    host: str  # without brackets; an IPv6 zone stays in it, for the connection only
    port: int  # the scheme's own where the URL has none

    @property
    def authority(self) -> str:
        """host:port for a person, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The Host header's value: ASCII, without an IPv6 zone (RFC 6874, 4), without a default port."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_base_url(url: str) -> Address:
    """scheme://host[:port], http or https. Raises ConfigError for anything else; a password in it is never repeated."""
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").replace("%25", "%")
        if parts.scheme not in _PORTS:
            raise _url_error("it begins with neither http:// nor https://")
        if parts.username is not None or parts.password is not None:
            raise _url_error("it holds credentials; those belong in basic_username and basic_password")
        if not _HOST.fullmatch(host):
            raise _url_error("it has no usable host name")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise _url_error("it has text after host and port; a path belongs in metrics_path")
        address = Address(parts.scheme, host, _PORTS[parts.scheme] if port is None else port)
        _ = address.host_header
    except UnicodeError as error:
        raise _url_error("its host is no name that can be asked for (IDNA forbids it)") from error
    except ValueError as error:  # a port that is no number, brackets that do not close
        raise _url_error(quote_first_line(str(error)) or "it is not a URL") from error
    return address


def _url_error(what: str) -> ConfigError:
    return ConfigError(Problem("target", "url", what, "Write it as http://host:port or https://host:port."))


def encode_request_target(path: str) -> str:
    """A path and query that can stand in a request line: blanks, control and non-ASCII characters percent-encoded."""
    return quote(path if path.startswith("/") else f"/{path}", safe=_SAFE)


def resolve_redirect(address: Address, current: str, location: str | None, shown: str, status: int) -> str:
    """Where a redirect leads, as a request target on the same scheme, host and port.

    `shown` is the location as it may stand in a message. Raises ScrapeError (REDIRECT) for any other place: the request
    and its credentials stay with the configured host.
    """
    if not location:
        raise ScrapeError(FailureReason.REDIRECT, "the server redirects without saying where to", status)
    try:
        parts = urlsplit(urljoin(f"{address.scheme}://{_bracket_ipv6(address.host)}:{address.port}{current}", location))
        port = parts.port
    except ValueError:
        raise ScrapeError(FailureReason.REDIRECT, "the server redirects to something that is no URL", status) from None
    host = (parts.hostname or "").replace("%25", "%")
    scheme_port = _PORTS.get(parts.scheme)
    if (parts.scheme, host, scheme_port if port is None else port) != (address.scheme, address.host, address.port):
        detail = f"the server redirects to {shown}, which is not followed; set the target's url to where it is"
        raise ScrapeError(FailureReason.REDIRECT, detail, status)
    return encode_request_target(parts.path + (f"?{parts.query}" if parts.query else ""))


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host
