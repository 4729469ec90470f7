"""`bills:` of report.yml and --bill: what they say is what is used, and faults are said before anything is read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.errors import ConfigError
from llm_serving_review.bills.files import Found
from llm_serving_review.settings.arguments import parser, settings_of
from llm_serving_review.settings.settings import BillSettings
from tests.support.builders import bills as made
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.fakeprometheus import FakePrometheus

ASK = ("--prometheus.url", "http://p:9090")


def read(text: str, folder: Path, *words: str) -> BillSettings | None:
    file = folder / "report.yml"
    file.write_text(text)
    return settings_of(parser().parse_args(["--config.file", str(file), *ASK, *words]), {})[0].bills


def problems(text: str, folder: Path, *words: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        read(text, folder, *words)
    return [str(problem).replace(f"{folder}/", "") for problem in refused.value.problems]


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "bills").mkdir()
    (tmp_path / "bills" / "one.csv").write_text("")
    (tmp_path / "map.csv").write_text(
        "\ufeffresource,target,node\r\ni-0abcdef0,a:8000,\r\ni-0abcdef0,b:8000,\r\narn:x/i-0abcdef1,,n1\r\n"
    )
    found = read(
        """
bills:
  paths: [bills, 'bills/*.csv']
  format: focus
  accounts: ["111122223333"]
  instance_types: [p5.*, ml.p5.*]
  gpus_per_instance: {p5.48xlarge: 8}
  mapping_file: map.csv
  tags: {"user:Model": model_name, team: workload}
