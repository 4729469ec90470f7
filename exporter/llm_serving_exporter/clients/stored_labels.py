"""PromQL for series of targets by labels that tell fleets apart, as Prometheus may have stored them.

A target's own labels (namespace, team) all stand on `llm_serving_target_info`, and on other series only where `target_labels` names them.
A scrape without `honor_labels` may have put one of its own in the place of any of them, and kept ours as exported_….
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.catalogue.health import TARGET_INFO, WRITTEN_LABELS
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS
from llm_serving_exporter.model.text import escape_label_value

# which exporter says something of which target
_SAID_BY = "job, instance, target"


def take_exported(expression: str, *labels: str) -> str:
    """The series with these labels as the exporter wrote them. Where a scrape without `honor_labels` puts one of its own in their place,
    Prometheus keeps ours as exported_<label>."""
    for label in labels:
        expression = f'label_replace({expression}, "{label}", "$1", "exported_{label}", "(.+)")'
    return expression


def read_label(labels: Mapping[str, str], name: str) -> str:
    """The same of one stored series: its label as the exporter wrote it, "" where it wrote none."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def loose_matchers(labels: Mapping[str, str]) -> str:
    """Matchers for series of targets that leave out none of these labels: what a scrape adds to all series is there, what a target has of
    its own may be missing or renamed. "" where there is nothing to leave out."""
    return ",".join(
        f'{name}=~"{escape_label_value(escape_regex(text))}|"'
        for name, text in labels.items()
        if name not in IDENTITY_LABELS
    )


def targets_only(labels: Mapping[str, str], duration: str) -> str:
    """What narrows an expression over series of targets to those targets that have had these labels within a duration; "" for no labels.
    The series must have their job and instance still."""
    found = ""
    for name, text in labels.items():
        value = escape_label_value(text)
        kept, renamed = (
            f"last_over_time({TARGET_INFO.full_name}{{{matchers}}}[{duration}])"
            for matchers in (f'{name}="{value}",exported_{name}=""', f'exported_{name}="{value}"')
        )
        # where a scrape renames the label, one that is not renamed is the scrape's
        scrape = f'last_over_time({WRITTEN_LABELS.full_name}{{exported_{name}!=""}}[{duration}])'
        found += f" and on ({_SAID_BY}) ({kept} unless on (job, instance) {scrape} or {renamed})"
    return found


def escape_regex(text: str) -> str:
    """A text as a regular expression of PromQL that matches it and nothing else."""
    # RE2's special characters; what Python escapes beside them RE2 refuses
    return "".join(f"\\{character}" if character in r"\.+*?()|[]{}^$" else character for character in text)
