"""N-1 against the simulator: random fleets lose their largest node, and the rule's answer from before is held against what happened.

`python -m tests.e2e.test_n1_forecast` prints the table that docs/n1.md has.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.records import record_groups
from llm_serving_alerts.render import groups_text
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from tests.e2e.fleets import LOST_AT, Outcome, lose_largest_node

pytestmark = pytest.mark.e2e

FLEETS = 40
IDLE = range(1000, 1008)
LEAST_AGREEMENT = 0.9
# what N-1 is made from, and nothing else: a promtool that evaluates every rule every minute would take many
GROUPS = ("targets", "traffic", "kv", "work", "rates", "capacity", "node-loss")


def rules() -> tuple[str, frozenset[str]]:
    """The rule file, and the series that it reads."""
    groups = [
        group
        for group in record_groups(Dialect(), default_settings())
        if group.name.removeprefix("llm-serving.") in GROUPS
    ]
    text = groups_text(groups)
    expressions = " ".join(rule.expr for group in groups for rule in group.rules if isinstance(rule, Record))
    return text, frozenset(re.findall(r"\bllm_serving_\w+", expressions))


def outcomes() -> tuple[list[Outcome], list[Outcome]]:
    """The fleets with their loads, and those that are four fifths idle."""
    wanted = rules()[1]
    with ProcessPoolExecutor(2) as pool:
        loaded = list(pool.map(partial(lose_largest_node, load=None, wanted=wanted), range(FLEETS)))
        idle = list(pool.map(partial(lose_largest_node, load=0.2, wanted=wanted), IDLE))
    return loaded, idle


def input_series(outcome: Outcome) -> Iterable[dict[str, str]]:
    """For promtool; each fleet under a model's name of its own."""
    for (name, labels), values in outcome.series.items():
        own = {
            label: outcome.name if label == "model_name" else f"{outcome.name}/{value}" if label == "target" else value
            for label, value in labels
        }
        matchers = ",".join(f'{label}="{value}"' for label, value in own.items())
        text = " ".join("_" if value is None else f"{value:.10g}" for value in values)
        yield {"series": f"{name}{{{matchers}}}", "values": text}


def evaluate(folder: Path, found: list[Outcome], expressions: list[tuple[str, list[dict[str, object]]]]) -> str:
    """promtool's verdict on expressions with their expected samples, at the moment before the loss; "" where all hold."""
    (folder / "rules.yml").write_text(rules()[0])
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [series for outcome in found for series in input_series(outcome)],
                "promql_expr_test": [
                    {"expr": expression, "eval_time": f"{LOST_AT}m", "exp_samples": samples}
                    for expression, samples in expressions
                ],
            }
        ],
    }
    (folder / "test.yml").write_text(yaml.dump(test, Dumper=yaml.CSafeDumper, width=1_000_000))
    judged = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, timeout=600
    )
    return "" if judged.returncode == 0 else judged.stdout + judged.stderr


ANSWER = "model:llm_serving_n1_sufficient:bool"


@pytest.fixture(scope="module")
def happened() -> tuple[list[Outcome], list[Outcome]]:
    return outcomes()


def test_the_forecast_is_right_for_nine_of_ten_fleets(
    happened: tuple[list[Outcome], list[Outcome]], tmp_path: Path
) -> None:
    loaded, _ = happened
    assert len(loaded) >= 30
    answers = forecast(tmp_path, loaded)
    right = [outcome for outcome in loaded if answers.get(outcome.name) == outcome.survived]
    table = "\n".join(row(outcome, answers.get(outcome.name)) for outcome in loaded if outcome not in right)
    assert len(right) >= LEAST_AGREEMENT * len(loaded), f"{len(right)} of {len(loaded)} agree; not these:\n{table}"
    # both answers occur, so that a rule which always says the same would fail
    assert 0.25 < sum(outcome.survived for outcome in loaded) / len(loaded) < 0.75


def test_a_fleet_that_idles_never_alerts(happened: tuple[list[Outcome], list[Outcome]], tmp_path: Path) -> None:
    _, idle = happened
    assert all(outcome.survived for outcome in idle)
    largest = f"max_over_time(model:llm_serving_n1_load:max[{LOST_AT}m])"
    said = evaluate(
        tmp_path, idle, [(f"{largest} > 1", []), (f"count({ANSWER} == 1)", [{"labels": "{}", "value": len(idle)}])]
    )
    assert not said


def forecast(folder: Path, found: list[Outcome]) -> dict[str, bool]:
    """The rule's answer by fleet; no entry where it does not know. promtool shows what it got where something else is expected."""
    said = evaluate(folder, found, [(ANSWER, [])])
    return {name: value == "1" for name, value in re.findall(r'model_name="(fleet-\d+)"[^}]*\} (\d)', said)}


def row(outcome: Outcome, answer: bool | None) -> str:
    """A line of the table."""
    p99 = "no answer" if outcome.p99_seconds is None else f"{outcome.p99_seconds:.2f} s"
    said = {True: "sufficient", False: "insufficient", None: "unknown"}[answer]
    basis = "measured" if outcome.measured else "estimated"
    end = "held" if outcome.survived else "broke"
    return f"| {outcome.about} | {basis} | {outcome.load:.2f} | {said} | {p99} | {outcome.turned_away} | {end} |"


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as where:
        fleets, _ = outcomes()
        told = forecast(Path(where), fleets)
        agree = sum(told.get(one.name) == one.survived for one in fleets)
        sys.stdout.write(f"{agree} of {len(fleets)} agree\n")
        for one in fleets:
            mark = "  " if told.get(one.name) == one.survived else "! "
            sys.stdout.write(f"{mark}{row(one, told.get(one.name))}\n")
