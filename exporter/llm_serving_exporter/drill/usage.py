"""Flags of `drill` -> scope, settings and access; every refusal names its flag and what to write."""

from __future__ import annotations

import argparse
import os
import re

from llm_serving_exporter.clients.json_api import Access
from llm_serving_exporter.drill.arguments import APIS
from llm_serving_exporter.drill.course import Bounds, Scope, Settings
from llm_serving_exporter.drill.names import PREFIX
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.schema.duration import parse_duration

# what the report and the memory of a drill can hold
_MOST_LOOKS = 20_000
_SHORTEST_INTERVAL_SECONDS = 0.05
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\\x00-\x1f]*)"\s*')
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_LARGEST_SECRET_BYTES = 16 * 2**10


class UsageError(LLMServingExporterError):
    """A flag that cannot be used; the message names it. Never leaves this package."""


def scope_of(args: argparse.Namespace) -> Scope:
    """Whose drill. Raises UsageError."""
    labels: dict[str, str] = {}
    rest = args.selector
    while rest.strip():
        match = _MATCHER.match(rest)
        if match is None or (match.end() < len(rest) and rest[match.end()] != ","):
            raise UsageError(f"""flag --selector: {args.selector!r} is not like 'cluster="prod",namespace="llm"'""")
        if match[1] in labels or match[1] in ("model_name", "role", "__name__"):
            raise UsageError(f"flag --selector: {match[1]} is given twice, or has a flag of its own")
        labels[match[1]] = match[2]
        rest = rest[match.end() + 1 :]
    if not args.model.strip():
        raise UsageError("flag --model: it is empty; write the model's name as the label model_name has it")
    return Scope(args.model, args.role, tuple(labels.items()))


def settings_of(args: argparse.Namespace) -> Settings:
    """How it is to run. Raises UsageError."""
    if not (args.trigger_command is not None or args.watch or args.plan):
        raise UsageError("give one of --trigger-command, --watch and --plan")
    for flag, command in (("--trigger-command", args.trigger_command), ("--restore-command", args.restore_command)):
        if command is not None and not command.strip():
            raise UsageError(f"flag {flag}: it is empty")
    if args.restore_command is not None and args.trigger_command is None:
        raise UsageError("flag --restore-command: there is nothing to undo without --trigger-command")
    hold_for_page = args.hold == "page"
    hold = None if args.hold is None or hold_for_page else _flag("--hold", args.hold)
    if args.hold is not None and args.restore_command is None:
        raise UsageError("flag --hold: nothing ends the loss after that time; give --restore-command")
    if hold is not None and hold >= args.max_duration:
        raise UsageError("flag --hold: it must be shorter than --max-duration, which is to hold the recovery too")
    if args.interval < _SHORTEST_INTERVAL_SECONDS or args.max_duration / args.interval > _MOST_LOOKS:
        raise UsageError(f"flag --interval: write 50ms or more, and at most {_MOST_LOOKS} of them in --max-duration")
    for flag in ("baseline", "max_duration", "rate_window"):
        if getattr(args, flag) <= 0:
            raise UsageError(f"flag --{flag.replace('_', '-')}: write a duration above 0")
    loss_timeout = args.loss_timeout
    if loss_timeout is None:
        loss_timeout = 3600.0 if args.watch else 300.0
    return Settings(
        Bounds(args.max_errors_ratio, args.max_ttft, args.max_duration, args.max_lost),
        watch=args.watch,
        force=args.force,
        node=args.node,
        expected_alerts=_expected(args.expect_alert),
        objective=args.objective,
        baseline_seconds=args.baseline,
        loss_timeout_seconds=loss_timeout,
        settle_seconds=args.settle,
        interval_seconds=args.interval,
        hold_seconds=hold,
        hold_for_page=hold_for_page,
        page_slack_seconds=args.page_slack,
        rate_window_seconds=args.rate_window,
    )


def _expected(named: list[str] | None) -> tuple[str, ...] | None:
    if named is None:
        return None
    if "none" in named:
        if len(named) > 1:
            raise UsageError("flag --expect-alert: none stands alone")
        return ()
    # as the rules call them, and as the documents do
    return tuple(dict.fromkeys(name if name.startswith(PREFIX) else f"{PREFIX}{name}" for name in named))


def access_of(args: argparse.Namespace) -> dict[str, Access]:
    """The APIs that are asked, by name, with their secrets read. Raises UsageError."""
    found = {}
    for api in APIS:
        url = getattr(args, f"{api}_url")
        token_file = getattr(args, f"{api}_bearer_token_file")
        username, password_file = getattr(args, f"{api}_username", None), getattr(args, f"{api}_password_file", None)
        if url is None:
            if token_file or username or password_file:
                raise UsageError(f"flag --{api}-url: it is missing beside its credentials")
            continue
        if not _URL.fullmatch(url):
            raise UsageError(
                f"flag --{api}-url: {url!r} is not like http://host:9090; credentials have flags of their own"
            )
        if api == "grafana" and token_file is None:
            raise UsageError("flag --grafana-url: it wants --grafana-bearer-token-file")
        if (username is None) != (password_file is None) or (username and token_file):
            raise UsageError(f"flag --{api}-username: give it with --{api}-password-file, and no token beside it")
        found[api] = Access(
            api.capitalize(),
            url,
            f"--{api}-url",
            bearer_token=None if token_file is None else _secret(api, "bearer-token-file", token_file),
            basic=None
            if username is None or password_file is None
            else (username, _secret(api, "password-file", password_file)),
            ca_file=args.ca_file,
        )
    if args.ca_file is not None and not os.path.isfile(args.ca_file):
        raise UsageError(f"flag --ca-file: there is no file {args.ca_file}")
    return found


def _secret(api: str, flag: str, path: str) -> str:
    where = f"flag --{api}-{flag}: the file {path}"
    try:
        with open(path, "rb") as file:
            value = file.read(_LARGEST_SECRET_BYTES + 1).decode("ascii").rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{where} has characters that no HTTP header may carry") from None
    if not value or len(value) > _LARGEST_SECRET_BYTES or not value.isprintable():
        raise UsageError(f"{where} does not hold one line of text")
    return value


def _flag(flag: str, text: str) -> float:
    try:
        return duration(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"flag {flag}: {error}") from None


def duration(text: str) -> float:
    """Seconds. Raises argparse.ArgumentTypeError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def share(text: str) -> float:
    """Above 0 and below 1. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1, such as 0.99")
    return value
