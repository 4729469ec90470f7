"""What argparse says, in the words of each Python that we run on, and what becomes of it."""

from __future__ import annotations

import argparse

import pytest

from llm_serving_exporter.settings.flags import explain_usage_error
from tests.support.rows import check_rows


@check_rows(
    ("said", "told"),
    [
        (
            "argument --wait: expected one argument",
            "flag --wait: its value is missing. Write --wait VALUE, or --wait=VALUE where it begins with a dash.",
        ),
        # up to 3.11, and from 3.12 on without quotes
        (
            "argument --role: invalid choice: 'dcode' (choose from 'decode', 'prefill')",
            'flag --role: "dcode" is none of its values. Did you mean decode?',
        ),
        (
            "argument --role: invalid choice: 'x, y (z)' (choose from decode, prefill)",
            'flag --role: "x, y (z)" is none of its values. Known here: decode, prefill.',
        ),
        ("argument --seed: invalid int value: 'x'", 'flag --seed: "x" is not a whole number. See PROGRAM --help.'),
        ("argument -f/--flag: invalid float value: 'x'", 'flag --flag: "x" is not a value of it. See PROGRAM --help.'),
        ("argument --json: ignored explicit argument 'yes'", "flag --json: it takes no value. Write --json alone."),
        (
            "argument --watch: not allowed with argument --plan",
            "flag --watch: it does not go with --plan. Leave one of them away.",
        ),
        ("the following arguments are required: --a", "flag --a: missing. See PROGRAM --help for an example."),
        (
            "the following arguments are required: --a, --b",
            "flags --a and --b: missing. See PROGRAM --help for an example.",
        ),
        (
            "unrecognized arguments: a b",
            '"a b" is no flag, and this command takes no more words. Leave it away, or see PROGRAM --help.',
        ),
        ("argument --port: 'x' is not a port", "flag --port: 'x' is not a port."),
        ("argument --port: too large. Write 8000.", "flag --port: too large. Write 8000."),
        ("something else", "something else"),
    ],
)
def test_a_fault_is_told_with_its_flag_and_what_to_write(said: str, told: str) -> None:
    assert explain_usage_error(said, "PROGRAM") == told


@check_rows(
    ("words", "told"),
    [
        (["--choice", "c"], "is none of its values"),
        (["--number", "c"], "is not a whole number"),
        (["--number"], "its value is missing"),
        (["--switch=1"], "it takes no value"),
        (["--one", "--other"], "it does not go with"),
        ([], "flag --needed: missing"),
        (["--needed", "x", "more"], "is no flag"),
    ],
)
def test_this_pythons_argparse_is_understood(words: list[str], told: str) -> None:
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:
            raise ValueError(explain_usage_error(message, "PROGRAM"))

    parser = Parser()
    parser.add_argument("--choice", choices=("a", "b"))
    parser.add_argument("--number", type=int)
    parser.add_argument("--switch", action="store_true")
    parser.add_argument("--needed", required=True)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--one", action="store_true")
    either.add_argument("--other", action="store_true")
    with pytest.raises(ValueError, match=told):
        parser.parse_args(words)
