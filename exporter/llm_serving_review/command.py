"""Command `report`: settings -> a week's evidence -> files, and what they come to on standard output."""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from llm_serving_exporter.clients.http import SecretError, read_secret
from llm_serving_exporter.clients.json_api import Access, ApiError, JsonApi, Prometheus
from llm_serving_exporter.errors import ConfigError, DeliveryError, Problem, ReviewRunsError
from llm_serving_exporter.files.written import write_atomically
from llm_serving_exporter.model.cost import PoolBook
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.state import review_runs
from llm_serving_exporter.terminal import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    print_line,
    print_message,
    run_command,
)
from llm_serving_review.bills.review import add_bills
from llm_serving_review.evidence.evidence import NoDataError, gather
from llm_serving_review.evidence.fetch import Reader
from llm_serving_review.evidence.names import Asking
from llm_serving_review.evidence.past import read_past
from llm_serving_review.evidence.week import Week, last_complete_week, parse_week, span_of
from llm_serving_review.figures.past_weeks import describe_recorded_week
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.csv_files import render_figures_csv, render_hours_csv
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.arguments import parser, read_since, settings_of
from llm_serving_review.settings.price_files import read_price_files
from llm_serving_review.settings.settings import Server, Settings
from llm_serving_review.tables.facts import LEAST_SQLITE

_OURS = re.compile(r"cost-([0-9]{4}-W[0-9]{2})(-hours)?\.(html|csv|md)")


