"""Every recorded series is read by somebody: an alert, a panel, a runbook, the exporter's drills and reviews, or a document that says what
to ask. What only another record reads counts where that one is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import Record
from tests.simweek.build import queries, week_settings
from tests.support.paths import ROOT

_RECORD = re.compile(r"\b\w+:llm_serving_\w+:\w+")
# generated from the records themselves
_LISTS = {"records.md"}


def _readers() -> Iterator[str]:
    for rule in every_rule(rule_groups(week_settings())):
        if not isinstance(rule, Record):
            yield rule.expr
            yield from rule.annotations.values()
    yield from queries(week_settings())
    for folder, pattern in (("alerts/llm_serving_alerts/runbooks", "*.md"), ("docs", "*.md"), ("exporter", "**/*.py")):
        for path in (ROOT / folder).glob(pattern):
            if path.name not in _LISTS:
                yield path.read_text()


def unread(reads: Mapping[str, set[str]], first: set[str]) -> set[str]:
    """Records that are not among the first, nor read by what is. `reads`: by record, what it reads."""
    open_, found = list(first), set(first)
    while open_:
        more = reads.get(open_.pop(), set()) - found
        found |= more
        open_ += more
    return reads.keys() - found


def test_a_chain_that_nobody_reads_is_found() -> None:
    reads: dict[str, set[str]] = {"a": {"b"}, "b": set(), "c": {"d", "c"}, "d": {"b"}}
    assert unread(reads, {"a"}) == {"c", "d"}


def test_every_record_is_read() -> None:
    reads: dict[str, set[str]] = {}
    for rule in every_rule(rule_groups(week_settings())):
        if isinstance(rule, Record):
            reads.setdefault(rule.record, set()).update(_RECORD.findall(rule.expr))
    assert len(reads) > 100
    named = {name for text in _readers() for name in _RECORD.findall(text)}
    assert not unread(reads, named)
