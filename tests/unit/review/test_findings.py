"""Every rule speaks where it should and is silent where it should not; every action's figure is one of the review's."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_exporter.model.cost import Pool, PoolKind, PoolUse
from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.usage import Gap, Usage
from llm_serving_review.figures.actions import Spare, choose_actions
from llm_serving_review.figures.change import Change
from llm_serving_review.figures.findings import RULES, apply_rules
from llm_serving_review.figures.outlook import ApiComparison, Outlook
from llm_serving_review.figures.pools import PoolRow, Pools
from llm_serving_review.figures.rates import Commitment, Steady
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.figures.rows import AlertRow, AlertSums, Attainment, ModelRow
from llm_serving_review.figures.split import Split
from llm_serving_review.figures.totals import Counted, Totals
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costevidence import evidence
from tests.support.rows import check_rows

NOW = Totals(usd=108.0, prompt_tokens=1e9, decode_tokens=2.27e8, usd_by_phase={"prefill": 40.0, "decode": 68.0})
EARLIER = Totals(usd=100.0, prompt_tokens=8e8, decode_tokens=2e8, usd_by_phase={"prefill": 40.0, "decode": 60.0})
API = ApiComparison("An API", 80.0, 100.0, 0.8, 1.0, 5e9, 4e9, None)
MONTH = Outlook(500.0, 500.0, 0.0, 400.0, 1.25, 500.0, None)
SPARE = Spare(10.0, 20.0, 5.0, 10.0, (), ())
ROW = ModelRow("m", NOW, EARLIER, 0.3, 0.1)


def now(**usd: float) -> Totals:
    return replace(NOW, usd_by_phase=usd)


def reviewed(now: Totals, earlier: Totals, change: Change | None = None, **more: object) -> Review:
    """A review with these figures and no others."""
    bare = build_review(evidence(Usage(), Usage()), Settings())
    return replace(bare, now=now, earlier=earlier, change=change, **more)


CALM = reviewed(NOW, replace(NOW))


def pools_of(used: float, committed: float) -> Pools:
    """A pool of a GPU at $1.25 that costs $2 without it."""
    pool = Pool("r", PoolKind.QUANTITY, PoolUse("H100"), 1.0, 1.25)
    row = PoolRow(
        pool,
        committed,
        used,
        committed - used,
        0.0,
        committed / 1.25,
        used / 1.25,
        (committed - used) / 1.25,
        used * 1.6,
    )
    return Pools((row,), (), (), ())


CASES: dict[str, tuple[Review, str, Review]] = {
    "unit cost and total apart": (
        reviewed(NOW, EARLIER),
        "Cost per token fell 12 % while the total rose 8 %: 23 % more tokens were served.",
        reviewed(NOW, replace(EARLIER, usd=80.0)),
    ),
    "cause of the change": (
        reviewed(NOW, EARLIER, Change(Split(list_price=-2.0, volume=12.0, idle=-2.0))),
        "GPU time cost $8.00 more than the week before: $12.00 because more tokens were served.",
        reviewed(NOW, NOW, Change(Split(list_price=-2.0, volume=4.0, idle=-2.0))),
    ),
    "dearer model": (
        reviewed(NOW, EARLIER, models=(replace(ROW, before=replace(EARLIER, usd=50.0)),)),
        "Tokens of m cost 76 % more than the week before: $0.088 a million instead of $0.050.",
        reviewed(NOW, EARLIER, models=(ROW,)),
    ),
    "tokens not counted": (
        reviewed(replace(NOW, counted=Counted(27.0, 1e9, None, 2.27e8)), EARLIER, models=(replace(ROW, now=Totals(usd=81.0)), ROW)),
        "$81.00, 75 % of the spend, went to GPUs whose engines count no tokens (m): it is in no cost per token, break-even or comparison",
        reviewed(replace(NOW, counted=Counted(105.0, 1e9, None, 2.27e8)), EARLIER),
    ),
    "over budget": (
        reviewed(NOW, EARLIER, outlook=MONTH),
        "At the rate of the week a month comes to $500, $100 above the budget of $400.",
        reviewed(NOW, EARLIER, outlook=replace(MONTH, budget_usd=600.0, budget_used_ratio=0.83)),
    ),
    "idle": (
        reviewed(now(idle=54.0), EARLIER),
        "50 % of the spend, $54.00, went to GPUs that had nothing to do.",
        reviewed(now(idle=5.0), EARLIER),
    ),
    "empty batches": (
        reviewed(NOW, EARLIER, models=(ROW,)),
        "m ran batches 10 % full, memory bandwidth at 30 % of its ceiling: its GPUs were busy, but every token also paid",
        reviewed(NOW, EARLIER, models=(replace(ROW, batch_ratio=0.5),)),
    ),
    "spare replicas": (
        reviewed(NOW, EARLIER, spare=SPARE),
        "10.0 replica-hours ($20.00) were more than the demand and the reserve for a lost node required.",
        reviewed(NOW, EARLIER, spare=replace(SPARE, excess_usd=1.0)),
    ),
    "unused commitment": (
        reviewed(NOW, EARLIER, commitments=(Commitment("r", 100.0, 60.0, 40.0, 2.0),)),
        "60 % of the commitment “r” was used: 40.0 GPU-hours ($80.00) were paid for and stood idle.",
        reviewed(NOW, EARLIER, commitments=(Commitment("r", 100.0, 98.0, 2.0, 2.0),)),
    ),
    "unused pool": (
        reviewed(NOW, EARLIER, pools=pools_of(20.0, 100.0)),
        "$80.00 of the $100 of the pool “r” stood unused. Without it the week would have been cheaper: it took $12.00 off.",
        reviewed(NOW, EARLIER, pools=pools_of(96.0, 100.0)),
    ),
    "commitment without a price": (
        reviewed(NOW, EARLIER, commitments=(Commitment("r", 100.0, 0.0, 100.0, None, ("eu",)),)),
        "No target ran at the rate “r / eu”, so its price is unknown and its commitment is in no cost figure.",
        reviewed(NOW, EARLIER, commitments=(Commitment("r", 100.0, 98.0, 2.0, 2.0),)),
    ),
    "down": (
        reviewed(now(down=10.8), EARLIER),
        "$10.80 (10.0 %) was paid for GPUs whose target was down.",
        reviewed(now(down=0.1), EARLIER),
    ),
    "objectives missed": (
        reviewed(NOW, EARLIER, attainments=(Attainment("ttft", 980.0, 1000.0, 0.99),)),
        "Missed objectives: ttft 98.00 % (objective 99.00 %).",
        reviewed(NOW, EARLIER, attainments=(Attainment("ttft", 995.0, 1000.0, 0.99), Attainment("itl", 1.0, 100.0, None))),
    ),
    "pages": (
        reviewed(NOW, EARLIER, alerts=AlertSums(2, 90.0, 0, 0.0, (AlertRow("A", "critical", 2, 90.0),))),
        "Alerts paged somebody 2 times, firing for 1.5 hours in all; the noisiest was A.",
        reviewed(NOW, EARLIER, alerts=AlertSums(0, 0.0, 3, 5.0, (AlertRow("B", "warning", 3, 5.0),))),
    ),
    "API price": (
        reviewed(NOW, EARLIER, outlook=replace(MONTH, api=API)),
        "At the price of An API the tokens of the week would have cost $80.00, 20 % less than here. Serving them here breaks even at",
        reviewed(NOW, EARLIER, outlook=MONTH),
    ),
    "unattributed": (
        reviewed(now(unattributed=54.0), EARLIER),
        "50 % of the spend could not be attributed to prefill or decode",
        reviewed(now(unattributed=1.0), EARLIER),
    ),
    "no price": (
        reviewed(replace(NOW, unpriced_gpu_hours=12.0), EARLIER),
        "12.0 GPU-hours have no price: they and their tokens are in no cost figure",
        reviewed(replace(NOW, unpriced_gpu_hours=0.1), EARLIER),
    ),
    "gaps": (
        reviewed(NOW, EARLIER, gaps=(Gap((), "a", 0.0, 36_000.0, True, 1.0, 2.0),)),
        "About $20.00 of GPU time falls into gaps in the data; it is not in the spend.",
        reviewed(NOW, EARLIER, gaps=(Gap((), "a", 0.0, 60.0, True, 1.0, 2.0), Gap((), "b", 0.0, 36_000.0, True))),
    ),
}  # fmt: skip


def test_every_rule_has_both_cases() -> None:
    assert set(CASES) == set(RULES)


@check_rows("rule", RULES)
def test_a_rule_speaks_and_is_silent(rule: str) -> None:
    loud, sentence, quiet = CASES[rule]
    said = {finding.rule: finding.sentence for finding in apply_rules(loud)}
    assert said[rule].startswith(sentence)
    assert rule not in {finding.rule for finding in apply_rules(quiet)}


def test_a_calm_week_says_nothing_and_nothing_known_breaks_no_rule() -> None:
    assert apply_rules(CALM) == ()
    assert apply_rules(reviewed(Totals(), Totals())) == ()


def test_the_dearest_three_come_first() -> None:
    week = replace(NOW, usd_by_phase={"idle": 60.0, "down": 5.0}, gpu_hours_by_state={"down": 2.5})
    found = choose_actions(
        week,
        replace(SPARE, excess_cash_usd=20.0),
        (Commitment("r", 100.0, 60.0, 40.0, 2.0),),
        (Steady("H100", 2.0, 4.0, "r", 2.0, 15.0),),
        60.0,
    )
    # idle outside of spare and reserve replicas: 60 - 20 - 10
    assert [(one.what.split(" ")[0], one.worth) for one in found] == [
        ("Move", "frees capacity worth $80.00 a week"),
        ("Fill", "saves up to $30.00 a week"),
        ("Run", "saves $20.00 a week"),
    ]


def test_what_is_committed_or_owned_is_freed_and_not_saved() -> None:
    week = replace(NOW, usd_by_phase={"idle": 60.0, "down": 15.0})
    worths = {one.what.split(" ")[0]: one.worth for one in choose_actions(week, SPARE, (), (), 0.0)}
    assert worths == {
        "Fill": "frees capacity worth up to $30.00 a week",
        "Run": "frees capacity worth $20.00 a week",
        "Find": "cost $15.00 in the week",
    }
    # a third of the idle time is on demand, half of the replicas
    mixed = choose_actions(week, replace(SPARE, excess_cash_usd=10.0), (), (), 20.0)
    worth = {one.what.split(" ")[0]: (one.worth, one.why) for one in mixed}
    assert worth["Run"][0] == "saves $10.00 a week"
    assert worth["Fill"][0] == "saves up to $10.00 a week"
    assert worth["Fill"][1].endswith("; $20.00 more on GPUs that are committed or owned")


@check_rows(
    ("make", "least"),
    [
        (lambda: choose_actions(NOW, None, (), (), 0.0), 0),
        (lambda: choose_actions(replace(NOW, usd_by_phase={"down": 5.0}), None, (), (), 0.0), 1),
        # a price that nobody knows is no saving
        (lambda: choose_actions(NOW, None, (Commitment("r", 100.0, 0.0, 100.0, None),), (), 0.0), 0),
        # nor is what nobody would act on
        (lambda: choose_actions(replace(NOW, usd_by_phase={"down": 0.1}), None, (), (), 0.0), 0),
        (lambda: choose_actions(Totals(), None, (), (), 0.0), 0),
    ],
)
def test_there_may_be_fewer(make: Callable[[], tuple[object, ...]], least: int) -> None:
    assert len(make()) == least
