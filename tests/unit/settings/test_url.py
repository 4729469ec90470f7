from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.settings.kinds import parse_url
from llm_serving_exporter.settings.problems import InvalidValueError
from tests.support.rows import check_rows


@check_rows(
    ("text", "url", "path"),
    [
        ("http://h:8000", "http://h:8000", None),
        ("http://h:8000/", "http://h:8000", None),
        ("http://h:8000/metrics", "http://h:8000", "/metrics"),
        ("HTTP://Host:8000", "http://host:8000", None),
        ("http://h", "http://h:80", None),
        ("https://h", "https://h:443", None),
        ("h:8000", "http://h:8000", None),
        ("localhost:8000/m", "http://localhost:8000", "/m"),
        ("http://10.0.0.1:1", "http://10.0.0.1:1", None),
        ("http://[::1]:8000", "http://[::1]:8000", None),
        ("http://[2001:DB8:0:0::1]", "http://[2001:db8::1]:80", None),
        (
            "http://vllm_server.default.svc.cluster.local.:8000",
            "http://vllm_server.default.svc.cluster.local.:8000",
            None,
        ),
        (" http://h:1 ", "http://h:1", None),
    ],
)
def test_normal_form(text: str, url: str, path: str | None) -> None:
    address = parse_url(text)
    assert (address.url, address.path) == (url, path)


@check_rows(
    "text",
    [
        "",
        "h",
        "http://",
        "http://:1",
        "ftp://h:1",
        "unix:///s",
        "http://h:0",
        "http://h:65536",
        "http://h:x",
        "http://h:",
        "http://[::1",
        "http://[h]:1",
        "http://[v1.a]:1",
        "http://h:1?a=b",
        "http://h:1#f",
        "http://u@h:1",
        "http://a b:1",
        "http://h\n:1",
        "http://h:1//m",
        "http://-h:1",
        "http://bücher:1",
        "http://h:1/a b",
        "�:1",
        "http://" + "h" * 300 + ":1",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_url(text)
    assert caught.value.fix.endswith(".")
    str(caught.value).encode()


@given(st.text(max_size=40) | st.from_regex(r"https?://[\[\]a-z0-9:.@/?#%]{0,20}", fullmatch=True))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_url(text)
    except InvalidValueError:
        return
    assert parse_url(address.url).url == address.url
    assert 1 <= address.port <= 65535


def test_a_password_is_never_shown() -> None:
    for text in ("http://user:hunter2@h:1", "ftp://user:hunter2@h", "http://h:1/?token=hunter2", "u:hunter2@h"):
        with pytest.raises(InvalidValueError) as caught:
            parse_url(text)
        assert "hunter2" not in str(caught.value)


@check_rows(
    ("text", "local"),
    [
        ("localhost:1", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", True),
        ("[::]:1", True),
        ("Pod-7:1", True),
        ("api.localhost:1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("10.0.0.1:1", False),
        ("pod-8:1", False),
        ("localhost.example.com:1", False),
    ],
)
def test_local_servers_have_the_own_host_name(text: str, local: bool) -> None:
    address = parse_url(text)
    assert address.is_local("pod-7") is local
    assert (address.name("pod-7") == "pod-7:1") is local


def test_a_remote_ipv6_name_keeps_its_brackets() -> None:
    assert parse_url("http://[2001:db8::1]:8000").name("pod-7") == "[2001:db8::1]:8000"
