"""A URL with a password in it, given to every flag, variable and key of every command: nothing that is said shows the password."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_exporter import logs
from llm_serving_exporter.cli import _COMMANDS, main
from llm_serving_simulator.demo import _arguments as demo_arguments
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.yaml_text import load_yaml

PLANTED = "pl4nted"
URL = f"http://me:{PLANTED}@127.0.0.1:9/x?token={PLANTED}"
# what a command cannot do without, and what keeps it from more than reading its flags
NEEDED = {
    "check-config": ["--target", "http://127.0.0.1:9"],
    "drill": ["--prometheus.url", "http://127.0.0.1:9", "--model", "m", "--plan"],
    "report": ["--prometheus.url", "http://127.0.0.1:9"],
    "page-test": ["--alertmanager.url", "http://127.0.0.1:9"],
    "ceiling": [],
    "rules": [],
    "dashboards": [],
}
# they begin to serve where they like their flags, and have the flags of check-config or parse them below
SERVE = {"run", "once", "demo", "simulate"}
Said = pytest.CaptureFixture[str]


def flags_of(command: str, capsys: Said) -> list[str]:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z.-]+", capsys.readouterr().out)) - {"--help", "--version"})


def run(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as ended:
        return int(ended.code or 0)


def test_every_command_is_tried() -> None:
    assert set(_COMMANDS) == set(NEEDED) | SERVE | {"runbook", "runtimes"}


@pytest.mark.parametrize("words", [["runbook"], ["runtimes", "--show"]])
def test_a_word_that_is_no_name_is_shown_without_its_password(capsys: Said, words: list[str]) -> None:
    assert run([*words, URL]) == 2
    said = "".join(capsys.readouterr())
    assert PLANTED not in said
    assert "***" in said


@check_rows("command", NEEDED)
def test_no_flag_shows_a_password(command: str, capsys: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spoke = 0
    for flag in flags_of(command, capsys):
        for words in ([flag, URL], [f"{flag}={URL}"]):
            run([command, *NEEDED[command], *words])
            said = "".join(capsys.readouterr())
            assert PLANTED not in said, f"{command} {flag}"
            spoke += "***" in said
    assert spoke > 3, "the flags were not read"


@check_rows("command", sorted(_COMMANDS))
@check_rows("words", [[URL], [f"--no-such-flag={URL}"], [f"-{URL}"]])
def test_no_word_out_of_place_shows_a_password(command: str, words: list[str], capsys: Said) -> None:
    assert run([command, *NEEDED.get(command, []), *words]) == 2
    said = "".join(capsys.readouterr())
    assert said
    assert PLANTED not in said


def test_no_unknown_command_shows_a_password(capsys: Said) -> None:
    assert run([URL]) == 2
    assert "".join(capsys.readouterr()).startswith('error: there is no command "http://***@127.0.0.1:9/x?token=***"')


@pytest.mark.parametrize("command", ["demo", "simulate"])
def test_a_command_that_serves_shows_none_where_it_refuses(command: str, capsys: Said) -> None:
    for flag in flags_of(command, capsys):
        with pytest.raises(SystemExit):
            demo_arguments([flag, URL, "--no-such-flag"]) if command == "demo" else main(
                [command, flag, URL, "--no-such-flag"]
            )
        assert PLANTED not in "".join(capsys.readouterr())


def test_no_variable_shows_a_password(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0
    for flag in flags_of("check-config", capsys):
        name = "LLM_SERVING_EXPORTER_" + re.sub("[.-]", "_", flag.removeprefix("--")).upper()
        with monkeypatch.context() as patch:
            patch.setenv(name, URL)
            run(["check-config", *NEEDED["check-config"]])
        said = "".join(capsys.readouterr())
        assert PLANTED not in said, name
        tried += name in said
    assert tried > 10, "the variables were not read"


def replaced(document: Any, put: str) -> Iterator[Any]:
    """The document once for each of its scalars, with `put` in the scalar's place."""
    if isinstance(document, dict):
        for key, value in document.items():
            for one in replaced(value, put):
                yield {**document, key: one}
    elif isinstance(document, list):
        for index, value in enumerate(document):
            for one in replaced(value, put):
                yield [*document[:index], one, *document[index + 1 :]]
    else:
        yield put


def test_no_key_of_a_configuration_shows_a_password(capsys: Said, tmp_path: Path) -> None:
    example = load_yaml((ROOT / "deploy" / "llm-serving-exporter.example.yml").read_text())
    example.setdefault("targets", ["http://127.0.0.1:9"])
    path, refused = tmp_path / "exporter.yml", 0
    for document in replaced(example, URL):
        path.write_text(yaml.safe_dump(document))
        refused += run(["check-config", "--config.file", str(path)]) == 2
        assert PLANTED not in "".join(capsys.readouterr()), path.read_text()
    assert refused > 5


@check_rows("text", [f"targets: [{URL}", f"a: &x {URL}\nb: *y\n", f"- {URL}\n", f"targets: {{'{URL}': 1}}\n"])
def test_no_file_that_cannot_be_read_shows_a_password(text: str, capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "exporter.yml").write_text(text)
    assert run(["check-config", "--config.file", str(tmp_path / "exporter.yml")]) == 2
    assert PLANTED not in "".join(capsys.readouterr())


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_no_log_line_shows_a_password_not_even_a_traceback(form: str) -> None:
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    try:
        logs.set_up("info", form, stream)
        try:
            raise OSError(f"cannot reach {URL}, Authorization: Bearer {PLANTED}")
        except OSError:
            logging.getLogger("llm_serving_exporter.target").exception("target %s failed", URL)
        logging.getLogger("urllib3").warning("retrying %s", URL)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert stream.getvalue().count("\n") == 2
    assert "http://***@127.0.0.1:9/x?token=***" in stream.getvalue()
    assert PLANTED not in stream.getvalue()
