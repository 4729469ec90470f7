"""Command `drill`: flags -> a drill of the real world, its reports, its exit status."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from llm_serving_drill.course import RESTORE, TRIGGER, Bounds, Course, Scope, Settings
from llm_serving_drill.names import PREFIX
from llm_serving_drill.report import as_document, as_markdown
from llm_serving_drill.runner import Drill
from llm_serving_drill.verdict import judge
from llm_serving_exporter.clients.http import SecretError, read_secret
from llm_serving_exporter.clients.json_api import Access, ApiError, JsonApi
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.files.written import write_atomically
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.target import Role, Secret
from llm_serving_exporter.model.text import hide_credentials
from llm_serving_exporter.settings.flags import CommandParser, add_rows, attribute, duration
from llm_serving_exporter.settings.problems import shown
from llm_serving_exporter.state.drill_results import record_result, require_recordable, split_identity
from llm_serving_exporter.terminal import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    ended_by_signal,
    print_line,
    print_message,
)

# --- The flags of `drill`, and what they say: scope, settings and access. Every refusal names its flag and what to write.


DESCRIPTION = """\
Loses a node on purpose, or waits for one to be lost, and measures through Prometheus what users noticed, whether
somebody was told, and how long it took to recover. Asks the recorded N-1 first and refuses where that says no or
unknown. docs/drill.md says how to plan one and what the verdict means."""

EPILOG = """\
examples:
  # what would be done, and whether it may be
  llm-serving-exporter drill --prometheus.url http://prometheus:9090 --model Qwen/Qwen3-32B --plan

  # drain a node, bring it back once the alert is there, give up where users suffer
  llm-serving-exporter drill --prometheus.url http://prometheus:9090 --model Qwen/Qwen3-32B --node gpu-7 \\
      --trigger-command 'kubectl drain gpu-7 --ignore-daemonsets --delete-emptydir-data' --restore-command 'kubectl uncordon gpu-7' \\
      --hold page --max-ttft 10s --max-errors-ratio 0.02 --alertmanager.url http://alertmanager:9093 \\
      --output-dir drills/ --drill.result-file /var/lib/llm-serving-exporter/drills.json

  # somebody else pulls the plug
  llm-serving-exporter drill --prometheus.url http://prometheus:9090 --model Qwen/Qwen3-32B --watch --loss-timeout 8h

exit status: 0 passed (--plan: may begin), 1 failed, aborted or not begun, 2 bad usage, 130 interrupted"""

APIS = ("prometheus", "alertmanager", "grafana")
WITH_BASIC_AUTH = ("prometheus", "alertmanager")
CREDENTIALS = ("bearer-token-file", "username", "password-file")
# what the report and the memory of a drill can hold
_MOST_LOOKS = 20_000
_SHORTEST_INTERVAL_SECONDS = 0.05
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\\x00-\x1f]*)"\s*')
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


class UsageError(LLMServingExporterError):
    """A flag that cannot be used; the message names it. Never leaves this package."""


def share(text: str) -> float:
    """Above 0 and below 1. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1. Write one such as 0.99.")
    return value


def _replicas(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:7]) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of replicas from 1 up. Write one such as 2.")
    return int(text)


def _credential(api: str, name: str) -> str:
    """The flag for a credential of an API. Prometheus is the one that is always asked, as in `report`: its flags need no prefix."""
    return f"--{name}" if api == "prometheus" else f"--{api}.{name}"


