"""promtool's verdict on rules, and what a promtool test rests on: the rules that its questions name, those that these read, and so on.

promtool evaluates every rule that it is given at every moment of every test; what nothing asked for reads takes most of its time.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path, PurePath
from typing import Any

from tests.pack.rulesets import as_yaml

Groups = list[dict[str, Any]]

_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
# series chosen by another thing than their whole name
_BY_PATTERN = re.compile(r'__name__\s*(=~|!=|!~)\s*"([^"]*)"')
# what Prometheus itself keeps of alerts
_STATES = re.compile(r"\bALERTS(?:_FOR_STATE)?\b(?P<matchers>\s*\{[^}]*\})?")
_ONE_ALERT = re.compile(r'\balertname\s*=\s*"')


def narrow_rules(document: Mapping[str, Any], files: Mapping[str, Groups]) -> dict[str, Groups]:
    """Of each rule file's groups the rules that the answers to a test file's questions rest on; a file without one is left out."""
    rules = [rule for groups in files.values() for group in groups for rule in group["rules"]]
    kept = _rests_on(document["tests"], rules)
    narrowed = {}
    for file, groups in files.items():
        shorter = [{**group, "rules": [rule for rule in group["rules"] if name_of(rule) in kept]} for group in groups]
        if found := [group for group in shorter if group["rules"]]:
            narrowed[file] = found
    return narrowed


def split_by_rules(document: Mapping[str, Any], rules: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A test file as several, of the tests that rest on the same rules: what one test asks for is not evaluated for another."""
    rules = list(rules)
    parts: dict[frozenset[str], list[Any]] = {}
    for test in document["tests"]:
        parts.setdefault(frozenset(_rests_on([test], rules)), []).append(test)
    for tests in parts.values():
        yield {**document, "tests": tests}


def _rests_on(tests: Iterable[Mapping[str, Any]], rules: Iterable[Mapping[str, Any]]) -> set[str]:
    tests = list(tests)
    questions = [one["expr"] for test in tests for one in test.get("promql_expr_test") or ()]
    return close_over(asked_alerts({"tests": tests}), questions, rules)


def write_narrowed(folder: Path, name: str, document: Mapping[str, Any], files: Mapping[str, Groups]) -> None:
    """Writes a test file and, by their names, those of the rule files' rules that its questions rest on."""
    narrowed = narrow_rules(document, files)
    for file, groups in narrowed.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(as_yaml({"groups": groups}), encoding="utf-8")
    (folder / name).write_text(as_yaml({**document, "rule_files": list(narrowed)}), encoding="utf-8")


def asked_alerts(document: Mapping[str, Any]) -> set[str]:
    """The alerts that a test file asks for."""
    return {one["alertname"] for test in document["tests"] for one in test.get("alert_rule_test") or ()}


def close_over(asked: set[str], questions: Iterable[str], rules: Iterable[Mapping[str, Any]]) -> set[str]:
    """Names of the rules that these alerts and expressions rest on. A name that stands anywhere in a rule's texts counts as read."""
    texts: dict[str, list[str]] = {}
    alerts = set()
    for rule in rules:
        found = [rule["expr"], *rule.get("labels", {}).values(), *rule.get("annotations", {}).values()]
        texts.setdefault(name_of(rule), []).extend(found)
        alerts |= {rule["alert"]} if "alert" in rule else set()
    open_ = {*(texts.keys() & asked), *(name for text in questions for name in _names_in(text, texts.keys(), alerts))}
    kept: set[str] = set()
    while open_:
        name = open_.pop()
        kept.add(name)
        open_ |= {read for text in texts[name] for read in _names_in(text, texts.keys(), alerts)} - kept
    return kept


def name_of(rule: Mapping[str, Any]) -> str:
    """The series that it records, or the alert's name."""
    return str(rule["record"] if "record" in rule else rule["alert"])


def kind_of(rule_file: str) -> str:
    """`records` of `rules/kv.records.yml` and of `/rendered/records.yml`."""
    return PurePath(rule_file).stem.rpartition(".")[2]


def _names_in(text: str, known: Set[str], alerts: set[str]) -> Iterator[str]:
    """Which of the known names a text may read: rather one too many than one too few."""
    yield from known & set(_NAME.findall(text))
    for operator, pattern in _BY_PATTERN.findall(text):
        # all but some is nearly all
        yield from (name for name in known if operator != "=~" or re.fullmatch(pattern, name))
    if any(not _ONE_ALERT.search(match["matchers"] or "") for match in _STATES.finditer(text)):
        yield from alerts


# --- promtool's verdict on rules ---


# another promtool, such as one of Prometheus 3, judges the same files: PROMTOOL=/path/to/promtool
PROMTOOL = os.environ.get("PROMTOOL") or "promtool"
# a third of promtool's time is its garbage collector's with Go's default of 100
_GO = {"GOGC": "400"}


def promtool() -> str:
    """The program."""
    program = shutil.which(PROMTOOL)
    assert program, f"{PROMTOOL} is missing; `make test` installs it"
    return program


def verdict(folder: Path, *names: str, timeout_seconds: float = 600.0) -> str:
    """What it says against files of unit tests in that folder; "" where all hold."""
    judged = subprocess.run(
        [promtool(), "test", "rules", *names],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        env={**os.environ, **_GO},
    )
    return "" if judged.returncode == 0 else judged.stdout + judged.stderr or f"{judged.returncode}"


def write_labels(labels: Mapping[str, str]) -> str:
    """Labels as PromQL writes them, and as promtool compares them."""
    return "{" + ", ".join(f'{label}="{text}"' for label, text in labels.items()) + "}"


def expect(expression: str, at: str, samples: Mapping[str, float]) -> dict[str, Any]:
    """A question: what an expression answers at a moment ("5m"), by the samples' names and labels."""
    found = [{"labels": labels, "value": value} for labels, value in samples.items()]
    return {"expr": expression, "eval_time": at, "exp_samples": found}


def ask(
    folder: Path,
    series: Mapping[str, str],
    questions: Iterable[Mapping[str, Any]],
    rules: Mapping[str, Groups] | None = None,
    *,
    order: Sequence[str] = (),
    interval: str = "1m",
    every: str = "1m",
) -> str:
    """promtool's verdict on questions about one history; "" where each is answered as expected.

    `series`: selector -> values, one an `interval`. `rules`: groups by the name of their file; what the questions rest on is evaluated
    `every` so often, in the order of the files unless another `order` of groups is given.
    """
    files = rules or {}
    names = [group["name"] for groups in files.values() for group in groups]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    document = {
        "evaluation_interval": every,
        # else promtool takes the groups in an order that differs from run to run, and an answer at the margin with it
        "group_eval_order": list(order or names),
        "tests": [{"interval": interval, "input_series": inputs, "promql_expr_test": list(questions)}],
    }
    write_narrowed(folder, "test.yml", document, files)
    return verdict(folder, "test.yml")
