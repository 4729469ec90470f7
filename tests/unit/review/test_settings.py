"""report.yml: what it says is what is used, and everything wrong with it is said at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.model.target import Secret
from llm_serving_review.settings.arguments import parser, settings_of
from llm_serving_review.settings.settings import ApiPrice, MonthlyCosts, Server, Settings, Smtp
from tests.support.paths import ROOT
from tests.support.rows import check_rows

ENV = {"HOOK": "https://hooks.example.com/x", "MAIL_PASSWORD": "p"}
DOCS = ROOT / "docs" / "report.md"


def read(text: str, folder: Path, *words: str) -> Settings:
    file = folder / "report.yml"
    file.write_text(text)
    return settings_of(parser().parse_args(["--config.file", str(file), *words]), ENV)[0]


def problems(text: str, folder: Path, *words: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        read(text, folder, *words)
    return [str(problem).replace(f"{folder}/report.yml: ", "") for problem in refused.value.problems]


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    found = read(
        """
prometheus: {url: 'https://prometheus:9090/prometheus', basic: {username: me, password_file: secret}, ca_file: ca.pem}
timezone: Europe/Berlin
identity_labels: [cluster]
by_labels: [team, namespace]
title: Our LLMs
out: reports
keep: 26
api_price: {name: An API, input_usd_per_million: 3, cached_input_usd_per_million: 0.3, output_usd_per_million: 15}
purchase: {usd: 250000}
monthly_costs: {storage: 500, network: 1000, monitoring: 500, engineering: 5000}
objectives: {ttft: 0.99, errors: 0.999}
price_file: [prices.yml, /etc/other.yml]
schedule: 0 7 * * mon
webhook_url_env: HOOK
smtp: {host: mail.example.com, port: 2525, from: a@example.com, to: [b@example.com], username: me, password_env: MAIL_PASSWORD}
dashboards_url: https://grafana.example.com/grafana/
""",
        tmp_path,
    )
    password = Secret(file=str(tmp_path / "secret"))
    assert found == Settings(
        Server("https://prometheus:9090/prometheus", None, "me", password, str(tmp_path / "ca.pem")),
        "Europe/Berlin",
        ("cluster",),
        ("team", "namespace"),
        "Our LLMs",
        str(tmp_path / "reports"),
        26,
        ApiPrice("An API", 3.0, 0.3, 15.0),
        250_000.0,
        MonthlyCosts(500, 1000, 500, 5000),
        {"ttft": 0.99, "errors": 0.999},
        "0 7 * * mon",
        Secret(env="HOOK"),
        Smtp("mail.example.com", "a@example.com", ("b@example.com",), 2525, True, "me", Secret(env="MAIL_PASSWORD")),
        dashboards_url="https://grafana.example.com/grafana",
        price_files=(str(tmp_path / "prices.yml"), "/etc/other.yml"),
    )
    # one needs no list, and flags win
    assert read("prometheus: {url: 'http://a:1'}\nprice_file: p.yml", tmp_path).price_files == (
        str(tmp_path / "p.yml"),
    )
    words = ("--price-file", "/a.yml", "--price-file", "/b.yml")
    assert read("prometheus: {url: 'http://a:1'}\nprice_file: p.yml", tmp_path, *words).price_files == (
        "/a.yml",
        "/b.yml",
    )
    assert problems("prometheus: {url: 'http://a:1'}\nprice_file: {a: b}", tmp_path) == [
        "price_file: must be a path, not a mapping. Write a single value."
    ]


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    text = "prometheus: {url: 'http://a:1', basic: {username: me, password_file: p}}\ntimezone: UTC\nkeep: 3\nby_labels: [team]\nout: there"
    words = (
        "--prometheus.url",
        "http://b:2",
        "--timezone",
        "Asia/Kolkata",
        "--keep",
        "5",
        "--by-label",
        "app",
        "--output-dir",
        "here",
    )
    found = read(text, tmp_path, *words, "--bearer-token-file", str(tmp_path / "token"), "--identity-label", "cluster")
    assert found.server == Server("http://b:2", Secret(file=str(tmp_path / "token")))
    assert (found.timezone, found.keep, found.by_labels, found.out) == ("Asia/Kolkata", 5, ("app",), "here")
    assert found.identity_labels == ("cluster",)


def test_every_problem_is_said_at_once_with_its_place_and_what_to_do(tmp_path: Path) -> None:
    said = problems(
        """