def run(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Makes and writes a report; returns the exit status: 0 written, 1 none could be made or written, 2 bad usage or settings,
    130 interrupted."""
    return run_command(lambda: _make_report(parser().parse_args(argv), environ))


def _make_report(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    _refuse_old_sqlite()
    settings, timeout_seconds, warnings = settings_of(arguments, environ)
    pools = read_price_files(settings.price_files)
    asked = _parse_week(arguments.week, settings)
    since = read_since(arguments)
    access = _read_access(settings.server, environ)
    for warning in warnings:
        print_message(f"warning: {warning}")
    progress = _choose_progress(always=arguments.progress)
    made = _make_or_explain(access, settings, since or asked, timeout_seconds, progress, pools)
    if isinstance(made, int):
        return _note_run(settings.out, made) if arguments.deliver else made
    status, files = _write_files(made, settings)
    if not arguments.deliver:
        return status
    sent: tuple[str, ...] = ()
    if status == EXIT_OK:
        status, sent = _deliver(made, files, settings, environ)
    return _note_run(settings.out, status, made.week.name, sent)


def _refuse_old_sqlite() -> None:
    if sqlite3.sqlite_version_info < LEAST_SQLITE:
        least = ".".join(map(str, LEAST_SQLITE))
        what = f"it has SQLite {sqlite3.sqlite_version}, and the review wants {least} or newer"
        raise ConfigError(Problem("this Python", "", what, "Use a newer Python, or the container's image."))


def _make_or_explain(
    access: Access,
    settings: Settings,
    week: Week | int | None,
    timeout_seconds: float,
    progress: Callable[[str], None],
    pools: PoolBook | None,
) -> Review | int:
    """The review, or the exit status where there is none, which is said."""
    try:
        with closing(Prometheus(JsonApi(access, timeout_seconds))) as prometheus:
            return make(prometheus, settings, week, progress, pools)
    except (ApiError, NoDataError, ConfigError) as error:
        fault = error
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        if progress is not _quiet and sys.stderr.isatty():
            print_message("\r\x1b[2K", end="")
    print_message(f"error: {fault}")
    return EXIT_USAGE if isinstance(fault, ConfigError) else EXIT_FAILED


def make(
    prometheus: Prometheus,
    settings: Settings,
    week: Week | int | None,
    progress: Callable[[str], None],
    pools: PoolBook | None = None,
) -> Review:
    """The review of a week, of the last whole hours (a number), or of the last week that is over by Prometheus' clock (None). `pools`: what
    price files say of commitments and nodes.

    Raises ApiError and NoDataError where none can be made, ConfigError for a week that is not over.
    """
    zone = ZoneInfo(settings.timezone)
    now = prometheus.now()
    latest = last_complete_week(now, zone)
    if isinstance(week, int):
        week = span_of(now, week, zone)
    elif week is not None and week.begin > latest.begin:
        fix = f"The last that is over is {latest.name}."
        raise ConfigError(Problem("flag --week", "", f"{week.name} is not over", fix))
    reader = Reader(prometheus, Asking(settings.identity_labels, settings.by_labels), progress)
    week = week or latest
    evidence = replace(gather(reader, week, now), pools=pools)
    describe = partial(describe_recorded_week, identity=settings.identity_labels)
    past = read_past(reader, Path(settings.out), week, describe)
    evidence = replace(evidence, missing_parts=tuple(reader.missing))
    return add_bills(build_review(evidence, settings, past), evidence, settings, now, progress)


def write(made: Review, folder: Path, keep: int | None) -> list[Path]:
    """The files, whole or not at all; older weeks beyond `keep` are removed. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"cost-{made.week.file_name}"
    written = []
    for suffix, text in (
        (".html", render_page(made)),
        (".csv", render_figures_csv(made)),
        ("-hours.csv", render_hours_csv(made)),
        (".md", render_summary(made)),
    ):
        path = folder / f"{name}{suffix}"
        write_atomically(path, text.encode(errors="replace"))
        written.append(path)
    # a span is no week: it takes no week's place
    if keep is not None and not made.week.is_span:
        _remove_older(folder, keep)
    return written


def _remove_older(folder: Path, keep: int) -> None:
    ours = [(match[1], path) for path in folder.iterdir() if (match := _OURS.fullmatch(path.name)) and path.is_file()]
    kept = set(sorted({week for week, _ in ours}, reverse=True)[:keep])
    for week, path in ours:
        if week not in kept:
            path.unlink(missing_ok=True)


def _write_files(made: Review, settings: Settings) -> tuple[int, list[Path]]:
    """The exit status, and the files; the summary goes to standard output."""
    summary = render_summary(made)
    status, files = EXIT_OK, list[Path]()
    try:
        files = write(made, Path(settings.out), settings.keep)
        for path in files:
            print_message(f"written: {path}")
    except OSError as error:
        why = f"the report cannot be written to {settings.out}: {error.strerror}"
        print_message(f"error: {why}; its summary follows on standard output")
        status = EXIT_FAILED
    for missing in made.missing_parts:
        print_message(f"warning: {missing}")
    print_line(summary.removesuffix("\n"))
    return status, files


def _deliver(
    made: Review, files: Sequence[Path], settings: Settings, environ: Mapping[str, str]
) -> tuple[int, tuple[str, ...]]:
    """The exit status, and who has it now."""
    # what most people never send is not loaded for them
    from llm_serving_review.deliver import deliver

    opened = partial(secret, environ=environ)
    try:
        known = review_runs.read_runs(settings.out)
        spared = known.sent_to if known is not None and known.sent_week == made.week.name else ()
        sent = deliver(render_summary(made), files, f"{made.title}: {made.week.name}", settings, opened, spared)
    except (DeliveryError, ReviewRunsError) as error:
        print_message(f"error: {error}")
        return EXIT_FAILED, error.sent if isinstance(error, DeliveryError) else ()
    for where in sent:
        print_message(f"sent to {where}")
    return EXIT_OK, sent


def _note_run(folder: str, status: int, week: str = "", sent: tuple[str, ...] = ()) -> int:
    """The status, once the run has been noted for the exporter that publishes it."""
    try:
        review_runs.record_run(folder, time.time(), succeeded=status == EXIT_OK, week=week, sent_to=sent)
    except ReviewRunsError as error:
        print_message(f"error: {error}")
        return status or EXIT_FAILED
    return status


def _parse_week(text: str | None, settings: Settings) -> Week | None:
    if text is None:
        return None
    try:
        return parse_week(text, ZoneInfo(settings.timezone))
    except ValueError as error:
        raise ConfigError(Problem("flag --week", "", str(error), "")) from None


def _read_access(server: Server, environ: Mapping[str, str]) -> Access:
    basic = None
    if server.basic_username is not None and server.basic_password is not None:
        basic = server.basic_username, secret(server.basic_password, "the password", environ)
    token = None if server.bearer_token is None else secret(server.bearer_token, "the bearer token", environ)
    if server.ca_file is not None and not os.path.isfile(server.ca_file):
        raise ConfigError(Problem("flag --ca-file", "", f"there is no file {server.ca_file}", "Check the path."))
    return Access("Prometheus", server.url, "--prometheus.url", token, basic, server.ca_file)


def secret(named: Secret, what: str, environ: Mapping[str, str]) -> str:
    """What a file or an environment variable holds; `what` names it in messages. Raises ConfigError, which never shows it."""
    try:
        return read_secret(named, environ)
    except SecretError as error:
        problem = Problem(error.where, "", f"{what} {error.what}", "Write it there as one line of text.")
        raise ConfigError(problem) from None


def _choose_progress(*, always: bool) -> Callable[[str], None]:
    """Says what is being read: one line that is written over on a terminal, lines elsewhere where that is asked for."""
    terminal = sys.stderr.isatty()
    if not terminal and not always:
        return _quiet

    def show(text: str) -> None:
        print_message(f"\r\x1b[2K{text} …" if terminal else text, end="" if terminal else "\n")

    return show


def _quiet(text: str) -> None:
    pass
