"""What an alert is declared with: its meaning in PromQL and words, written against the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_serving_alerts.promql import OWNERS, Dialect
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_exporter.settings.kinds import Kind

# --- Where dashboards show what an alert is about, and what their viewers choose by.

# the panel with which each dashboard below begins: alerts that fire about what its viewer chose
FIRING_PANEL = "What fires"

_OF_TARGETS = ("model_name", "role", "target")
# by UID of a dashboard the labels that its viewers choose by, beside the user's identity labels
CHOICES: Mapping[str, tuple[str, ...]] = {
    "llm-serving-phases": _OF_TARGETS,
    "llm-serving-latency": _OF_TARGETS,
    "llm-serving-kv": _OF_TARGETS,
    "llm-serving-cost": _OF_TARGETS,
    "llm-serving-exporter": _OF_TARGETS,
    "llm-serving-node-loss": ("model_name", "role"),
    "llm-serving-replica": ("model_name", "target"),
    "llm-serving-gpu": ("node", "gpu_name", "gpu"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel of a dashboard."""

    board: str  # its UID without `llm-serving-`
    panel: str = FIRING_PANEL  # its title; by default the one with the alert alone, where no figure says more

    @property
    def uid(self) -> str:
        """Of the dashboard."""
        return f"llm-serving-{self.board}"


DIGITS = "printf `%.4g`"  # for what may be below 1: humanize writes 0.8 as 800m


@dataclass(frozen=True, slots=True)
class Text:
    """What an alert says."""

    summary: str  # one line; the title of a notification
    description: str  # what was measured, and what it means
    action: str  # what to do first, a short sentence; it goes into the page's title


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert's declaration."""

    name: str  # without the prefix
    check: Check  # that it belongs to
    identity: tuple[str, ...]  # labels that a firing alert carries beside severity, check and the user's
    # severity of each rule -> what `write` is told: the setting that it compares with, or which windows; "" where there is one rule only
    tiers: Mapping[Severity, str]
    # when it fires, in PromQL, and what it says; from dialect, settings, the alert's own settings and the tier's setting
    write: Callable[[Dialect, Settings, AlertSettings, str], tuple[str, Text]]
    shown: Shown  # the panel that shows it, to which its link and the home dashboard lead
    values: Mapping[str, Kind[Any]] = field(default_factory=dict)  # its settings beside for, severity and labels
    needs: Callable[[Settings], bool] = lambda settings: True  # whether the settings ask for it at all
    separate: bool = (
        False  # its severities have conditions of their own: the quieter one does not hold whenever the louder does
    )
    # the time that it must hold is counted in its expression, within twice as long (Dialect.half): it may come and go
    halves: bool = False
    bare: bool = False  # it has no label of the scrape, not even the user's identity labels

    @property
    def choices(self) -> tuple[str, ...]:
        """Of its labels those that the dashboard which shows it can be narrowed to."""
        return tuple(name for name in self.identity if name in CHOICES[self.shown.uid])


def label(name: str) -> str:
    """A label of the firing alert in a template."""
    return f"{{{{ $labels.{name} }}}}"


def value(how: str = "humanize") -> str:
    """The alert's value in a template: `humanizePercentage`, `humanizeDuration`, `humanize`."""
    return f"{{{{ $value | {how} }}}}"


def alert_matchers(names: Sequence[str]) -> tuple[str, str]:
    """PromQL matchers for these labels of the firing alert: the text for printf in a template, and its arguments."""
    return ",".join(f"{name}=%q" for name in names), " ".join(f"$labels.{name}" for name in names)


def lookup(dialect: Dialect, record: str, level: tuple[str, ...], how: str) -> str:
    """Another series of the same identity in a template, "unknown" where there is none: what may change must not be a label."""
    return ask(dialect, f"{record}{{%s}}", level, how)


def ask(dialect: Dialect, query: str, level: tuple[str, ...], how: str) -> str:
    """The first answer to a query in a template, likewise. `query`: with %s where the matchers of the alert's identity belong."""
    names = (*dialect.identity_of(level), *level)
    matchers, values = alert_matchers(names)
    text = query.replace("%s", matchers)
    return show_first(f"printf `{text}` {values}" if names else f"`{text}`", how)


def show_first(query: str, how: str) -> str:
    """The first answer to a query that a template makes, "unknown" where there is none."""
    return f"{{{{ with {query} | query }}}}{{{{ . | first | value | {how} }}}}{{{{ else }}}}unknown{{{{ end }}}}"


def say_each(query: str, sort: str, words: str, between: str = ", ") -> str:
    """Words about each answer to a query that a template makes, `$one`, by the label that sorts them."""
    answers = f'{query} | sortByLabel "{sort}"'
    return f"{{{{ range $i, $one := {answers} }}}}{{{{ if $i }}}}{between}{{{{ end }}}}{words}{{{{ end }}}}"


def owners_only(dialect: Dialect) -> tuple[str, str]:
    """What narrows a query of scraped series, whose targets' own labels may be renamed, to those of the firing alert: its end for printf in
    a template, and further arguments."""
    matchers, values = alert_matchers(dialect.own)
    return (f" and on ({dialect.key('target')}) {OWNERS}{{{matchers}}}", f" {values}") if dialect.own else ("", "")


def of_model(dialect: Dialect) -> str:
    """Model and role of the firing alert, for the beginning of a summary, with the user's identity labels."""
    return _scope(
        dialect,
        f"{{{{ with $labels.model_name }}}}{{{{ . }}}}{{{{ else }}}}a model without a name{{{{ end }}}} ({label('role')})",
    )


def of_target(dialect: Dialect) -> str:
    """Model and target of the firing alert, likewise; a target that never answered may not know its model."""
    return _scope(dialect, f"{{{{ with $labels.model_name }}}}{{{{ . }}}} on {{{{ end }}}}{label('target')}")


def of_fleet(dialect: Dialect) -> str:
    """The identity labels of the whole fleet, for the beginning of a summary about everything."""
    return "".join(f"{label(name)} " for name in dialect.external)


def _scope(dialect: Dialect, what: str) -> str:
    # one that is not known leaves no gap
    return "".join([*(f"{{{{ with $labels.{name} }}}}{{{{ . }}}} {{{{ end }}}}" for name in dialect.identity), what])
