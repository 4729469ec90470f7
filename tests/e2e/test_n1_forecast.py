"""N-1 against the simulator: random fleets lose their largest node, and the rule's answer from before is held against what happened.

`python -m tests.e2e.test_n1_forecast` prints the fleets one by one, which docs/internals-n1.md sums up.
"""

import re
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.fleets import LOST_AT, Outcome, lose_largest_node
from tests.pack.simulated import groups, input_series, judge, read_by

FLEETS = range(40)
# every eighth: `make test-soak` asks all
SOME_FLEETS = FLEETS[::8]
IDLE = range(1000, 1008)
# docs/internals-n1.md says why: near its limit a fleet that carries its load may still let a hundredth of its users wait
DISAGREE = {"fleet-1", "fleet-15", "fleet-37", "fleet-39"}
# what N-1 is made from
RULES = groups("identity", "targets", "traffic", "kv", "work", "rates", "capacity", "node-loss")


def outcomes(fleets: range) -> tuple[list[Outcome], list[Outcome]]:
    """These fleets with their loads, and a fifth as many that are four fifths idle."""
    wanted = read_by(RULES)
    with ProcessPoolExecutor(2) as pool:
        loaded = list(pool.map(partial(lose_largest_node, load=None, wanted=wanted), fleets))
        idle = list(pool.map(partial(lose_largest_node, load=0.2, wanted=wanted), IDLE[: len(fleets) // 5]))
    return loaded, idle


def evaluate(folder: Path, found: list[Outcome], expressions: list[tuple[str, list[dict[str, object]]]]) -> str:
    """promtool's verdict on expressions with their expected samples, at the moment before the loss; "" where all hold."""
    series = [one for outcome in found for one in input_series(outcome.shown, own_names(outcome))]
    expected = [{"expr": text, "eval_time": f"{LOST_AT}m", "exp_samples": samples} for text, samples in expressions]
    return judge(folder, RULES, series, expected, every="1m")


def own_names(outcome: Outcome) -> dict[str, dict[str, str]]:
    """Each fleet is a model of its own."""
    labels = {
        label: {value for _, of in outcome.shown for name, value in of if name == label}
        for label in ("model_name", "target")
    }
    return {
        "model_name": dict.fromkeys(labels["model_name"], outcome.name),
        "target": {target: f"{outcome.name}/{target}" for target in labels["target"]},
    }


ANSWER = "model:llm_serving_n1_sufficient:bool"
MEASURED = 'max by (model_name) (model_gpu:llm_serving_replica_capacity:basis{basis="measured"})'


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SOME_FLEETS, marks=pytest.mark.e2e, id="some"),
        pytest.param(FLEETS, marks=pytest.mark.soak, id="all"),
    ],
)
def happened(request: pytest.FixtureRequest) -> tuple[list[Outcome], list[Outcome]]:
    return outcomes(request.param)


@pytest.fixture(scope="module")
def told(happened: tuple[list[Outcome], list[Outcome]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the rules say of the fleets with their loads."""
    return ask(tmp_path_factory.mktemp("loaded"), happened[0])


def test_the_forecast_is_right_for_nine_of_ten_fleets(
    happened: tuple[list[Outcome], list[Outcome]], told: dict[str, str]
) -> None:
    loaded, _ = happened
    assert len(loaded) >= len(SOME_FLEETS)
    answers = forecast(told)
    wrong = [outcome for outcome in loaded if answers.get(outcome.name) != outcome.survived]
    table = "\n".join(row(outcome, answers.get(outcome.name)) for outcome in wrong)
    assert {outcome.name for outcome in wrong} <= DISAGREE, f"of {len(loaded)} these do not agree:\n{table}"
    # both answers occur, so that a rule which always says the same would fail
    assert 0.25 < sum(outcome.survived for outcome in loaded) / len(loaded) < 0.75


def test_what_was_seen_under_a_queue_is_known_as_measured_and_nothing_else(
    happened: tuple[list[Outcome], list[Outcome]], told: dict[str, str]
) -> None:
    loaded, _ = happened
    known = set(re.findall(r'model_name="(fleet-\d+)"', told[MEASURED]))
    assert {outcome.name for outcome in loaded if outcome.measured} <= known
    # the others' own load made a queue before the loss, or none
    queued = {outcome.name: outcome.load for outcome in loaded if outcome.name in known and not outcome.measured}
    assert all(load > 1 for load in queued.values()), queued
    assert len(known) < len(loaded)


def test_a_fleet_that_idles_never_alerts(happened: tuple[list[Outcome], list[Outcome]], tmp_path: Path) -> None:
    _, idle = happened
    assert all(outcome.survived for outcome in idle)
    largest = f"max_over_time(model:llm_serving_n1_load:max[{LOST_AT}m])"
    said = evaluate(
        tmp_path, idle, [(f"{largest} > 1", []), (f"count({ANSWER} == 1)", [{"labels": "{}", "value": len(idle)}])]
    )
    assert not said


def ask(folder: Path, found: list[Outcome]) -> dict[str, str]:
    """What both expressions yield, from one run: promtool shows what it got where something else is expected."""
    asked = (ANSWER, MEASURED)
    _, *said = re.split(r"^ *expr: ", evaluate(folder, found, [(text, []) for text in asked]), flags=re.MULTILINE)
    return dict(zip(asked, said, strict=True))


def forecast(told: dict[str, str]) -> dict[str, bool]:
    """The rule's answer by fleet; no entry where it does not know."""
    return {name: value == "1" for name, value in re.findall(r'model_name="(fleet-\d+)"[^}]*\} (\d)', told[ANSWER])}


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
        fleets, _ = outcomes(FLEETS)
        answers = forecast(ask(Path(where), fleets))
        agree = sum(answers.get(one.name) == one.survived for one in fleets)
        sys.stdout.write(f"{agree} of {len(fleets)} agree\n")
        for one in fleets:
            mark = "  " if answers.get(one.name) == one.survived else "! "
            sys.stdout.write(f"{mark}{row(one, answers.get(one.name))}\n")
