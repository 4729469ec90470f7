"""What every command prints: for what is right, for what is wrong, and for --help; each in this process, as `main` runs it.

A row of inputs is one of `tests/unit/wrong_inputs`: the words that are run, with the files and variables that they need. Of the rows in
`inputs/` ENGINE stands for the URL of a server that shows the pages of `engine`, a golden case: the next one after each wait.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from llm_serving_exporter.cli import main
from tests.same.internals import forbid_daemon
from tests.same.outputs import Outputs
from tests.same.surroundings import CLOCK
from tests.support.builders.golden_cases import CASES
from tests.support.builders.input_files import write_input
from tests.support.logging_state import keep_logging
from tests.support.paths import TESTS
from tests.support.servers.replica import Replica
from tests.support.yaml_text import load_yaml

INPUTS = Path(__file__).with_name("inputs")
UNIT = TESTS / "unit"
Row = Mapping[str, Any]


def write_help(outputs: Outputs) -> None:
    """--help of the program and of each command that it lists."""
    text = run_words(["--help"])
    outputs.write("llm-serving-exporter.txt", text)
    listed = re.search(r"^commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    if listed is None:
        raise ValueError("--help lists no commands")
    for line in listed[1].splitlines():
        if line[2] != " ":
            command = line.split()[0]
            outputs.write(f"{command}.txt", run_words([command, "--help"]))


def write_answers(outputs: Outputs) -> None:
    """What commands answer to the rows of `inputs/`, with the files that they write."""
    for file in sorted(INPUTS.glob("*.yml")):
        for row in load_yaml(file.read_text(encoding="utf-8")):
            _run_row(outputs, file.stem, row)


def write_messages(outputs: Outputs) -> None:
    """What is said of wrong inputs: of every command's words, and of each kind of file."""
    for file in sorted((UNIT / "wrong_inputs").glob("*.yml")):
        for row in load_yaml(file.read_text(encoding="utf-8")):
            _run_row(outputs, file.stem, row)
    for path in sorted((UNIT / "settings/bad").glob("*.yml")):
        with chdir(path.parent):
            outputs.write(f"config/{path.stem}.txt", run_words(["check-config", "--config.file", path.name]))
    for path in sorted((UNIT / "settings/bad_prices").glob("*.yml")):
        words = ["check-config", "--target", "a:1", "--cost.price-file", path.name]
        with chdir(path.parent):
            outputs.write(f"prices/{path.stem}.txt", run_words(words))
    for number, text in enumerate(_list_table("tests.unit.alerts.test_settings"), 1):
        row = {"run": "rules --config.file rules.yml --output-dir rules", "files": {"rules.yml": text}}
        _run_row(outputs, "rules-settings", row, name=_name_text(text, number))
    for number, text in enumerate(_list_table("tests.unit.web.test_webconfig"), 1):
        row = {"run": "check-config --target a:1 --web.config.file web.yml", "files": {"web.yml": text}}
        _run_row(outputs, "web-config", row, name=_name_text(text, number))


def run_words(words: list[str]) -> str:
    """Runs the program with these words: the command line, its exit status, and what it wrote to either stream, as one text."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), keep_logging():
        try:
            status = main(words)
        except SystemExit as ended:  # argparse's way
            status = ended.code if isinstance(ended.code, int) else 1
    parts = [f"$ llm-serving-exporter {shlex.join(words)}\nexit status {status}\n"]
    parts += [
        f"--- {name}\n{said}" for name, said in (("output", out.getvalue()), ("messages", err.getvalue())) if said
    ]
    return "".join(part if part.endswith("\n") else f"{part}\n(no line break at the end)\n" for part in parts)


def _run_row(outputs: Outputs, folder: str, row: Row, name: str = "") -> None:
    """Runs a row in a folder of its own; what it writes there are outputs too."""
    name = name or name_row(row)
    listens = row["run"].startswith(("demo", "simulate"))
    with (
        tempfile.TemporaryDirectory() as made,
        _engine(row.get("engine")) as url,
        _take_turns() if listens else nullcontext(),
    ):
        place = Path(made)
        chance = {made: "FOLDER"} | hide_port(url)
        for file, text in row.get("files", {}).items():
            write_input(place / file, text)
        before = _read_files(place)
        with outputs.hiding(chance), chdir(place), _environment(row.get("environment", {})), forbid_daemon():
            words = shlex.split(row["run"].replace("ENGINE", url))
            outputs.write(f"{folder}/{name}.txt", run_words(words))
            for file, text in _read_files(place).items():
                if before.get(file) != text:
                    outputs.write(f"{folder}/{name}/{file}", text)


def hide_port(url: str, name: str = "PORT1") -> dict[str, str]:
    """For `Outputs.hiding`: the port of a server that was started here, under any name of its host. {} without a URL."""
    return {f":{url.rpartition(':')[2]}": f":{name}"} if url else {}


def name_row(row: Row) -> str:
    """The words, shortened, and a hash of the whole row: one with other files, or another row, has another name."""
    words = re.sub(r"[^\w.=-]+", "-", row["run"]).strip("-")[:60].rstrip("-.")
    asked = {key: row[key] for key in ("run", "files", "environment", "engine") if key in row}
    return f"{words or 'nothing'}.{_hash(yaml.safe_dump(asked))}"


def _name_text(text: str, number: int) -> str:
    key = re.sub(r"[^\w]+", "-", text).strip("-")[:40].rstrip("-")
    return f"{key or 'empty'}.{_hash(f'{number} {text}' if not text.strip() else text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _list_table(module: str) -> list[str]:
    """The files in a module's tables of wrong files: those of the decorators `…(("text", "message"), rows)`.

    Raises ValueError where there is none: the table has gone somewhere else.
    """
    found = importlib.import_module(module)
    source = Path(str(found.__file__)).read_text(encoding="utf-8")
    tests = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    tables = [
        decorator.args[1]
        for test in tests
        for decorator in test.decorator_list
        if isinstance(decorator, ast.Call) and len(decorator.args) > 1
        if ast.unparse(decorator.args[0]) == "('text', 'message')"
    ]
    rows = [row for table in tables for row in eval(compile(ast.Expression(table), source, "eval"), vars(found))]
    if not rows:
        raise ValueError(f"{module} has no table of wrong files")
    return list(dict.fromkeys(text for text, _message in rows))


@contextmanager
def _engine(case: str | None) -> Iterator[str]:
    """The URL of a server with the pages of a golden case, a step further after each wait; "" without a case."""
    if case is None:
        with nullcontext(""):
            yield ""
        return
    steps = iter(CASES[case].steps()[1:])
    with Replica(next(steps)) as server:
        # after the last page it stays
        CLOCK.on_wait = lambda: server.show(next(steps, server.routes))
        try:
            yield server.url
        finally:
            CLOCK.on_wait = bool


@contextmanager
def _take_turns() -> Iterator[None]:
    """One collector of this machine at a time: what listens at a stated port would find it taken."""
    lock = Path(tempfile.gettempdir(), f"llm-serving-exporter-same-{os.getuid()}.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _read_files(folder: Path) -> dict[str, str]:
    files: Iterable[Path] = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="surrogateescape")
        for path in files
    }
