"""`hosts`: which servers a list from elsewhere may name."""

from __future__ import annotations

import pytest

from llm_serving_exporter.settings.discovery import HOST_PATTERN, AllowedHosts
from llm_serving_exporter.settings.problems import InvalidValueError
from tests.support.rows import check_rows


def allows(*patterns: str, host: str) -> bool:
    return AllowedHosts(HOST_PATTERN.parse(pattern) for pattern in patterns).allow(host)


@check_rows(
    ("pattern", "host", "expected"),
    [
        ("gpu-1.example.com", "gpu-1.example.com", True),
        ("GPU-1.example.com.", "gpu-1.EXAMPLE.com", True),
        ("gpu-1.example.com", "gpu-1.example.com.", True),
        ("gpu-1.example.com", "x.gpu-1.example.com", False),
        ("gpu-1.example.com", "gpu-1.example.com.evil.org", False),
        ("*.example.com", "gpu-1.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("*.example.com", "10.0.0.7", False),
        ("*.0.7", "10.0.0.7", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "ten.example.com", False),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("fd00::/8", "fd00::7", True),
        ("fd00::/8", "fe80::7", False),
        ("[fd00::7]", "fd00::7", True),
        ("::ffff:10.0.0.0/104", "10.0.0.1", False),
        ("0.0.0.0/0", "169.254.169.254", True),
        ("0.0.0.0/0", "::1", False),
        ("localhost", "localhost", True),
        ("localhost", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.1", True),
    ],
)
def test_names_and_networks(pattern: str, host: str, expected: bool) -> None:
    assert allows(pattern, host=host) is expected


@check_rows("host", ["a.example.com", "10.0.0.7", "8.8.8.8", "fd00::7", "2001:db8::1"])
def test_a_star_allows_any_server(host: str) -> None:
    assert allows("*", host=host)


@check_rows(
    "host",
    [
        "localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "::1", "::ffff:127.0.0.1",
        "0.0.0.0", "0", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "255.255.255.255",
    ],
)  # fmt: skip
def test_a_star_does_not_allow_this_host_nor_its_link(host: str) -> None:
    assert not allows("*", host=host)
    assert not allows("*", "10.0.0.0/8", "*.example.com", host=host)


def test_what_is_special_is_allowed_where_it_is_named() -> None:
    assert allows("*", "127.0.0.0/8", host="127.0.0.1")
    assert allows("169.254.0.0/16", host="169.254.1.1")


@check_rows(
    ("pattern", "expected"),
    [
        ("10.0.0.7/8", '"10.0.0.7/8" is neither an address nor a network. Write 10.0.0.0/8.'),
        ("10.0.0.0/33", "is neither an address nor a network. Write a name"),
        ("fd00::7/8", "is neither an address nor a network. Write fd00::/8."),
        ("::ffff:10.0.0.7/104", "is neither an address nor a network. Write ::ffff:10.0.0.0/104."),
        ("http://gpu-1:8000", "is neither an address nor a network"),
        ("gpu-1:8000", "is not a host. Write the host alone, without scheme and port."),
        ("gpu-*.example.com", "is not a host"),
        ("*.*.example.com", "is not a host"),
        ("**", "is not a host"),
        ("*.", "is not a host"),
        ("", "is not a host"),
        ("a b", "is not a host"),
        ("gpü", "is not a host"),
        ("127.1", "is neither an address nor a network"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(pattern: str, expected: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        HOST_PATTERN.parse(pattern)
    assert expected in str(caught.value)
