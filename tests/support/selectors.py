"""Selectors of PromQL expressions, and the series of golden pages that they match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from prometheus_client.parser import text_string_to_metric_families

from llm_serving_alerts.promql_tree import list_selectors, parse
from tests.support.paths import TESTS

Labels = Mapping[str, str]

_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*,?')
# a word of a runbook that its reader replaces, such as MODEL and GPU-UUID
_PLACEHOLDER = re.compile(r"[A-Z][A-Z-]+")
# what a scrape puts on every series: the exporter does not say it
_OF_THE_SCRAPE = {"job", "instance"}
# before a label of the exporter's that a scrape without honor_labels has put its own in the place of
_RENAMED = "exported_"


@dataclass(frozen=True)
class Matcher:
    """A condition on one label."""

    label: str
    operator: str  # =, !=, =~ or !~
    value: str  # as it is written; of a runbook it may be a word that the reader is to replace by what is there

    def admits(self, labels: Labels) -> bool:
        """Whether series with these labels are chosen, as Prometheus chooses: a label that is not there is ""."""
        found = labels.get(self.label.removeprefix(_RENAMED), "")
        if _PLACEHOLDER.fullmatch(self.value):
            return found != ""
        holds = re.fullmatch(self.value, found) is not None if "~" in self.operator else found == self.value
        return holds is not self.operator.startswith("!")


@dataclass(frozen=True)
class Selector:
    """What an expression reads."""

    name: str  # of the series, or a regular expression for it
    matchers: tuple[Matcher, ...]

    def __str__(self) -> str:
        matchers = ",".join(f'{one.label}{one.operator}"{one.value}"' for one in self.matchers)
        return f"{self.name}{{{matchers}}}" if matchers else self.name

    def admits(self, labels: Labels) -> bool:
        """Whether series of its name with these labels are chosen; what the scrape says of them is left out."""
        return all(one.admits(labels) for one in self.matchers if one.label not in _OF_THE_SCRAPE)


def read_selectors(expression: str) -> Iterator[Selector]:
    """Every selector of an expression, as often as it stands there. Where a matcher lists names it is one for each of them, unless it looks
    for labels that a scrape has renamed: those it need not find on all."""
    for leaf in list_selectors(parse(expression)):
        name, _, rest = leaf.text.partition("{")
        found = [Matcher(*one) for one in _MATCHER.findall(rest.removesuffix("}"))]
        names = [name] if name else [one.value for one in found if one.label == "__name__"]
        own = tuple(one for one in found if one.label != "__name__")
        renamed = any(one.label.startswith(_RENAMED) for one in own)
        for each in names:
            yield from (Selector(part, own) for part in ([each] if renamed else each.split("|")))


@cache
def read_golden_series() -> Mapping[str, Sequence[Labels]]:
    """The labels of every series of all golden pages, by the series' name."""
    found: dict[str, list[Labels]] = {}
    for page in sorted((TESTS / "golden").glob("*.prom")):
        for family in text_string_to_metric_families(page.read_text()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


def find_unmatched(selectors: Iterable[Selector]) -> set[Selector]:
    """Those of them that choose no series of any golden page."""
    pages = read_golden_series()
    return {
        one
        for one in set(selectors)
        if not any(
            one.admits(labels) for name, found in pages.items() if re.fullmatch(one.name, name) for labels in found
        )
    }