""",
        tmp_path,
    )
    assert found == BillSettings(
        (str(tmp_path / "bills"), str(tmp_path / "bills" / "*.csv")), "focus", ("111122223333",), ("p5.*", "ml.p5.*"),
        {"p5.48xlarge": 8}, {"i-0abcdef0": (Found("target", "a:8000"), Found("target", "b:8000")), "i-0abcdef1": (Found("node", "n1"),)},
        {"user:Model": "model_name", "team": "workload"},
    )  # fmt: skip


def test_flags_win_over_the_files_paths_and_keep_the_rest(tmp_path: Path) -> None:
    bill = tmp_path / "b.csv"
    bill.write_text("")
    assert read("title: x", tmp_path) is None
    assert read("title: x", tmp_path, "--bill", str(bill), "--bill", str(tmp_path)) == BillSettings(
        (str(bill), str(tmp_path))
    )
    assert read("bills: {format: cur}", tmp_path, "--bill", str(bill)) == BillSettings((str(bill),), "cur")


def test_a_mapping_file_may_be_yaml(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("")
    (tmp_path / "map.yml").write_text("i-0abcdef0: {target: [a, b]}\ngce://p/z/n: {model_name: m}\n")
    found = read("bills: {paths: [b.csv], mapping_file: map.yml}", tmp_path)
    assert found.mapping == {
        "i-0abcdef0": (Found("target", "a"), Found("target", "b")),
        "gce/z/n": (Found("model_name", "m"),),
    }


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_mapping_file_may_come_from_a_spreadsheet(tmp_path: Path, delimiter: str) -> None:
    (tmp_path / "b.csv").write_text("")
    lines = ("resource,target", "i-0abcdef0,a:8000", ",")
    text = "\r\n".join(lines).replace(",", delimiter)
    (tmp_path / "map.csv").write_bytes(text.encode("utf-8-sig"))
    found = read("bills: {paths: [b.csv], mapping_file: map.csv}", tmp_path)
    assert found.mapping == {"i-0abcdef0": (Found("target", "a:8000"),)}


@check_rows(
    ("text", "said"),
    [
        ("bills: {paths: [none.csv]}", 'report.yml: bills.paths[0]: no file has this name: "'),
        ("bills: {paths: ['x/*.csv']}", "report.yml: bills.paths[0]: no file fits this pattern"),
        ("bills: {paths: []}", "report.yml: bills.paths: the list is empty. Write paths: [bills/*.csv.gz]."),
        ("bills: {format: csv}", 'report.yml: bills.format: "csv" is not a format. Write focus or cur.'),
        ("bills: {paths: [b.csv], tags: {team: teams}}", 'report.yml: bills.tags.team: "teams" is not a label.'),
        ("bills: {paths: [b.csv], tags: [team]}", "report.yml: bills.tags: must be a mapping (key: value), not a list."),
        ("bills: {paths: [b.csv], gpus_per_instance: {p5: 0}}", "report.yml: bills.gpus_per_instance.p5: 0 is out of range."),
        ("bills: {paths: [b.csv], account: x}", 'report.yml: bills.account: this key is not known. Did you mean accounts?'),
        ("bills: {paths: [b.csv], accounts: [123]}", "report.yml: bills.accounts[0]: YAML reads this value as a number, not as text."),
        ("bills: {paths: [b.csv], mapping_file: none.csv}", "none.csv: the file cannot be read: No such file or directory."),
        ("bills: {paths: [b.csv], mapping_file: bad.csv}", "bad.csv: the headers must be resource and one of target, node, workload or"),
        ("bills: {paths: [b.csv], mapping_file: half.csv}", "half.csv: line 2 has no target, node, workload or model_name."),
        ("bills: {paths: [b.csv], mapping_file: bad.yml}", "bad.yml: i-1: must be a mapping with target, node, workload or model_name."),
        ("bills: {paths: [b.csv], mapping_file: empty.yml}", "empty.yml: the file maps no machine."),
        ("bills: {accounts: ['1']}", "flag --bill: there is no bill to compare with. Give paths under bills: in the settings, or --bill."),
    ],
)  # fmt: skip
def test_faults_are_said_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    for name, content in (
        ("b.csv", ""), ("bad.csv", "machine,job\n"), ("half.csv", "resource,target\ni-1,\n"), ("bad.yml", "i-1: a:8000\n"),
        ("empty.yml", "# nothing yet\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
    (only,) = problems(text, tmp_path)
    assert only.startswith(said), only


def test_a_flags_path_without_a_bill(tmp_path: Path) -> None:
    assert problems("title: x", tmp_path, "--bill", "/none/x.csv") == [
        'flag --bill: no file has this name: "/none/x.csv". '
        "Give a .csv, .csv.gz, .csv.zip or .parquet file, a folder of them, or a pattern."
    ]


def test_the_example_of_the_documentation_is_taken(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(bills:.*?)```", (ROOT / "docs" / "report.md").read_text(), re.S)
    (tmp_path / "bills").mkdir()
    (tmp_path / "bills" / "2026-11.csv.gz").write_bytes(b"")
    (tmp_path / "machines.csv").write_text("resource,target\ni-0abcdef0,a:8000\n")
    found = read(example, tmp_path)
    assert (found.accounts, found.tags) == (("111122223333",), {"team-model": "model_name"})


# --- `report --bill` from the flag to the files, with what answers as Prometheus would


# Monday noon: the last complete week is 2026-W46, of which the last hour is younger than 72 h
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def report(out: Path, *words: str) -> int:
    with FakePrometheus(NOW) as server:
        return main(["report", "--prometheus.url", server.url, "--output-dir", str(out), *words])


def test_a_bill_is_compared_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bill = tmp_path / "bill.csv"
    bill.write_text(made.write_csv(made.list_focus_rows((made.SAME,))))
    mapped = tmp_path / "map.csv"
    mapped.write_text(f"resource,target\n{made.SAME.id},a:8000\n")
    (tmp_path / "report.yml").write_text("bills: {mapping_file: map.csv}\n")
    assert report(tmp_path / "out", "--config.file", str(tmp_path / "report.yml"), "--bill", str(bill)) == 0
    said = capsys.readouterr().out
    # the stand-in meters $672 of a:8000, without a word of its machines
    assert "Against the bill: Preliminary: metered $672.00 after commitments, billed $5,281.92 effective" in said
    page = (tmp_path / "out" / "cost-2026-W46.html").read_text()
    assert "<h2>Against the bill</h2>" in page
    assert "Metered, not billed" not in page


def test_a_bill_in_another_currency_leaves_the_review(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bill = tmp_path / "bill.csv"
    bill.write_text(made.write_csv(made.list_focus_rows((made.SAME,))).replace("USD", "CHF"))
    assert report(tmp_path, "--bill", str(bill)) == 0
    said = capsys.readouterr()
    assert "warning: The bill is not compared: " in said.err
    assert 'bill.csv, line 2, column BillingCurrency: the bill is in "CHF", not in USD' in said.err
    assert (tmp_path / "cost-2026-W46.html").exists()


def test_a_bill_that_is_not_there_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--prometheus.url", "http://127.0.0.1:1", "--bill", str(tmp_path / "none.csv")]) == 2
    assert "flag --bill: no file has this name" in capsys.readouterr().err
