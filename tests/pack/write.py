"""Writes alerts/tests/ from the cases: `python -m tests.pack.write`."""

from __future__ import annotations

from pathlib import Path

from tests.pack import cases_exporter, cases_phases, cases_slo, cases_ttft
from tests.pack.promtool import FOLDER, Case, Sampled, files

CHECKS: dict[str, tuple[Case, ...]] = {
    "phases": cases_phases.CASES,
    "ttft": cases_ttft.CASES,
    "slo": cases_slo.CASES,
    "exporter": cases_exporter.CASES,
}
RECORDS: dict[str, tuple[Sampled, ...]] = {}


def texts() -> dict[str, str]:
    """Every file by name."""
    found = {name: text for check, cases in CHECKS.items() for name, text in files(check, cases).items()}
    return found | {name: text for check, records in RECORDS.items() for name, text in files(check, (), records).items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.yml"):
        old.unlink()
    for file_name, file_text in texts().items():
        Path(FOLDER, file_name).write_text(file_text, encoding="utf-8")
