"""The flags of `report`, laid over its settings file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import read_document
from llm_serving_exporter.settings.flags import CommandParser, FlagReader, add_rows
from llm_serving_exporter.settings.options import Context, Host
from llm_serving_exporter.settings.problems import Place
from llm_serving_review.settings import file as settings_file
from llm_serving_review.settings.settings import KEEP, LABEL, TEXT, URL, ZONE, Settings, read_bill_flags

_DESCRIPTION = """\
Reads a week of the exporter's series from Prometheus and writes what serving cost, where it went, why it changed and what to do
about it: one page that opens without a network, two CSV files and a summary in Markdown, which is printed too."""

_EPILOG = """\
examples:
  llm-serving-exporter report --prometheus.url http://prometheus:9090
  llm-serving-exporter report --prometheus.url http://prometheus:9090 --since 24h
  llm-serving-exporter report --prometheus.url http://prometheus:9090 --week 2026-W46 --timezone Europe/Berlin --output-dir reports/
  llm-serving-exporter report --config.file report.yml

docs/report.md says which settings there are, docs/internals-report.md what each figure means.

exit status: 0 written (what could not be read is named in it), 1 none could be made or written, 2 bad usage or settings,
130 interrupted"""


_MOST_DAYS = 14  # what a page shows day by day; longer ones are weeks
_HOUR_SECONDS = 3600


_AGAIN = {"action": "append"}
_SWITCH = {"action": "store_true"}
# in the order of --help: name, word for the value, help, what else argparse is told
_FLAGS = (
    ("--prometheus.url", "URL", "whose series are read; anything that answers Prometheus' queries", {"dest": "prometheus_url"}),
    ("--week", "2026-W46", "ISO week (default: the last that is over)"),
    ("--since", "24h", f"the last whole hours instead of a week, as in 24h or 3d, {_MOST_DAYS} days at most: works on the first day"),
    ("--config.file", "FILE", "settings, YAML or JSON; flags win over it", {"dest": "config_file"}),
    ("--output-dir", "FOLDER", "where the files go (default: here)"),
    ("--keep", "N", "weeks whose files stay in that folder (default: all)"),
    ("--timezone", "ZONE", "where the week begins, as in Europe/Berlin (default UTC)"),
    ("--identity-label", "LABEL", "label of the scrape that tells fleets apart, as in cluster", _AGAIN),
    ("--by-label", "LABEL", "label that the bill is split by (of the scrape, or of target_labels), as in team", _AGAIN),
    ("--bill", "PATH", "bill of a cloud to compare with: FOCUS or AWS CUR 2.0, a file, a folder or a pattern; may be repeated", _AGAIN),
    ("--price-file", "FILE", "price file of the exporters, for its pools and nodes; may be given again for another fleet's", _AGAIN),
    ("--deliver", None, "send it where the settings say (webhook, mail), and note beside it that it was made; for schedules", _SWITCH),
    ("--bearer-token-file", "FILE", "token for Prometheus"),
    ("--username", "NAME", "basic auth at Prometheus"),
    ("--password-file", "FILE", "its password"),
    ("--ca-file", "FILE", "certificates to trust instead of the system's"),
    ("--query-timeout", "2m", "longest wait for one answer (default 2m)"),
    ("--progress", None, "say what is being read, also where standard error is no terminal", _SWITCH),
)  # fmt: skip


def parser() -> CommandParser:
    """Everything is text to argparse, so that every fault is reported at once."""
    usage = "%(prog)s --prometheus.url URL [--week 2026-W46 | --since 24h] [--config.file report.yml] [--output-dir FOLDER] [OPTIONS]"
    parser = CommandParser("report", usage=usage, description=_DESCRIPTION, epilog=_EPILOG)
    add_rows(parser, _FLAGS)
    return parser


def settings_of(arguments: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Settings, float, tuple[str, ...]]:
    """Settings, the longest wait for an answer in seconds, and warnings. Raises ConfigError with every fault."""
    problems: list[Problem] = []
    flags = FlagReader(arguments, problems)
    path = flags.value("--config.file", kinds.PATH)
    head, slash, _ = (path or "").rpartition("/")
    context = Context(Host("", ""), environ, (), head or slash or None)
    settings = Settings()
    if path is not None:
        place = Place(path, "", problems)
        settings = settings_file.read_settings(read_document(path, place), place, context)
    settings = _lay_flags_over(settings, flags)
    if not settings.server.url and not any("prometheus" in str(problem) for problem in problems):
        fix = "Give --prometheus.url http://prometheus:9090."
        problems.append(Problem("report", "", "there is no Prometheus to ask", fix))
    timeout = flags.value("--query-timeout", kinds.DURATION)
    if problems:
        raise ConfigError(*problems)
    return settings, timeout or 120.0, tuple(context.warnings)


def read_since(arguments: argparse.Namespace) -> int | None:
    """The hours of --since; None where it is not given. Raises ConfigError with every fault."""
    problems: list[Problem] = []
    seconds = FlagReader(arguments, problems).value("--since", kinds.DURATION)
    if problems:
        raise ConfigError(*problems)
    if seconds is None:
        return None
    place, hours = "flag --since", round(seconds / _HOUR_SECONDS)
    if seconds != hours * _HOUR_SECONDS or not 1 <= hours <= 24 * _MOST_DAYS:
        fix = f"Write 1h to {_MOST_DAYS}d, as in 24h; for longer, --week."
        what = f"{arguments.since} is not a number of whole hours up to {_MOST_DAYS} days"
        problems.append(Problem(place, "", what, fix))
    if arguments.week is not None:
        problems.append(Problem(place, "", "it stands instead of --week", "Give one of the two."))
    if arguments.deliver:
        problems.append(Problem(place, "", "--deliver is for weeks on a schedule", "Leave one of the two out."))
    if problems:
        raise ConfigError(*problems)
    return hours


def _lay_flags_over(settings: Settings, flags: FlagReader) -> Settings:
    server = settings.server
    url = flags.value("--prometheus.url", URL)
    token, password = flags.value("--bearer-token-file", kinds.PATH), flags.value("--password-file", kinds.PATH)
    username = flags.value("--username", TEXT)
    if (username is None) != (password is None) or (username is not None and token is not None):
        fix = "Give both, or --bearer-token-file alone."
        flags.refuse("--username", "it stands with --password-file, and without a token", fix)
    elif token is not None:
        server = replace(server, bearer_token=Secret(file=token), basic_username=None, basic_password=None)
    elif username is not None:
        server = replace(server, bearer_token=None, basic_username=username, basic_password=Secret(file=password))
    ca_file = flags.value("--ca-file", kinds.PATH)
    server = replace(server, url=url or server.url, ca_file=ca_file or server.ca_file)
    keep = flags.value("--keep", KEEP)
    bills = read_bill_flags(settings.bills, flags)
    return replace(
        settings,
        server=server,
        timezone=flags.value("--timezone", ZONE) or settings.timezone,
        identity_labels=flags.values("--identity-label", LABEL) or settings.identity_labels,
        by_labels=flags.values("--by-label", LABEL) or settings.by_labels,
        out=flags.value("--output-dir", kinds.PATH) or settings.out,
        keep=keep if keep is not None else settings.keep,
        bills=bills,
        price_files=flags.values("--price-file", kinds.PATH) or settings.price_files,
    )