# flags in the order of --help: name, word for the value, help, what else argparse is told
_SWITCH = {"action": "store_true"}
_WHOSE = (
    ("--model", "NAME", "the model, as the label model_name has it", {"required": True}),
    ("--role", None, "role of its replicas (default unified)", {"default": "unified", "choices": ("unified", "prefill", "decode")}),
    ("--selector", "MATCHERS", "identity labels that tell fleets apart, as in 'cluster=\"prod\",namespace=\"llm\"'", {"default": ""}),
)  # fmt: skip
_HOW = (
    ("--trigger-command", "COMMAND", "loses the node; run without a shell, its output ends in the report"),
    ("--watch", None, "trigger nothing: wait for a loss, of whatever cause", _SWITCH),
)
_WHAT_HAPPENS = (
    ("--plan", None, "only say what would be done and whether it may be; nothing is run, nothing is written", _SWITCH),
    ("--restore-command", "COMMAND",
     "undoes the trigger: run once in every drill, after --hold, when a bound is reached, on Ctrl-C, or at the end"),
    ("--shell", None, "run both commands by /bin/sh", _SWITCH),
    ("--command-timeout", "10m", "of either command (default 10m)", {"type": duration, "default": 600.0}),
    ("--node", "NAME", "the node that is to go (default: the one with the most ready replicas)"),
    ("--hold", "10m|page",
     "how long the loss lasts before it is restored; page: until every expected alert has come "
     "(default: until the replicas come back without the restore command)"),
    ("--force", None, "begin although N-1 says no or unknown, or something else is wrong; the report says so", _SWITCH),
)  # fmt: skip
_BOUNDS = (
    ("--max-errors-ratio", "SHARE", "of failed requests in 5m (default 0.05)", {"type": share, "default": 0.05}),
    ("--max-ttft", "10s", "p99 time to first token over 5m (default: no bound)", {"type": duration}),
    ("--max-lost", "N", "replicas that may go (default: as many as stand on the node)", {"type": _replicas}),
    ("--max-duration", "30m", "time to recover, from the trigger on (default 30m)", {"type": duration, "default": 1800.0}),
    ("--loss-timeout", "5m", "time for the loss to be seen (default 5m, with --watch 1h)", {"type": duration}),
)  # fmt: skip
_MEASURED = (
    ("--baseline", "10m", "time before the loss to compare with (default 10m)", {"type": duration, "default": 600.0}),
    ("--objective", "SHARE", "share of good times to first token (default 0.99)", {"type": share, "default": 0.99}),
    ("--expect-alert", "NAME",
     "an alert that has to come, once for each; none for nothing "
     "(default: LLMServingReplicaLost, LLMServingTargetsDown and LLMServingN1Critical where they are due)", {"action": "append"}),
    ("--page-slack", "2m", "how long after its `for` an alert may come (default 2m)", {"type": duration, "default": 120.0}),
    ("--settle", "1m", "time that a recovery must last (default 1m)", {"type": duration, "default": 60.0}),
    ("--interval", "5s", "time between two looks (default 5s)", {"type": duration, "default": 5.0}),
    ("--rate-window", "5m", "range of the recorded 5m rates, where rules are rendered for a faster fleet",
     {"type": duration, "default": 300.0}),
)  # fmt: skip
_URLS = {
    "prometheus": "the one that evaluates the rules",
    "alertmanager": "asked whether it has the alert, and for whom",
    "grafana": f"gets an annotation over the time of the drill; needs {_credential('grafana', 'bearer-token-file')}",
}
_LEFT = (
    ("--output-dir", "FOLDER", "where the report goes, as JSON and Markdown (default: none is written)"),
    ("--drill.result-file", "FILE", "drill results that an exporter publishes, which has the same flag", {"dest": "drill_result_file"}),
)  # fmt: skip


