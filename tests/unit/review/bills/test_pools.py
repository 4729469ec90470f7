"""A savings plan that floats over the fleet in the review, and the same plan on its cloud's bill: both come to the same cents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_serving_exporter.model.cost import Pool, PoolBook, PoolKind, PoolUse, SpendRate
from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.usage import Book, Evidence, Usage
from tests.support.builders import bills as made
from tests.support.builders.costevidence import WEEK, evidence, gauge, joined, owner, usage

# $21 an hour, of which a machine of eight GPUs takes 8 × 2.50 and the other finds nothing left
PLAN = Pool(
    "plan", PoolKind.SPEND, usd_per_hour=21.0, rates=(SpendRate(PoolUse(instance_type=made.P5, zone="us-east-1a"), 2.5),)
)  # fmt: skip
NODES = {"a:8000": made.COVERED, "b:8000": made.SAME}


def fleet() -> Evidence:
    """Both machines at the uncommitted price, under the rate of pools; the plan is for the zone of the first."""
    parts = [
        usage(owner(target, made.MODELS[target]), {"decode": 168 * 8 * made.PRICE}, 1e6, 1e6, "pool", made.PRICE)
        for target in NODES
    ]
    nodes, places = [], []
    for target, zone in zip(NODES, ("us-east-1a", "us-east-1b"), strict=True):
        labels = {"target": target, "node": f"node-{target[0]}"}
        nodes.append(gauge(1.0, **labels))
        places.append(
            gauge(1.0, **labels, provider_id=f"aws:///{zone}/{NODES[target].id}", instance_type=made.P5, zone=zone)
        )
    pools = PoolBook((PLAN,))
    return evidence(joined(*parts), Usage(), book=Book(nodes=tuple(nodes), places=tuple(places)), pools=pools)


@pytest.mark.parametrize("rows", [made.list_focus_rows, made.list_cur_rows])
def test_a_floating_plan_is_on_both_sides(tmp_path: Path, rows: Callable[..., Iterator[dict[str, str]]]) -> None:
    found = made.review_bill(fleet(), made.write_bill(tmp_path, rows(tuple(NODES.values()))))
    total = found.bills.comparison.total
    # the plan, used or not, and the machine beside it
    assert total.metered_usd == total.billed_usd == round(168 * (21.0 + 31.44), 2)
    assert not any(found.bills.comparison.reasons.parts().values())
    # what the review says is paid is what is billed
    assert found.invoice_usd == pytest.approx(total.billed_usd)


def test_a_plan_that_the_price_file_does_not_know_is_a_difference_of_price(tmp_path: Path) -> None:
    path = made.write_bill(tmp_path, made.list_focus_rows(tuple(NODES.values())))
    reasons = made.review_bill(replace(fleet(), pools=None), path).bills.comparison.reasons
    assert (reasons.price, reasons.unused_commitments) == (round(168 * (20.0 - 31.44), 2), 168.0)


def test_a_bill_of_a_part_of_the_week_is_held_against_what_was_unused_then(tmp_path: Path) -> None:
    """A plan that begins on Thursday stood unused from then on: a bill up to Wednesday has nothing of that, and no difference."""
    late = replace(PLAN, usd_per_hour=100.0, from_unix_seconds=WEEK.begin + 3 * 86400)
    evidence = replace(fleet(), pools=PoolBook((late,)))
    first = tuple(
        replace(node, price=made.PRICE, billed_price=8 * made.PRICE, covered=False) for node in NODES.values()
    )
    rows = [
        row
        for row in made.drop_other_lines(made.list_focus_rows(first))
        if row["ChargePeriodStart"] < "2026-11-12" and row["ChargeCategory"] == "Usage" and "Unused" not in row.values()
    ]
    found = made.review_bill(evidence, made.write_bill(tmp_path, rows))
    assert found.pools.unused_usd == pytest.approx(96 * 80.0)
    total = found.bills.comparison.total
    assert total.metered_usd == total.billed_usd == round(72 * 16 * made.PRICE, 2)
    assert not any(found.bills.comparison.reasons.parts().values())
