"""Base URLs: what is taken, what is refused, what is sent as Host."""

from __future__ import annotations

import pytest

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.fetch.address import encode_request_target, parse_base_url
from tests.support.rows import check_rows


@check_rows(
    ("url", "host", "port", "header", "authority"),
    [
        ("http://engine:8000", "engine", 8000, "engine:8000", "engine:8000"),
        ("http://engine", "engine", 80, "engine", "engine:80"),
        ("https://Engine/", "engine", 443, "engine", "engine:443"),
        ("https://engine:80", "engine", 80, "engine:80", "engine:80"),
        ("http://[::1]:8000", "::1", 8000, "[::1]:8000", "[::1]:8000"),
        ("http://[::1]", "::1", 80, "[::1]", "[::1]:80"),
        ("http://[fe80::1%25eth0]:8000", "fe80::1%eth0", 8000, "[fe80::1]:8000", "[fe80::1%eth0]:8000"),
        ("http://bücher.example:8000", "bücher.example", 8000, "xn--bcher-kva.example:8000", "bücher.example:8000"),
    ],
)
def test_base_url_is_taken_apart(url, host, port, header, authority):
    address = parse_base_url(url)
    assert (address.host, address.port, address.host_header, address.authority) == (host, port, header, authority)


@check_rows(
    "url",
    [
        "",
        "engine:8000",
        "ftp://engine",
        "unix:///run/engine.sock",
        "http://",
        "http://:8000",
        "http://engine:port",
        "http://engine:99999",
        "http://[::1",
        "http://en gine:8000",
        "http://engine\x00:8000",
        "http://engine:8000/metrics",
        "http://engine:8000?x=1",
        "http://" + "ü" * 64 + ".example",
    ],
)
def test_other_urls_are_a_config_error(url):
    with pytest.raises(ConfigError):
        parse_base_url(url)


def test_a_name_that_cannot_be_asked_for_is_refused_in_words_of_ours():
    """The library's differ from Python to Python."""
    for host in ("ü" * 64 + ".example", "xn--é", "\u0627a"):
        with pytest.raises(ConfigError, match="its host is no name that can be asked for"):
            parse_base_url(f"http://{host}")


def test_password_in_the_url_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        parse_base_url("http://sre:hunter22@engine:8000")
    assert "hunter22" not in str(caught.value)
    assert "basic_username" in str(caught.value)


@check_rows(
    ("path", "target"),
    [
        ("/metrics", "/metrics"),
        ("metrics", "/metrics"),
        ("/a%20b?name[]=x&y=%C3%BC", "/a%20b?name[]=x&y=%C3%BC"),
        ("/a b\r\n", "/a%20b%0D%0A"),
    ],
)
def test_request_targets_are_printable_ascii(path, target):
    assert encode_request_target(path) == target
