"""Secrets in text: masked wherever they stand, and nothing else is."""

from __future__ import annotations

import json
from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st

from llm_serving_exporter.model.text import Masker, escape_label_value, hide_credentials, secrets_of_url
from tests.support.rows import check_rows

PLANTED = "pl4nted"


@check_rows(
    ("text", "shown"),
    [
        (f"http://me:{PLANTED}@host:9090/x", "http://***@host:9090/x"),
        (f"http://{PLANTED}@host", "http://***@host"),
        (f"HTTPS://me:{PLANTED}@[::1]:9", "HTTPS://***@[::1]:9"),
        (f"http://me:a@b{PLANTED}@host and http://x:{PLANTED}@y", "http://***@host and http://***@y"),
        (f"http://me:a/{PLANTED}@host", "http://***@host"),
        (f"http:/me:{PLANTED}@host/records.yml", "http:/***@host/records.yml"),
        (f'{{"url": "http://me:{PLANTED}@h/a", "b": 1}}', '{"url": "http://***@h/a", "b": 1}'),
        (f"http://h/sd?zone=a&token={PLANTED}&x=1", "http://h/sd?zone=a&token=***&x=1"),
        (f"https://h/x?api_key={PLANTED}", "https://h/x?api_key=***"),
        (f"https://h/x?X-Amz-Signature={PLANTED}", "https://h/x?X-Amz-Signature=***"),
        (f"curl -H 'Authorization: Bearer {PLANTED}' http://h", "curl -H 'Authorization: Bearer ***' http://h"),
        (f'{{"Authorization": "Basic {PLANTED}"}}', '{"Authorization": "Basic ***"}'),
        (f"Proxy-Authorization: {PLANTED}", "Proxy-Authorization: ***"),
        (rf"\"authorization\": \"{PLANTED}\"", r"\"authorization\": \"***\""),
    ],
)
def test_credentials_are_found_by_where_they_stand(text: str, shown: str) -> None:
    assert hide_credentials(text) == shown
    assert hide_credentials(shown) == shown


@check_rows(
    "text",
    [
        "http://host:9090/metrics?model=a&zone=b#c",
        "mail to ops@example.com about http://host:9090/x, or user@host:/path",
        '{"a":"http://a:8000","mail":"x@y"}',
        "image registry.example.com/x@sha256:0123, https://example.com/x/@scope/y",
        "no authorization was sent",
        'sum by (target) (rate({__name__=~"a.*"}[5m])) > 0 and on () vector(1)',
        "[docs](https://example.com/a) and <https://example.com/b?page=2>",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert hide_credentials(text) == text


secrets = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=8, max_size=24).filter(lambda s: s.strip())


@given(secrets, st.text(max_size=5), st.text(max_size=5))
@example('"0000000', "", "")
@example("\\0000000", "", "")
def test_a_secret_is_masked_in_each_form_that_a_peer_writes_it(secret: str, before: str, after: str) -> None:
    masker = Masker([secret])
    for text in (secret, quote(secret, safe=""), secret.upper() if secret.isascii() else secret):
        assert secret not in masker.mask_text(f"said: {text}; end")
    for text in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), json.dumps(secret).replace("/", r"\/")):
        masked = json.loads(masker.mask_body(b'{"a": [1, %s], "b": true}' % text.encode()))
        assert masked == {"a": [1, "***"], "b": True}
    label = escape_label_value(secret)
    line = f'x{{a="{escape_label_value(before)}",b="{label}"}} 1\n'.encode()
    assert label.encode() not in masker.mask_body(line).replace(escape_label_value(before).encode(), b"")


def test_figures_and_names_of_a_page_survive_a_short_secret_or_one_of_digits() -> None:
    page = b'# HELP x 12\nx_total{le="12",model="a12b",token="12"} 12\n'
    assert Masker(["12"]).mask_body(page) == b'# HELP x 12\nx_total{le="***",model="a12b",token="***"} 12\n'
    page = b'x{a="1234567890123456"} 1234567890123456\n'
    assert Masker(["1234567890123456"]).mask_body(page) == b'x{a="***"} 1234567890123456\n'
    assert Masker(["requests"]).mask_body(b'requests{a="requests-b"} 1\n') == b'requests{a="***-b"} 1\n'


def test_a_long_secret_is_masked_as_a_name_too() -> None:
    assert Masker(["sk_0123456789abcdef"]).mask_body(b"sk_0123456789abcdef 1\n") == b"redacted 1\n"
    # of 16 characters, and of 15
    assert Masker(["sk_0123456789abc"]).mask_body(b"sk_0123456789abc 1\n") == b"redacted 1\n"
    assert Masker(["sk_0123456789ab"]).mask_body(b"sk_0123456789ab 1\n") == b"sk_0123456789ab 1\n"


def test_a_page_without_a_secret_is_the_same_object() -> None:
    page = b'x{a="b"} 1\n'
    assert Masker(["pl4ntedvalue", ""]).mask_body(page) is page
    assert Masker([]).mask_text("text") == "text"


def test_a_secret_that_was_cut_off_is_masked_as_far_as_it_is_there() -> None:
    assert Masker(["pl4ntedvalue"]).mask_text("refused: pl4nted") == "refused: ***"
    assert Masker(["pl4ntedvalue"]).mask_text("refused: pl4") == "refused: pl4"


def test_the_url_of_a_webhook_is_masked_whole_and_in_parts() -> None:
    url = "https://hooks.example.com/services/T0/B0/pl4nted?x=1"
    masker = Masker(secrets_of_url(url))
    for said in (url, url.partition("?")[0], "no hook at /services/T0/B0/pl4nted", "/services/T0/B0/pl4nted?x=1"):
        assert PLANTED not in masker.mask_text(said)
    assert "hooks.example.com" in masker.mask_text("cannot reach hooks.example.com")
    assert secrets_of_url("no-url") == ("no-url",)
    # what is as short as a word may stand in a text by chance
    assert "/12345678" in secrets_of_url("https://hooks.example/12345678")
    assert "/1234567" not in secrets_of_url("https://hooks.example/1234567")
