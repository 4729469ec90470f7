"""Writes alerts/tests/ from the cases: `python -m tests.pack.write`."""

from __future__ import annotations

from pathlib import Path

from tests.pack import (
    cases_cost_review,
    cases_cost_spend,
    cases_cost_tokens,
    cases_exporter,
    cases_gpu,
    cases_kv,
    cases_n1,
    cases_phases,
    cases_redundancy,
    cases_slo,
    cases_tail,
    cases_targets,
    cases_ttft,
    fleets_node_loss,
    fleets_required,
    records,
    records_cost,
    rulesets,
)
from tests.pack.promtool import FOLDER, RENDERED, Case, Sampled, document, files, text_of

CHECKS: dict[str, tuple[Case, ...]] = {
    "phases": cases_phases.CASES,
    "ttft": cases_ttft.CASES,
    "slo": cases_slo.CASES,
    "kv": cases_kv.CASES,
    "tail": cases_tail.CASES,
    "node_loss": (*cases_n1.CASES, *cases_redundancy.CASES),
    "cost": (*cases_cost_tokens.CASES, *cases_cost_spend.CASES, *cases_cost_review.CASES),
    "gpu": cases_gpu.CASES,
    "exporter": (*cases_targets.CASES, *cases_exporter.CASES),
}
# with how often the rules are evaluated: a baseline of a week is looked at four times a day
RECORDS: dict[str, tuple[tuple[Sampled, ...], str]] = {
    "records": (records.OF_MINUTES, "1m"),
    "baselines": ((*records.OF_DAYS, *records_cost.OF_DAYS), "6h"),
}


def texts() -> dict[str, str]:
    """Every file by name."""
    found = {name: text for check, cases in CHECKS.items() for name, text in files(check, cases).items()}
    for name, (sampled, evaluated) in RECORDS.items():
        found[f"{name}.yml"] = text_of(document((), sampled, evaluated), RENDERED[:1])
    sampled_fleets = (
        cases_kv.SAMPLES,
        cases_tail.SAMPLES,
        fleets_node_loss.SAMPLES,
        fleets_required.SAMPLES,
        records_cost.SAMPLES,
    )
    return {name: text for part in (found, *sampled_fleets) for name, text in part.items()}


if __name__ == "__main__":
    for folder, made in ((FOLDER, texts()), (rulesets.FOLDER, rulesets.rendered())):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.yml"):
            old.unlink()
        for file_name, file_text in made.items():
            Path(folder, file_name).write_text(file_text, encoding="utf-8")