def parser() -> CommandParser:
    """The command's parser."""
    flags = CommandParser(
        "drill",
        usage="%(prog)s --prometheus.url URL --model NAME (--trigger-command COMMAND | --watch | --plan) [OPTIONS]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    add_rows(flags.add_argument_group("whose drill"), _WHOSE)
    what_happens = flags.add_argument_group("what happens")
    add_rows(what_happens.add_mutually_exclusive_group(), _HOW)
    add_rows(what_happens, _WHAT_HAPPENS)
    add_rows(flags.add_argument_group("when it is broken off"), _BOUNDS)
    add_rows(flags.add_argument_group("what is measured"), _MEASURED)
    asked = flags.add_argument_group(
        "what it asks", "Secrets are read from files. No proxy and no netrc is heeded, no redirect followed."
    )
    for api, about in _URLS.items():
        add_rows(asked, [(f"--{api}.url", "URL", about, {"dest": f"{api}_url", "required": api == "prometheus"})])
    for api in APIS:
        who = api.capitalize()
        helps = (f"token for {who}", f"basic auth at {who}", "its password")
        for name, metavar, about in zip(CREDENTIALS, ("FILE", "NAME", "FILE"), helps, strict=True):
            if name == "bearer-token-file" or api in WITH_BASIC_AUTH:
                flag = _credential(api, name)
                add_rows(asked, [(flag, metavar, about, {"dest": attribute(flag)})])
    add_rows(asked, [("--ca-file", "FILE", "certificates to trust instead of the system's")])
    add_rows(flags.add_argument_group("what is left"), _LEFT)
    return flags


def scope_of(args: argparse.Namespace) -> Scope:
    """Whose drill. Raises UsageError."""
    labels: dict[str, str] = {}
    rest = args.selector
    while rest.strip():
        match = _MATCHER.match(rest)
        if match is None or (match.end() < len(rest) and rest[match.end()] != ","):
            example = """'cluster="prod",namespace="llm"'"""
            raise UsageError(f"flag --selector: {args.selector!r} is not like {example}; write it so")
        if match[1] in labels or match[1] in ("model_name", "role", "__name__"):
            raise UsageError(f"flag --selector: {match[1]} is given twice, or has a flag of its own; leave it away")
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
            raise UsageError(f"flag {flag}: it is empty; write a command, or leave the flag away")
    if args.restore_command is not None and args.trigger_command is None:
        what = "there is nothing to undo without --trigger-command; give both, or neither"
        raise UsageError(f"flag --restore-command: {what}")
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
    loss_timeout = args.loss_timeout if args.loss_timeout is not None else 3600.0 if args.watch else 300.0
    return Settings(
        Bounds(args.max_errors_ratio, args.max_ttft, args.max_duration, args.max_lost), watch=args.watch, force=args.force, node=args.node,
        expected_alerts=_expected(args.expect_alert), objective=args.objective, baseline_seconds=args.baseline,
        loss_timeout_seconds=loss_timeout, settle_seconds=args.settle, interval_seconds=args.interval, hold_seconds=hold,
        hold_for_page=hold_for_page, page_slack_seconds=args.page_slack, rate_window_seconds=args.rate_window,
    )  # fmt: skip


def _expected(named: list[str] | None) -> tuple[str, ...] | None:
    if named is None:
        return None
    if "none" in named:
        if len(named) > 1:
            raise UsageError("flag --expect-alert: none stands alone; leave the others away")
        return ()
    # as the rules call them, and as the documents do
    return tuple(dict.fromkeys(name if name.startswith(PREFIX) else f"{PREFIX}{name}" for name in named))


def access_of(args: argparse.Namespace) -> dict[str, Access]:
    """The APIs that are asked, by name, with their secrets read. Raises UsageError."""
    access = {}
    for api in APIS:
        url = getattr(args, f"{api}_url")
        token_flag, username_flag, password_flag = (_credential(api, name) for name in CREDENTIALS)
        token_file, username, password_file = (
            getattr(args, attribute(flag), None) for flag in (token_flag, username_flag, password_flag)
        )
        if url is None:
            if token_file or username or password_file:
                raise UsageError(f"flag --{api}.url: it is missing beside its credentials; give it too")
            continue
        if not _URL.fullmatch(url):
            fix = "write it so, credentials have flags of their own"
            raise UsageError(f"flag --{api}.url: {shown(url)} is not like http://host:9090; {fix}")
        if api == "grafana" and token_file is None:
            raise UsageError(f"flag --grafana.url: it needs {token_flag}; give it too")
        if (username is None) != (password_file is None) or (username and token_file):
            raise UsageError(f"flag {username_flag}: give it with {password_flag}, and no token beside it")
        token = None if token_file is None else _secret(token_flag, token_file)
        basic = None
        if username is not None and password_file is not None:
            basic = username, _secret(password_flag, password_file)
        access[api] = Access(api.capitalize(), url, f"--{api}.url", token, basic, args.ca_file)
    if args.ca_file is not None and not os.path.isfile(args.ca_file):
        raise UsageError(f"flag --ca-file: there is no file {args.ca_file}; check the path")
    return access


def _secret(flag: str, path: str) -> str:
    try:
        return read_secret(Secret(file=path), {})
    except SecretError as error:
        raise UsageError(f"flag {flag}: {error}; check the path, and that the file holds one line") from None


def _flag(flag: str, text: str) -> float:
    try:
        return duration(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"flag {flag}: {error}") from None


# --- The command


# Unix seconds, verdict
Recorder = Callable[[float, DrillVerdict], None]


def run(argv: Sequence[str]) -> int:
    """Runs a drill; returns the exit status: 0 passed (with --plan: it may begin), 1 failed, aborted or not begun, 2 bad usage,
    130 interrupted."""
    args = parser().parse_args(argv)
    try:
        scope, settings = scope_of(args), settings_of(args)
        access = access_of(args)
        record = None if args.drill_result_file is None or args.plan else _make_recorder(args.drill_result_file, scope)
        if args.output_dir is not None and not args.plan:
            _require_writable(Path(args.output_dir))
    except LLMServingExporterError as error:
        print_message(f"error: {error}")
        return EXIT_USAGE
    with ExitStack() as stack:
        stopping = stack.enter_context(ended_by_signal())
        apis = {name: JsonApi(each) for name, each in access.items()}
        for api in apis.values():
            stack.callback(api.close)
        commands = {TRIGGER: args.trigger_command, RESTORE: args.restore_command}
        drill = Drill(scope, settings, apis, stopping, commands, shell=args.shell, timeout_seconds=args.command_timeout)
        return _print_plan(drill) if args.plan else _run_drill(drill, args, stopping, record)


def _print_plan(drill: Drill) -> int:
    try:
        course = drill.plan()
    except ApiError as error:
        print_message(str(error))
        return EXIT_FAILED
    plan = course.plan
    assert plan is not None
    lines = [
        f"node: {plan.node or 'not known'}; replicas that may go: {plan.may_lose if plan.may_lose is not None else 'not known'}",
        f"alerts that are looked for: {', '.join(plan.alerts) or 'none'}",
        *(f"note: {note}" for note in plan.notes),
        *(f"no: {refusal}" for refusal in plan.refusals),
        "a drill would not begin" if plan.refusals else "a drill may begin",
    ]
    print_line("\n".join(lines))
    return EXIT_FAILED if plan.refusals else EXIT_OK


def _run_drill(drill: Drill, args: argparse.Namespace, stopping: threading.Event, record: Recorder | None) -> int:
    began = time.time()
    course = drill.run()
    verdict = judge(course).verdict
    status = EXIT_OK if verdict is DrillVerdict.PASSED else EXIT_FAILED
    if args.output_dir is not None:
        try:
            for path in _write_reports(course, Path(args.output_dir), began):
                print_message(f"written: {path}")
        except OSError as error:
            why = f"the report cannot be written to {args.output_dir}: {error.strerror}"
            print_message(f"{why}; it follows on standard output")
            status = EXIT_FAILED
    # where nothing was lost there was no drill
    if record is not None and course.start_unix_seconds is not None:
        try:
            record(time.time(), verdict)
        except LLMServingExporterError as error:
            print_message(str(error))
            status = EXIT_FAILED
    print_line(as_markdown(course).removesuffix("\n"))
    return EXIT_INTERRUPTED if stopping.is_set() and verdict is DrillVerdict.ABORTED else status


def _make_recorder(path: str, scope: Scope) -> Recorder:
    """Puts a verdict into the results file. Raises LLMServingExporterError now where that file cannot be used, before anything is lost."""
    require_recordable(path)
    identity, left_out = split_identity(dict(scope.labels))
    for name in left_out:
        print_message(f"the result of the drill is kept without {name}, which the exporter cannot put on a series")

    def record_verdict(unix_seconds: float, verdict: DrillVerdict) -> None:
        record_result(path, DrillResult(scope.model_name, Role(scope.role), unix_seconds, None, verdict, identity))

    return record_verdict


def _write_reports(course: Course, folder: Path, began_unix_seconds: float) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    began = datetime.fromtimestamp(began_unix_seconds, UTC).strftime("drill-%Y%m%dT%H%M%SZ")
    # drills that began in the same second
    names = itertools.chain((began,), (f"{began}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if not any((folder / f"{name}{suffix}").exists() for suffix in (".json", ".md")))
    document = json.dumps(as_document(course), indent=1, allow_nan=False, ensure_ascii=False)
    # what a command was called with, and what it said, may name a URL with a password
    for suffix, text in ((".json", document + "\n"), (".md", as_markdown(course))):
        path = folder / f"{name}{suffix}"
        write_atomically(path, hide_credentials(text).encode(errors="replace"))
        yield path


def _require_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"the folder {folder} cannot be made: {error.strerror}"
        raise UsageError(f"flag --output-dir: {why}; choose another") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"flag --output-dir: nothing can be written to {folder}; choose another folder")
