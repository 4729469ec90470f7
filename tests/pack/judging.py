"""promtool's verdict on rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.pack.narrowing import Groups, write_narrowed

# another promtool, such as one of Prometheus 3, judges the same files: PROMTOOL=/path/to/promtool
PROMTOOL = os.environ.get("PROMTOOL") or "promtool"
# a third of promtool's time is its garbage collector's with Go's default of 100
_GO = {"GOGC": "400"}


def promtool() -> str:
    """The program."""
    program = shutil.which(PROMTOOL)
    assert program, f"{PROMTOOL} is missing; `make test` installs it"
    return program


def verdict(folder: Path, *names: str, timeout_seconds: float = 600.0) -> str:
    """What it says against files of unit tests in that folder; "" where all hold."""
    judged = subprocess.run(
        [promtool(), "test", "rules", *names],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        env={**os.environ, **_GO},
    )
    return "" if judged.returncode == 0 else judged.stdout + judged.stderr or f"{judged.returncode}"


def write_labels(labels: Mapping[str, str]) -> str:
    """Labels as PromQL writes them, and as promtool compares them."""
    return "{" + ", ".join(f'{label}="{text}"' for label, text in labels.items()) + "}"


def expect(expression: str, at: str, samples: Mapping[str, float]) -> dict[str, Any]:
    """A question: what an expression answers at a moment ("5m"), by the samples' names and labels."""
    found = [{"labels": labels, "value": value} for labels, value in samples.items()]
    return {"expr": expression, "eval_time": at, "exp_samples": found}


def ask(
    folder: Path,
    series: Mapping[str, str],
    questions: Iterable[Mapping[str, Any]],
    rules: Mapping[str, Groups] | None = None,
    *,
    order: Sequence[str] = (),
    interval: str = "1m",
    every: str = "1m",
) -> str:
    """promtool's verdict on questions about one history; "" where each is answered as expected.

    `series`: selector -> values, one an `interval`. `rules`: groups by the name of their file; what the questions rest on is evaluated
    `every` so often, in the order of the files unless another `order` of groups is given.
    """
    files = rules or {}
    names = [group["name"] for groups in files.values() for group in groups]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    document = {
        "evaluation_interval": every,
        # else promtool takes the groups in an order that differs from run to run, and an answer at the margin with it
        "group_eval_order": list(order or names),
        "tests": [{"interval": interval, "input_series": inputs, "promql_expr_test": list(questions)}],
    }
    write_narrowed(folder, "test.yml", document, files)
    return verdict(folder, "test.yml")
