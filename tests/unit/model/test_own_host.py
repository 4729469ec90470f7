from __future__ import annotations

from llm_serving_exporter.model.target import encode_host
from tests.support.rows import check_rows


@check_rows(
    "host",
    [
        "a",
        "a.b",
        "a.b.",
        "a..b",
        ".a",
        "a.",
        "a..",
        ".",
        "",
        "x" * 63,
        "x" * 64,
        f"{'x' * 63}.{'y' * 64}",
        "::1",
        "fe80::1%eth0",
        "127.0.0.1",
        "a_b-c",
    ],
)
def test_a_host_that_is_encoded_is_what_pythons_codec_makes_of_it(host: str) -> None:
    try:
        expected: bytes | str = host.encode("idna")
    except UnicodeError:
        expected = host
    assert encode_host(host) in (expected, host)
    assert (encode_host(host) == host) == (expected == host or not host)
