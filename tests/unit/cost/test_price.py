"""Which price is in force: the more specific statement, the latest that has begun, and none where that is not one."""

from __future__ import annotations

import pytest

from llm_serving_exporter.cost.terms import find_price
from llm_serving_exporter.model.cost import Price, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.settings.prices import purchase_usd_per_gpu_hour
from tests.support.rows import check_rows

RESERVED, SPOT = Rate("reserved", RateKind.RESERVED), Rate("spot", RateKind.SPOT)
H100 = "H100 SXM 80GB"


def book(*statements: tuple[Scope, str, float, Rate, float | None]) -> PriceBook:
    made = [PriceStatement(scope, value, usd, rate.name, since) for scope, value, usd, rate, since in statements]
    return PriceBook(tuple(made), (RESERVED, SPOT))


BOOK = book(
    (Scope.GPU_MODEL, H100, 2.5, RESERVED, None),
    (Scope.GPU_MODEL, H100, 2.0, RESERVED, 1000.0),
    (Scope.GPU_MODEL, H100, 1.5, RESERVED, 2000.0),
    (Scope.GPU_MODEL, "L4", 2.0, RESERVED, None),
    (Scope.NODE, "gpu-1", 1.2, SPOT, 500.0),
    (Scope.NODE, "gpu-2", 1.2, SPOT, None),
    (Scope.TARGET, "chat", 3.0, SPOT, 100.0),
)


@check_rows(("at", "usd"), [(0.0, 2.5), (999.9, 2.5), (1000.0, 2.0), (1999.0, 2.0), (2000.0, 1.5), (9e9, 1.5)])
def test_the_latest_statement_that_has_begun_wins(at: float, usd: float) -> None:
    assert find_price(BOOK, "other", ("gpu-9",), H100, at) == Price(usd, RESERVED)


def test_a_target_wins_over_its_node_and_a_node_over_the_gpu_model() -> None:
    assert find_price(BOOK, "chat", ("gpu-1",), H100, 600.0) == Price(3.0, SPOT)
    assert find_price(BOOK, "other", ("gpu-1",), H100, 600.0) == Price(1.2, SPOT)


def test_a_statement_that_has_yet_to_begin_leaves_the_less_specific_one() -> None:
    assert find_price(BOOK, "chat", ("gpu-1",), H100, 50.0) == Price(2.5, RESERVED)


def test_nothing_stated_is_no_price() -> None:
    assert find_price(BOOK, "other", (), "A100", 0.0) is Absence.NO_PRICE
    assert find_price(book((Scope.GPU_MODEL, H100, 1.0, SPOT, 10.0)), "other", (), H100, 9.9) is Absence.NO_PRICE


def test_several_nodes_have_one_price_or_none() -> None:
    assert find_price(BOOK, "other", ("gpu-1", "gpu-2"), H100, 600.0) == Price(1.2, SPOT)
    # one of them is stated, the other falls back to the GPU model
    assert find_price(BOOK, "other", ("gpu-1", "gpu-9"), H100, 600.0) is Absence.PRICE_AMBIGUOUS
    assert find_price(BOOK, "other", ("gpu-2", "gpu-9"), "A100", 0.0) is Absence.PRICE_AMBIGUOUS


def test_a_slice_of_a_card_has_the_cards_price() -> None:
    slices = f"{H100} MIG 1g.10gb", f"{H100} MIG", f"{H100} part 1/8", f"{H100} MIG 1g.10gb + {H100} MIG 2g.20gb"
    for name in slices:
        assert find_price(BOOK, "other", (), name, 0.0) == Price(2.5, RESERVED)
    own = book((Scope.GPU_MODEL, H100, 2.5, RESERVED, None), (Scope.GPU_MODEL, slices[0], 0.5, SPOT, None))
    assert find_price(own, "other", (), slices[0], 0.0) == Price(0.5, SPOT)
    assert find_price(BOOK, "other", (), "A100 MIG 1g.10gb", 0.0) is Absence.NO_PRICE


def test_several_kinds_of_gpu_have_one_price_or_none() -> None:
    assert find_price(BOOK, "other", (), f"{H100} + L4", 1500.0) == Price(2.0, RESERVED)
    assert find_price(BOOK, "other", (), f"{H100} + L4", 0.0) is Absence.PRICE_AMBIGUOUS
    assert find_price(BOOK, "other", (), f"{H100} + A100", 0.0) is Absence.PRICE_AMBIGUOUS


def test_the_same_amount_at_two_rates_is_ambiguous() -> None:
    two = book((Scope.NODE, "a", 2.0, SPOT, None), (Scope.NODE, "b", 2.0, RESERVED, None))
    assert find_price(two, "t", ("a", "b"), H100, 0.0) is Absence.PRICE_AMBIGUOUS


def test_a_purchase_as_a_rate() -> None:
    # design section 8: 320,000 USD x 1.15 / (4 x 8760 h) / 8 GPUs
    assert purchase_usd_per_gpu_hour(320_000, 8, 4, 0.15) == pytest.approx(1.312785, rel=1e-6)
    assert purchase_usd_per_gpu_hour(8760, 1, 1, 0) == 1.0
