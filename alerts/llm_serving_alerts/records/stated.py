"""What is stated of a model's replicas (how many are expected, what their drills came to): which fleet it is about.

It is stated for a model and role, with labels that tell fleets apart. Where one of `identity_labels` is left out there, or on the
targets, the two do not meet by their labels, and a fleet that is well would look as if all of it were lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import MODEL, Dialect, series
from llm_serving_alerts.rules import Record

KNOWN = "model:llm_serving_targets:count"
EXPECTED = "model:llm_serving_expected_replicas:max"
SUCCEEDED = "model:llm_serving_drill_success_timestamp_seconds:max"
FAILED = "model:llm_serving_drill_failed:max"
# before the name of a label of which all fleets of a model have the same
_ONLY = "only_"


def stated(dialect: Dialect) -> Iterator[Record]:
    """Whatever is stated of a model, with the labels of the fleet that is meant; none where only labels of the scrape tell fleets apart."""
    if dialect.own:
        for record, expression, about in (
            (EXPECTED, dialect.stated(series("expected_replicas")), "replicas that expected_replicas states"),
            (
                SUCCEEDED,
                dialect.stated(series("drill_last_success_timestamp_seconds")),
                "when a drill last passed, as a Unix time",
            ),
            (FAILED, failed_drills(dialect), "1 where the last drill failed"),
        ):
            yield Record(record, _place(dialect, expression), f"{about}, of the fleet that it is about")


def failed_drills(dialect: Dialect) -> str:
    """1 for each model whose last drill failed, by exporter."""
    by_model, by_exporter = dialect.labels(*MODEL), dialect.labels(*MODEL, "instance")
    run = dialect.stated(series("drill_last_run_timestamp_seconds"))
    # of two exporters with a file of results each, the one that knows of the later drill
    last = f"{run} == on ({by_model}) group_left () max by ({by_model}) ({run})"
    return f"{dialect.stated(series('drill_last_verdict', verdict='failed'))} == 1 and on ({by_exporter}) ({last})"


def _place(dialect: Dialect, expression: str) -> str:
    """A label that is not stated is that of the fleets of this model and role where all of them have the same; else it stays out."""
    by_model, of_all = dialect.labels(*MODEL), dialect.key(*MODEL)
    written = f"max by ({by_model}) ({expression})"
    filled = written
    for name in dialect.own:
        values = f"max by ({dialect.key(*MODEL, name)}) ({KNOWN})"
        only = f"({values} and on ({of_all}) count by ({of_all}) ({values}) == 1)"
        either = f'label_replace({only}, "{_ONLY}{name}", "$1", "{name}", "(.*)") or on ({of_all}) {KNOWN}'
        one = f"max by ({dialect.key(*MODEL, _ONLY + name)}) (({either}) > bool 0)"
        # what is stated stays
        joined = f"{filled} * on ({of_all}) group_left ({_ONLY}{name}) {one}"
        filled = f'label_replace({joined}, "{_ONLY}{name}", "$1", "{name}", "(.+)")'
    # two that come to mean the same fleet are one
    filled = f"max by ({dialect.key(*MODEL, *(_ONLY + name for name in dialect.own))}) ({filled})"
    for name in dialect.own:
        filled = f'label_replace({filled}, "{name}", "$1", "{_ONLY}{name}", "(.*)")'
    exact = f"{written} and on ({by_model}) {KNOWN}"
    gone = f"{written} unless on ({of_all}) {KNOWN}"
    return f"{exact} or on ({by_model}) max by ({by_model}) ({filled}) or on ({by_model}) {gone}"


def keep_clear(dialect: Dialect, record: str) -> str:
    """What is stated of a fleet that is there, or of one that none of those that are there can be. What may be about one of them, and does
    not say so, counts for none."""
    by_model, of_all = dialect.labels(*MODEL), dialect.key(*MODEL)
    clear = [f"{record} and on ({by_model}) {KNOWN}", f"{record} unless on ({of_all}) {KNOWN}"]
    for name in dialect.own:
        # all fleets that are there have this label, and none of them this value of it
        other = f'{record}{{{name}!=""}} unless on ({dialect.key(*MODEL, name)}) {KNOWN}'
        clear.append(f'{other} unless on ({of_all}) {KNOWN}{{{name}=""}}')
    return f"({' or '.join(clear)})"


def keep_unclear(dialect: Dialect, record: str) -> str:
    """The rest of it."""
    return f"{record} unless on ({dialect.labels(*MODEL)}) {keep_clear(dialect, record)}"
