"""The flags of every command: one parser with one vocabulary.

A flag that does not exist is refused with the nearest one that does. The old name of a flag goes on working for one version, with a
warning that names the new one, and so do durations without a unit where a command once took them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from llm_serving_exporter import __version__
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.text import hide_credentials
from llm_serving_exporter.settings.kinds import LONGEST_SECONDS, Kind, format_duration, parse_duration
from llm_serving_exporter.settings.problems import InvalidValueError, Place, did_you_mean, listed, nearest, shown
from llm_serving_exporter.terminal import print_line, print_message

PROGRAM = "llm-serving-exporter"
# by command: old name -> new name. An entry stays for one version after the one that renamed the flag.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "rules": {"--config": "--config.file"},
    "dashboards": {"--config": "--config.file", "--out": "--output-dir"},
    "drill": {
        "--prometheus-url": "--prometheus.url",
        "--prometheus-bearer-token-file": "--bearer-token-file",
        "--prometheus-username": "--username",
        "--prometheus-password-file": "--password-file",
        "--alertmanager-url": "--alertmanager.url",
        "--alertmanager-bearer-token-file": "--alertmanager.bearer-token-file",
        "--alertmanager-username": "--alertmanager.username",
        "--alertmanager-password-file": "--alertmanager.password-file",
        "--grafana-url": "--grafana.url",
        "--grafana-bearer-token-file": "--grafana.bearer-token-file",
        "--output": "--output-dir",
        "--result-file": "--drill.result-file",
    },
    "report": {"--prometheus": "--prometheus.url", "--settings": "--config.file", "--out": "--output-dir"},
    "demo": {"--listen": "--web.listen-address"},
    "drill_demo": {  # what `make drill` runs
        "--output": "--output-dir"
    },
    "page-test": {"--alertmanager": "--alertmanager.url", "--url": "--pagerduty.url"},
}
T = TypeVar("T")
_NEGATIVE_NUMBER = re.compile(r"-\.?[0-9].*")
# what commands took before every duration needed a unit
_OLD_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([smh]?)")
_OLD_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def add_rows(group: argparse._ActionsContainer, rows: Iterable[tuple[Any, ...]]) -> None:
    """Adds flags, a row each: its names, the word for its value (None: it has none), help, and what else argparse is told, if anything."""
    for flag, metavar, about, *more in rows:
        named = {} if metavar is None else {"metavar": metavar}
        group.add_argument(*flag.split(), help=about, **named, **(more[0] if more else {}))


class CommandParser(argparse.ArgumentParser):
    """The parser of one command. `command` is its name, "run" for the daemon, under which `RENAMED` has its old flags.

    Ends the process with status 2 for words that it cannot use, as argparse does.
    """

    def __init__(
        self, command: str, *, description: str, usage: str | None = None, epilog: str | None = None, prog: str = ""
    ) -> None:
        super().__init__(
            prog=prog or (PROGRAM if command == "run" else f"{PROGRAM} {command}"),
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._renamed = RENAMED.get(command, {})
        self.add_argument("--version", action=_Version, help="show the version and the revision, and exit")

    # argparse's overloads tell kinds of namespaces apart, of which there is one here
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """What argparse makes of the words, after old names have become new ones and every flag is known to exist."""
        words = self._with_new_names(sys.argv[1:] if args is None else args)
        # as argparse has it: a word with a space in it is a value
        for word in takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            is_value = " " in word or word == "-" or _NEGATIVE_NUMBER.fullmatch(word)
            if word.startswith("-") and not is_value and name not in self._option_string_actions:
                self._refuse(name)
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Ends the process: what is wrong, at which flag, and what to write."""
        super().error(explain_usage_error(message, self.prog))

    def _print_message(self, message: str, file: Any = None) -> None:
        """What argparse says, which may quote a word of the command line."""
        super()._print_message(hide_credentials(message), file)

    def _with_new_names(self, words: Sequence[str]) -> list[str]:
        """The words with new names for old ones; prints one warning for each name that changed."""
        renamed: list[str] = []
        warned: set[str] = set()
        for position, word in enumerate(words):
            if word == "--":
                return [*renamed, *words[position:]]
            name, equals, value = word.partition("=")
            new = self._renamed.get(name)
            if new is not None and name not in warned:
                warned.add(name)
                print_message(f"warning: flag {name} is now {new}; the next version knows the new name only")
            renamed.append(word if new is None else f"{new}{equals}{value}")
        return renamed

    def _refuse(self, name: str) -> None:
        by_word = {flag.lstrip("-"): flag for flag in self._option_string_actions}
        begun = [word for word in by_word if word.startswith(name.lstrip("-"))]
        near = begun[0] if len(begun) == 1 else nearest(name.lstrip("-"), by_word)
        fix = f"Did you mean {by_word[near]}?" if near is not None else f"See {self.prog} --help."
        self.error(f"there is no flag {name}. {fix}")


