"""N-1 against the simulator: random fleets lose their largest node, and the rule's answer from before is held against what happened.

`python -m tests.e2e.test_n1_forecast` prints the fleets one by one, which docs/internals-n1.md sums up.
"""

import random
import re
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.history import Watch
from llm_serving_simulator.fleet.scenario import Slo
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Lengths, Mix, PoissonWorkload, Profile, Step
from tests.pack.simulated import Shown, groups, input_series, judge, keep, keep_start, read_by

# --- Random fleets and loads that lose their largest node: what happened then, and what an exporter showed before


# minutes: a queue at first, where the fleet is one that was seen at its limit; an hour and more of its own load; then the node goes
QUEUED, LOST_AT, AFTERWARDS = 12, 84, 25
# promtool's clock begins at 0; only what a replica did half an hour after its start, or later, is a measurement
STARTED_UNIX_SECONDS = -3600.0
SLO_SECONDS = 2.5
MINUTE = 60.0


@dataclass
class Outcome:
    """`survived`: p99 TTFT within the objective and hardly a request turned away, from two minutes after the loss on."""

    name: str
    about: str
    measured: bool
    load: float  # of what the survivors can do
    p99_seconds: float | None
    turned_away: int
    survived: bool
    shown: Shown = field(repr=False)


def fleet_specs(rng: random.Random) -> tuple[list[ReplicaSpec], Mix, str]:
    """Replicas on two to six nodes, some nodes with two, some replicas on two nodes; what they are asked for; in words."""
    nodes = rng.randint(2, 6)
    gpu = rng.choice(["H100 SXM", "L40S", "A100-SXM4-80GB"])
    slots = rng.choice([4, 6, 8, 12])
    prompt, output = rng.choice([300, 800, 2000, 4000]), rng.choice([400, 700, 1100])
    held = slots * (1.3 * prompt + 0.8 * output)
    kv_tokens = max(16384.0, held * rng.choice([0.7, 1.2, 2.5]))
    waiting = rng.choice([None, 50])

    def engine(tensor: int) -> EngineSpec:
        return EngineSpec(
            gpu=gpu, tensor=tensor, max_num_seqs=slots, context_limit_tokens=16384, kv_blocks=int(kv_tokens // 16), max_waiting=waiting
        )  # fmt: skip

    places = [[f"node-{number}"] for number in range(nodes)]
    if rng.random() < 0.3:
        places.append([f"node-{rng.randrange(nodes)}"])
    replicas = [ReplicaSpec(f"replica-{number}", tuple(place), engine(1)) for number, place in enumerate(places)]
    spans = nodes >= 3 and rng.random() < 0.25
    if spans:
        replicas[0] = ReplicaSpec("replica-0", ("node-0", "node-1"), engine(2))
    mix = Mix(Lengths(prompt, 0.5, most=9000), Lengths(output, 0.5, most=5000))
    about = f"{len(replicas)} replicas on {nodes} nodes{', one on two' if spans else ''}, {gpu}, {slots} slots, {prompt}/{output} tokens"
    return replicas, mix, about


def largest_node(replicas: Collection[ReplicaSpec]) -> str:
    """The node whose loss takes the most GPUs."""
    lost: dict[str, int] = {}
    for replica in replicas:
        for node in replica.nodes:
            lost[node] = lost.get(node, 0) + replica.engine.gpus
    return max(sorted(lost), key=lambda node: lost[node])


def requests_per_second(replicas: list[ReplicaSpec], mix: Mix, seed: int) -> float:
    """What the fleet finishes at its limit."""
    if not replicas:
        return 0.0
    slots = sum(replica.engine.max_num_seqs for replica in replicas)
    # where all may wait, whoever comes in the last quarter still does at the end
    ends = () if any(replica.engine.max_waiting for replica in replicas) else (Step(15 * MINUTE, 0.0),)
    flood = Fleet(replicas, PoissonWorkload(Profile(slots / 2.0, steps=ends), [mix], seed))
    flood.advance(20 * MINUTE)
    assert all(replica.engine and replica.engine.waiting for replica in flood.replicas.values()), replicas
    told = flood.truth(5 * MINUTE, 20 * MINUTE)
    return told.counts.finished / (told.end_seconds - told.begin_seconds)


def lose_largest_node(seed: int, load: float | None, wanted: Collection[str]) -> Outcome:
    """One fleet, its load (None: drawn; of what the survivors can do), and the loss."""
    rng = random.Random(f"fleet/{seed}")
    replicas, mix, about = fleet_specs(rng)
    node = largest_node(replicas)
    survivors = [replica for replica in replicas if node not in replica.nodes]
    limit = requests_per_second(survivors, mix, seed)
    measured = rng.random() < 0.5 and load is None
    drawn = rng.uniform(0.15, 1.6)
    rate = limit * (drawn if load is None else load)
    every = requests_per_second(replicas, mix, seed)
    flood = Profile(rate, steps=(Step(0.0, 1.4 * every / rate), Step(QUEUED * MINUTE, 1.0)) if measured else ())
    fleet = Fleet(replicas, PoissonWorkload(flood, [mix], seed), retry=True, epoch_unix_seconds=STARTED_UNIX_SECONDS)
    watch = Watch(fleet, interval_seconds=MINUTE, wanted=wanted, slo=Slo(ttft=SLO_SECONDS))
    shown: Shown = {}
    for minute in range(LOST_AT + 1):
        fleet.advance(minute * MINUTE)
        keep(shown, minute, watch.samples())
        keep_start(shown, minute, replicas, STARTED_UNIX_SECONDS)
    fleet.lose_node(node)
    fleet.advance((LOST_AT + AFTERWARDS) * MINUTE)
    told = fleet.truth((LOST_AT + 2) * MINUTE, (LOST_AT + AFTERWARDS) * MINUTE)
    p99 = told.ttft_quantile_seconds(0.99)
    away = told.counts.rejected + told.unrouted
    survived = p99 is not None and p99 <= SLO_SECONDS and away <= 0.01 * max(1, told.arrived)
    return Outcome(f"fleet-{seed}", about, measured, rate / limit, p99, away, survived, shown)


# --- N-1 against the simulator: random fleets lose their largest node, and the rule's answer from before is held against what happened.


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