prometheus: {url: 'ftp://x', bearer_token: s3cret}
timezone: Middle/Earth
identity_labels: [target]
by_labels: team
keep: none
currency: EUR
api_price: {name: x, input_usd_per_million: -1}
purchase: {}
monthly_costs: {cooling: 5}
objectives: {ttft: 99}
schedule: 0 7 * * 1
webhook_url: https://hooks.example.com/s3cret
smtp: {host: 'a b', from: nobody, to: [], starttls: false, username: me, password_env: MAIL_PASSWORD}
""",
        tmp_path,
    )
    places = [line.split(": ")[0] for line in said]
    assert set(places) == {
        "prometheus.url", "prometheus.bearer_token", "timezone", "identity_labels[0]", "by_labels", "keep", "currency", "api_price",
        "api_price.input_usd_per_million", "purchase", "monthly_costs.cooling", "objectives.ttft", "schedule", "webhook_url", "smtp.host",
        "smtp.from", "smtp.starttls",
    }  # fmt: skip
    assert "s3cret" not in "".join(said)
    assert all(line.endswith((".", "?")) for line in said)


@check_rows(
    ("text", "problem"),
    [
        ("schedule: 0 25 * * *", "schedule: \"0 25 * * *\" is not a crontab line: Error validating expression '25'"),
        ("schedule: 0 7 * *", 'schedule: "0 7 * *" is not a crontab line: Wrong number of fields; got 4, expected 5'),
        ("schedule: 0 7 * * 1-5", "schedule: the day of the week is a number: cron counts from Sunday"),
        ("purchase: {usd: 5}", "purchase: there is no API price to compare the purchase with. Add api_price."),
        ("smtp: {host: x, from: a@b.c, to: []}", "smtp.to: the list is empty. Write to: [finance@example.com]."),
        ("smtp: {from: a@b.c}", "smtp: host and to are missing."),
        ("smtp: {host: x, from: a@b.c, to: [d@e.f], username: me}", "smtp: a user name and a password belong together."),
        ("dashboards_url: 'javascript:alert(1)'", 'dashboards_url: "javascript:alert(1)" is not a URL that a link can begin with.'),
        ("dashboards_url: https://me:s@g", "dashboards_url: the URL holds a user name or password, and the page would show it."),
        ("dashboards_url: https://g/?orgId=1", 'dashboards_url: "https://g/?orgId=1" is not a URL that a link can begin with.'),
        (
            "dashboards_url: https://g/d/abc",
            'dashboards_url: "https://g/d/abc" is the address of one dashboard. Write what stands before /d/',
        ),
        ("by_labels: [1a]", 'by_labels[0]: "1a" is not a label\'s name.'),
    ],
)  # fmt: skip
def test_a_problem(text: str, problem: str, tmp_path: Path) -> None:
    (said,) = problems("prometheus: {url: 'http://a:1'}\n" + text, tmp_path)
    assert said.startswith(problem)


@check_rows("text", ["", "# nothing\n", "[]", "x", "{", "\x00"])
def test_what_is_no_settings_file_is_no_crash(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read(text, tmp_path)


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(prometheus:.*?)```", DOCS.read_text(), re.S)
    for name in ("prometheus-token", "webhook-url", "smtp-password", "ca.pem"):
        (tmp_path / name).write_text("x")
    found = read(example.replace("/etc/llm-serving-exporter", str(tmp_path)), tmp_path)
    assert found.smtp is not None
    assert found.api_price is not None
    assert found.schedule is not None