class _Version(argparse.Action):
    """`--version`. The revision is looked up when somebody asks for it: in a source checkout git is asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print_line(f"{PROGRAM} {__version__} (revision {revision()})")
        parser.exit()


def duration(text: str) -> float:
    """A duration as argparse takes it, in seconds. Raises argparse.ArgumentTypeError."""
    try:
        return parse_duration(text)
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def duration_once_bare(flag: str, least: float = 0.0, most: float = LONGEST_SECONDS) -> Callable[[str], float]:
    """The same for a flag that once took seconds without a unit, as in 5 or 0.5m: they still do, with a warning that says what to write.

    `least`, `most`: seconds that it may be.
    """

    def parse(text: str) -> float:
        seconds = read(text)
        if not least <= seconds <= most:
            bounds = f"{format_duration(least)} to {format_duration(most)}"
            raise argparse.ArgumentTypeError(f"{shown(text)} is not within {bounds}. Write a duration such as 5s.")
        return seconds

    def read(text: str) -> float:
        try:
            return parse_duration(text)
        except InvalidValueError as error:
            old = _OLD_DURATION.fullmatch(text)
            if old is None:
                raise argparse.ArgumentTypeError(str(error)) from error
        seconds = float(old[1]) * _OLD_UNITS[old[2]]
        print_message(
            f"warning: flag {flag}: write {format_duration(seconds)} instead of {shown(text)}, which the next version refuses"
        )
        return seconds

    parse.__name__ = "duration"  # argparse's messages say it
    return parse


class FlagReader:
    """Texts of the command line -> values of their kinds. Every fault is kept in `problems`, so that they are reported together."""

    def __init__(self, arguments: argparse.Namespace, problems: list[Problem] | None = None) -> None:
        self._arguments = arguments
        self.problems: list[Problem] = [] if problems is None else problems

    def text(self, flag: str) -> Any:
        """As it was given (a list for a flag that may be repeated), None where it was not. `flag` as in "--config.file"."""
        return getattr(self._arguments, attribute(flag))

    def value(self, flag: str, kind: Kind[T]) -> T | None:
        """Its value; None where it is not given, or cannot be used, which is then reported."""
        text = self.text(flag)
        return None if text is None else kind.read(text, self._place(flag))

    def values(self, flag: str, kind: Kind[T]) -> tuple[T, ...]:
        """The values of a flag that may be repeated, each once."""
        values = (kind.read(text, self._place(flag)) for text in self.text(flag) or ())
        return tuple(dict.fromkeys(content for content in values if content is not None))

    def refuse(self, flag: str, what: str, fix: str = "") -> None:
        """Reports a fault of a flag; reading goes on."""
        self._place(flag).refuse(what, fix)

    def _place(self, flag: str) -> Place:
        return Place(f"flag {flag}", "", self.problems)


def attribute(flag: str) -> str:
    """The attribute of the namespace: "config_file" of "--config.file". For argparse's `dest`, which else keeps the dot."""
    return re.sub(r"[.-]", "_", flag.removeprefix("--"))


# --- argparse's messages -> what is wrong, at which flag, and what to write --------------------------------------------


def explain_usage_error(message: str, program: str) -> str:
    """A sentence on the fault and one on what to do. `program`: the words before the flags, whose --help says more."""
    for pattern, explain in _EXPLANATIONS.items():
        if (match := re.fullmatch(pattern, message, re.DOTALL)) is not None:
            return explain(program, *match.groups())
    return message


def _explain_choice(program: str, flag: str, word: str, choices: str) -> str:
    # quoted up to Python 3.11, and not later
    words = [choice.strip().strip("'\"") for choice in choices.split(",")]
    return (
        f"flag {_longest(flag)}: {shown(_unquote(word))} is none of its values. {did_you_mean(_unquote(word), words)}"
    )


def _explain_missing(program: str, flags: str) -> str:
    names = [_longest(name) for name in flags.split(", ")]
    return f"{'flag' if len(names) == 1 else 'flags'} {listed(names, 'and')}: missing. See {program} --help for an example."


def _longest(names: str) -> str:
    """Of "-o/--output" the second."""
    return max(names.split("/"), key=len)


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


# the first that fits; argparse has no other way to tell one fault from another
_EXPLANATIONS: Mapping[str, Callable[..., str]] = {
    r"argument (\S+): expected one argument": lambda program, flag: (
        f"flag {_longest(flag)}: its value is missing. "
        f"Write {_longest(flag)} VALUE, or {_longest(flag)}=VALUE where it begins with a dash."
    ),
    r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)": _explain_choice,
    r"argument (\S+): invalid (\S+) value: (.*)": lambda program, flag, kind, word: (
        f"flag {_longest(flag)}: {shown(_unquote(word))} is not {'a whole number' if kind == 'int' else 'a value of it'}. "
        f"See {program} --help."
    ),
    r"argument (\S+): ignored explicit argument .*": lambda program, flag: (
        f"flag {_longest(flag)}: it takes no value. Write {_longest(flag)} alone."
    ),
    r"argument (\S+): not allowed with argument (\S+)": lambda program, flag, other: (
        f"flag {_longest(flag)}: it does not go with {_longest(other)}. Leave one of them away."
    ),
    r"the following arguments are required: (.*)": _explain_missing,
    r"unrecognized arguments: (.*)": lambda program, words: (
        f"{shown(words)} is no flag, and this command takes no more words. Leave it away, or see {program} --help."
    ),
    r"argument (\S+): (.*)": lambda program, flag, fault: (
        f"flag {_longest(flag)}: {fault if fault.endswith('.') else f'{fault}.'}"
    ),
}


# --- the revision of the source: written into the package when it is built, asked of git in a checkout -----------------

_PACKAGE = Path(__file__).resolve().parents[1]
BUILT = "REVISION"  # what hatch_build.py puts into a wheel
UNKNOWN = "unknown"
_PATIENCE_SECONDS = 5.0


def revision(package: Path = _PACKAGE) -> str:
    """The git commit, "-dirty" after it where the checkout has changes; "unknown" where neither the build nor git says it."""
    try:
        return (package / BUILT).read_text(encoding="ascii").strip() or UNKNOWN
    except (OSError, ValueError):
        return _ask_git(package)


def _ask_git(package: Path) -> str:
    root, git = package.parents[1], shutil.which("git")
    # installed into an environment inside somebody else's repository, that repository is not ours
    if git is None or package.parent.name != "exporter" or not (root / ".git").exists():
        return UNKNOWN
    # here alone: nothing else that every command loads starts a program
    import subprocess

    command = [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        # a program found on PATH, arguments of ours, no shell
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
