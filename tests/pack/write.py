"""All cases as files for promtool: `python -m tests.pack.write FOLDER` writes them with their rules."""

import sys
from pathlib import Path

from tests.pack import (
    cases_cost,
    cases_exporter,
    cases_exporters,
    cases_gpu,
    cases_identity,
    cases_kv,
    cases_node_lost,
    cases_outliers,
    cases_phases,
    cases_redundancy,
    cases_rollouts,
    cases_signals,
    cases_slo,
    cases_targets,
    cases_ttft,
    cases_vanished,
    fleets_node_loss,
    records,
    records_cost,
)
from tests.pack.judging import kind_of, narrow_rules, split_by_rules
from tests.pack.promtool import RENDERED, Case, Document, Sampled, attach_rules, document, documents
from tests.pack.rulesets import as_yaml, read_groups

CHECKS: dict[str, tuple[Case, ...]] = {
    "phases": (*cases_phases.CASES, *cases_outliers.CASES),
    "ttft": cases_ttft.CASES,
    "slo": cases_slo.CASES,
    "kv": cases_kv.CASES,
    "tail": cases_kv.TAIL_CASES,
    "node_loss": (*cases_redundancy.CASES, *cases_rollouts.CASES, *cases_node_lost.CASES, *cases_vanished.CASES),
    "cost": cases_cost.CASES,
    "gpu": cases_gpu.CASES,
    "exporter": (
        *cases_targets.CASES,
        *cases_identity.CASES,
        *cases_exporters.EVALUATION_CASES,
        *cases_exporter.CASES,
        *cases_signals.CASES,
        *cases_exporters.CASES,
        *cases_node_lost.EXPORTER_CASES,
        *cases_vanished.EXPORTER_CASES,
    ),
}
# with how often the rules are evaluated: a baseline of a week is looked at four times a day
RECORDS: dict[str, tuple[tuple[Sampled, ...], str]] = {
    "records": (records.OF_MINUTES, "1m"),
    "baselines": ((*records.OF_DAYS, *records_cost.OF_DAYS), "6h"),
}


def all_documents() -> dict[str, Document]:
    """Every test file by name."""
    found = {name: made for check, cases in CHECKS.items() for name, made in documents(check, cases).items()}
    for name, (sampled, evaluated) in RECORDS.items():
        found[f"{name}.yml"] = attach_rules(document((), sampled, evaluated), RENDERED[:1])
    sampled_fleets = (
        cases_kv.SAMPLES, cases_kv.TAIL_SAMPLES, cases_rollouts.SAMPLES, fleets_node_loss.SAMPLES,
        fleets_node_loss.REQUIRED_SAMPLES, records_cost.SAMPLES,
    )  # fmt: skip
    return {name: made for part in (found, *sampled_fleets) for name, made in part.items()}


def write_document(folder: Path, name: str, made: Document) -> list[str]:
    """Writes a test file, as several where its tests rest on different rules, and into the folder `rules` beside it those rules. The names
    of the test files."""
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    files = {file: read_groups(file) for file in made["rule_files"]}
    rules = [rule for groups in files.values() for group in groups for rule in group["rules"]]
    names = []
    for number, part in enumerate(split_by_rules(made, rules)):
        stem = name.removesuffix(".yml") + (f".{number}" if number else "")
        rule_files = []
        for file, groups in narrow_rules(part, files).items():
            rule_files.append(f"rules/{stem}.{kind_of(file)}.yml")
            (folder / rule_files[-1]).write_text(as_yaml({"groups": groups}), encoding="utf-8")
        names.append(f"{stem}.yml")
        (folder / names[-1]).write_text(as_yaml({**part, "rule_files": rule_files}), encoding="utf-8")
    return names


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for file_name, made in all_documents().items():
        write_document(target, file_name, made)
