"""Command `drill`: flags -> a drill of the real world, its reports, its exit status."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from llm_serving_drill.api import Alertmanager, Grafana, Prometheus
from llm_serving_drill.arguments import UsageError, access_of, parser, scope_of, settings_of
from llm_serving_drill.commands import Running
from llm_serving_drill.course import Course, Scope
from llm_serving_drill.report import as_document, as_markdown
from llm_serving_drill.runner import Drill, Rim, Started
from llm_serving_drill.verdict import judge
from llm_serving_exporter.clients.json_api import Access, ApiError, JsonApi
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.files.written import write_atomically
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.text import hide_credentials
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
        drill = Drill(
            scope, settings, _make_rim(args, access, stopping, stack), args.trigger_command, args.restore_command
        )
        return _print_plan(drill) if args.plan else _run_drill(drill, args, stopping, record)


def _print_plan(drill: Drill) -> int:
    try:
        course = drill.plan()
    except ApiError as error:
        print_message(str(error))
        return EXIT_FAILED
    made = course.plan
    assert made is not None
    lines = [
        f"node: {made.node or 'not known'}; replicas that may go: {made.may_lose if made.may_lose is not None else 'not known'}",
        f"alerts that are looked for: {', '.join(made.alerts) or 'none'}",
        *(f"note: {note}" for note in made.notes),
        *(f"no: {refusal}" for refusal in made.refusals),
        "a drill would not begin" if made.refusals else "a drill may begin",
    ]
    print_line("\n".join(lines))
    return EXIT_FAILED if made.refusals else EXIT_OK


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
            print_message(
                f"the report cannot be written to {args.output_dir}: {error.strerror}; it follows on standard output"
            )
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


def _make_rim(args: argparse.Namespace, access: dict[str, Access], stopping: threading.Event, stack: ExitStack) -> Rim:
    apis = {name: JsonApi(one) for name, one in access.items()}
    for api in apis.values():
        stack.callback(api.close)

    def start(what: str, command: str, now: Callable[[], float]) -> Started:
        return Running(what, command, shell=args.shell, timeout_seconds=args.command_timeout, now=now)

    return Rim(
        Prometheus(apis["prometheus"]),
        time.monotonic,
        stopping.wait,
        start,
        print_message,
        Alertmanager(apis["alertmanager"]) if "alertmanager" in apis else None,
        Grafana(apis["grafana"]) if "grafana" in apis else None,
    )


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
        raise UsageError(
            f"flag --output-dir: the folder {folder} cannot be made: {error.strerror}; choose another"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"flag --output-dir: nothing can be written to {folder}; choose another folder")
