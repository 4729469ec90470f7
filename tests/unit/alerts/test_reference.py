"""The generated references of records and alerts, the page about N-1, and the names of the check cost that others rely on."""

import math
import re

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.reference import alerts_md, record_labels, records_md
from llm_serving_alerts.render import RECORDS, every_rule, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from tests.pack.fleets_node_loss import _CAPACITY, _NODES, _ROLES, N1_LOAD, SUFFICIENT
from tests.pack.samples import Fleet
from tests.pack.write import all_documents
from tests.support.paths import ROOT
from tests.support.rows import check_rows

SETTINGS = default_settings()
GROUPS = rule_groups(SETTINGS)
# of one record, with nothing that changes its labels
PLAIN = re.compile(
    r"(?:(?:round|abs)\()?([a-z_]+:llm_serving_\w+:\w+)(?:\{[^}]*\})?(?: [*/] [\d.]+)?[^a-z]*(?:< bool [\d.]+)?\Z"
)


def cells(text: str) -> list[list[str]]:
    """The rows of a page's tables, without heads and rules."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] not in ("record", "check", "level")]


def test_the_labels_of_a_record_are_those_that_promtool_was_shown() -> None:
    documented = record_labels(GROUPS[RECORDS])
    seen = set()
    for name_of_file, document in all_documents().items():
        # what a settings file adds is another page
        tests = [] if "cluster" in name_of_file else document["tests"]
        for question in (one for test in tests for one in test.get("promql_expr_test") or ()):
            name = PLAIN.match(question["expr"])
            for sample in question["exp_samples"] if name else ():
                labels = set(re.findall(r'(\w+)="', sample["labels"]))
                # a kind of GPU that nobody knows is no label
                assert labels | {"gpu_name"} == set(documented[name[1]]) | {"gpu_name"}, question
                seen.add(name[1])
    levels = {name.split(":")[0] for name in seen}
    assert levels >= {"target", "model", "model_gpu", "model_node", "fleet"}
    assert len(seen) > 40


def test_every_record_is_there_once_with_its_meaning() -> None:
    rows = [row for row in cells(records_md(SETTINGS)) if ":" in row[0]]
    names = [rule.record for rule in every_rule({RECORDS: GROUPS[RECORDS]}) if isinstance(rule, Record)]
    assert [row[0].strip("`") for row in rows] == list(dict.fromkeys(names))
    assert all(rule.about for rule in every_rule({RECORDS: GROUPS[RECORDS]}) if isinstance(rule, Record))
    assert all(len(row) == 2 for row in rows)


def test_every_alert_is_there_with_its_default_settings_and_its_runbook() -> None:
    rows = {re.match(r"\[(\w+)\]", row[1])[1]: row for row in cells(alerts_md(SETTINGS))}
    assert list(rows) == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        check, link, severity, _lasting, when, settings = rows[alert.name]
        runbook = re.search(r"\((.*)\)", link)
        assert (ROOT / "docs" / runbook[1]).is_file()
        assert check == alert.check.value
        assert when
        assert severity.removesuffix(" (not by default)") == ", ".join(one.value for one in alert.tiers)
        assert [part.split(":")[0].strip("`") for part in settings.split(", ") if part != "–"] == list(alert.values)
    # by settings.yml
    assert rows["KVSaturated"][3:] == [
        "10m of 20m",
        "the KV cache is full, or will be soon, and requests wait",
        "`above: 0.95`, `filling_above: 0.8`, `within: 15m`",
    ]
    assert rows["DrillOverdue"][2] == "info (not by default)"


# --- docs/internals-n1.md: its examples are the fleets that promtool judges ---


PAGE = (ROOT / "docs/internals-n1.md").read_text()
FLEETS = {fleet.model_name: fleet for fleet in (*_NODES, *_CAPACITY, *_ROLES)}
ROWS = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| ([\d./ +]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)


def expected(fleet: Fleet, record: str, **labels: str) -> float | None:
    found = [one.value for one in fleet.expected if one.record == record and one.labels == labels]
    assert len(found) == 1
    return found[0]


def total(sums: str) -> float:
    """`600/1200 + 180/600`"""
    return math.fsum(float(over) / float(under) for over, under in (part.split("/") for part in sums.split(" + ")))


@check_rows(("name", "sums", "value"), ROWS)
def test_an_example_is_the_tests_and_its_sum_is_right(name: str, sums: str, value: str) -> None:
    assert expected(FLEETS[name], N1_LOAD, resource="phases") == float(value)
    assert round(total(sums), 3) == float(value)


def test_there_are_examples() -> None:
    assert len(ROWS) == 10


def test_what_has_no_number_has_none() -> None:
    sentence = PAGE.split("And where there is no number:")[1].split("## ")[0]
    unknown = re.findall(r"`([\w-]+)` \(", sentence)
    assert len(unknown) == 5
    assert [expected(FLEETS[name], SUFFICIENT) for name in unknown] == [None] * 5
    assert expected(FLEETS["unknown-short"], SUFFICIENT) == 0
