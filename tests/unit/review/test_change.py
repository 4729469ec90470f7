"""What was spent and why that changed: a fortnight in closed form in a real Prometheus, and evidence made by hand."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.usage import Book, Evidence, Gap, Usage
from llm_serving_review.figures.change import write_causes
from llm_serving_review.figures.matching import Kind
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costevidence import WEEK, evidence, gauge, joined, owner, usage
from tests.support.builders.movedfortnight import TARGETS, Moving

CLOSE = 1e-3


def close(value: float) -> object:
    # a cent is as small as it is said
    return pytest.approx(value, rel=CLOSE, abs=0.05)


@pytest.mark.e2e
def test_only_a_dead_exporter_leaves_a_gap(moved: Review) -> None:
    assert moved.gaps is not None
    (gap,) = moved.gaps
    assert gap.target == "dark:8000"
    assert (gap.end - gap.begin) / 3600 == pytest.approx(3.0, abs=0.1)
    assert gap.estimated_usd == pytest.approx(3 * 1.9, rel=0.05)
    assert not any("not compared" in note or "nothing shows" in note for note in moved.notes)


@pytest.mark.e2e
def test_spend_and_month_are_those_of_the_hours_that_were(moved: Review) -> None:
    for found, week in ((moved.earlier, 0), (moved.now, 1)):
        assert found.usd == pytest.approx(sum(one.usd(week) for one in TARGETS), rel=1e-3)
    assert moved.outlook is not None
    # 3 of the hours of one GPU are missing
    hours = sum(one.hours(1) * one.gpus for one in TARGETS)
    spent = sum(one.usd(1) for one in TARGETS)
    assert moved.outlook.projected_usd == pytest.approx(spent / (168 * hours / (hours + 3)) * 730, rel=1e-3)


@pytest.mark.e2e
def test_what_came_and_went_is_what_was_there_in_one_week(moved: Review) -> None:
    assert moved.split is not None
    # the newcomer's 138 hours, and 108 hours of the one that was removed on Wednesday noon, at $4
    assert moved.split.came_and_went == close(138 * 4 - 108 * 4)
    found = {(one.kind, one.name): one.usd for one in moved.change.movements if one.kind in (Kind.CAME, Kind.WENT)}
    assert found == {(Kind.CAME, "newcomer:8000"): close(552), (Kind.WENT, "leaver:8000"): close(-432)}


@pytest.mark.e2e
def test_list_price_rate_and_hardware_are_those_of_the_definition(moved: Review) -> None:
    assert moved.split is not None
    # H100 reserved fell from $2.00 to $1.90: two GPUs, one that came to that rate, and one of which four hours are not compared
    assert moved.split.list_price == close((336 + 168 + 164) * (1.9 - 2.0))
    # one H100 from on demand to reserved, at last week's prices
    assert moved.split.rate == close(168 * (2.0 - 4.0))
    # two replicas of two GPUs from H100 to L40S
    assert moved.split.hardware == close(4 * 168 * (1.2 - 4.0))
    assert moved.change.by_model["m-move"].hardware == close(4 * 168 * (1.2 - 4.0))
    assert moved.change.by_model["m-rate"].rate == close(-336)
    moves = {one.name: one for one in moved.change.movements if one.kind == Kind.MOVED}
    assert set(moves) == {"llm/move"}
    assert moves["llm/move"].detail == "from H100 to L40S, from n3 to n4"
    assert moves["llm/move"].replicas == 2
    assert moves["llm/move"].usd == close(-1881.6)


@pytest.mark.e2e
def test_the_rest_is_lmdi_at_last_weeks_prices(moved: Review) -> None:
    """GPU-hours of all that is compared are the same in both weeks, so that only tokens and busy time move."""
    assert moved.split is not None
    cells = list(_cells())
    before, after = (sum(cell[index] for cell in cells) for index in (0, 1))
    volume = sum(usd * log(after / before) for *_, usd in cells)
    mix = sum(usd * log((new / after) / (old / before)) for old, new, *_, usd in cells)
    efficiency = sum(usd * log((busy1 / new) / (busy0 / old)) for old, new, busy0, busy1, usd in cells)
    idle = sum(usd * log(busy0 / busy1) for _, _, busy0, busy1, usd in cells)
    assert abs(volume + mix + efficiency + idle) < 1e-6
    for cause, value in (("volume", volume), ("mix", mix), ("efficiency", efficiency), ("idle", idle)):
        assert getattr(moved.split, cause) == close(value), cause


def _cells():
    """Tokens of both weeks, busy shares of both weeks, USD at last week's prices: a cell for each model and phase that is compared."""
    known = {"newcomer:8000": 0.0, "leaver:8000": 60.0, "dark:8000": 164.0}
    groups: dict[str, list[Moving]] = {}
    for one in TARGETS:
        groups.setdefault(one.model, []).append(one)
    for members in groups.values():
        for share, times in ((0.25, 3.0), (0.75, 1.0)):
            tokens, busy, usd, hours = [0.0, 0.0], [0.0, 0.0], 0.0, 0.0
            for one in members:
                of = [known.get(one.name, one.hours(week)) for week in (0, 1)]
                for week in (0, 1):
                    tokens[week] += of[week] * times * one.tokens[week]
                    busy[week] += of[week] * one.gpus * one.busy[week]
                usd += share * of[0] * one.gpus * one.price(0)
                hours += of[0] * one.gpus
            if usd:
                yield *tokens, *(one / hours for one in busy), usd


@pytest.mark.e2e
def test_hours_that_one_week_does_not_know_are_left_out(moved: Review) -> None:
    assert moved.split is not None
    # from three seconds past 100:00 to 103:00 data of one GPU are missing: four hours, of the last this week has all
    assert moved.split.left_out == pytest.approx(1.9 - 4 * 2.0, abs=0.02)
    assert moved.change.left_out_before_usd == pytest.approx(8.0, abs=0.02)
    (said,) = (one for one in write_causes(moved.change) if one.startswith("Not compared"))
    assert (
        said
        == "Not compared: $1.90 of the week and $8.00 of the week before, because the same hours of the other one are not known."
    )


@pytest.mark.e2e
def test_the_cents_add_up_to_the_change(moved: Review) -> None:
    _add_up(moved)
    assert moved.split is not None
    for one in (*moved.change.by_model.values(), moved.split):
        for cause, value in one.parts().items():
            assert value == pytest.approx(round(value, 2), abs=1e-9), cause


def _add_up(review: Review) -> None:
    assert review.now.usd is not None
    assert review.earlier.usd is not None
    change = round(100 * review.now.usd) - round(100 * review.earlier.usd)
    assert review.split is not None
    assert sum(round(100 * part) for part in review.split.parts().values()) == change
    by_model = review.change.by_model.values()
    assert sum(round(100 * split.total) for split in by_model) == change
    for cause, value in review.split.parts().items():
        assert sum(round(100 * getattr(split, cause)) for split in by_model) == round(100 * value)


@pytest.mark.e2e
def test_it_is_said_as_a_human_would(moved: Review) -> None:
    first, second, _ = write_causes(moved.change)
    assert first == (
        "GPU time cost $2,170 less than the week before: "
        "$1,882 because 2 replicas of m-move moved from H100 to L40S, from n3 to n4, $432 because leaver:8000 "
        "went, $336 because GPUs ran at cheaper rates."
    )
    assert second == "Against that, $552 more because newcomer:8000 came."


def book(*prices: tuple[str, str, str, float]) -> Book:
    """Target, kind, rate, price."""
    return Book(
        prices=tuple(gauge(price, target=target, gpu_name=kind, rate=rate) for target, kind, rate, price in prices),
        rates={rate: "" for _, _, rate, _ in prices},
    )


def reviewed(now: Usage, before: Usage, **more: object) -> Review:
    return build_review(evidence(now, before, **more), Settings())


def target(
    name: str, usd: float, rate: str = "spot", price: float = 2.0, tokens: float = 1e6, model: str = "m"
) -> Usage:
    return usage(
        owner(name, model), {"prefill": usd / 4, "decode": usd / 4, "idle": usd / 2}, tokens, tokens, rate, price
    )


def test_the_worked_example_of_the_docs() -> None:
    """docs/internals-report.md has these numbers."""
    before = joined(target("a", 1344.0, "on-demand", 4.0), target("b", 336.0, "reserved", 2.0, model="chat"))
    after = joined(
        target("a", 504.0, "on-demand", 1.5),
        target("b", 319.2, "reserved", 1.9, model="chat"),
        target("c", 100.0, "reserved", 1.9, model="new"),
    )
    made = reviewed(
        after,
        before,
        book_before=book(
            ("a", "H100", "on-demand", 4.0), ("b", "H100", "reserved", 2.0), ("x", "L40S", "on-demand", 1.6)
        ),
        book=book(("a", "L40S", "on-demand", 1.5), ("b", "H100", "reserved", 1.9), ("c", "H100", "reserved", 1.9)),
    )
    assert made.split is not None
    assert {cause: value for cause, value in made.split.parts().items() if value} == {
        "came_and_went": 100.0,
        # 336 h x (1.50 - 1.60) + 168 h x (1.90 - 2.00)
        "list_price": -50.4,
        # 336 h x (1.60 - 4.00)
        "hardware": -806.4,
    }
    assert made.split.total == pytest.approx(-756.8)
    assert write_causes(made.change) == (
        "GPU time cost $757 less than the week before: $806 because 1 replica of m moved from H100 to L40S.",
        "Against that, $100 more because c came.",
    )


def test_a_rollout_under_other_names_is_no_coming_and_going() -> None:
    before = joined(*(target(f"old-{number}", 336.0) for number in range(3)))
    same = reviewed(joined(*(target(f"new-{number}", 336.0) for number in range(3))), before)
    assert same.split is not None
    assert same.split.came_and_went == 0.0
    assert same.change.movements == ()
    # one fewer came than went: a third of them is gone
    fewer = reviewed(joined(*(target(f"new-{number}", 336.0) for number in range(2))), before)
    assert fewer.split is not None
    assert fewer.split.came_and_went == pytest.approx(-336.0)
    assert sum(one.usd for one in fewer.change.movements if one.kind == Kind.WENT) == pytest.approx(-336.0)
    # of a model of another name nothing took the place
    other = reviewed(joined(*(target(f"new-{number}", 336.0, model="other") for number in range(3))), before)
    assert {one.kind for one in other.change.movements} == {Kind.CAME, Kind.WENT}
    assert other.change.by_model["m"].came_and_went == pytest.approx(-1008.0)


def test_a_workload_that_is_scaled_is_there_in_both_weeks() -> None:
    names = ("w-1", "w-2", "w-3")
    held = Book(workloads=tuple(gauge(1.0, target=name, workload="w", namespace="llm") for name in names))
    before = joined(target("w-1", 336.0), target("w-2", 336.0, tokens=2e6))
    after = joined(*(target(name, 336.0, tokens=1.5e6) for name in names))
    made = reviewed(after, before, book=held, book_before=held)
    assert made.split is not None
    assert made.split.came_and_went == 0.0
    assert made.split.total == pytest.approx(336.0)
    # half more tokens, and half more GPU-hours for them
    assert made.split.volume == pytest.approx(336.0)
    (one,) = made.change.movements
    assert (one.kind, one.name, one.usd) == (Kind.SCALED, "llm/w", pytest.approx(336.0))
    assert one.detail == "from 336 to 504 GPU-hours"


amounts = st.floats(0.01, 1e5)


@st.composite
def weeks(draw) -> Evidence:
    """Both weeks of up to four targets of two models, with any of them away in either, a gap, other kinds, rates and prices."""
    found: list[list[Usage]] = [[], []]
    books: list[list[tuple[str, str, str, float]]] = [[], []]
    for number in range(draw(st.integers(1, 4))):
        for week in (0, 1):
            if draw(st.integers(0, 4)) == 0 and (number or week):
                continue
            rate, kind = draw(st.sampled_from(("spot", "reserved"))), draw(st.sampled_from(("H100", "L40S")))
            price, usd = draw(st.floats(0.1, 9.0)), draw(amounts)
            model = draw(st.sampled_from(("m", "other")))
            name = draw(st.sampled_from((f"t-{number}", f"t-{number}-{week}")))
            found[week].append(target(name, usd, rate, price, draw(amounts), model))
            books[week].append((name, kind, rate, price))
    gaps = ()
    if draw(st.booleans()):
        gaps = (Gap((), "t-0", WEEK.begin, WEEK.begin + 3600 * draw(st.floats(0.1, 5.0)), True, 0.5, 1.0),)
    return replace(
        evidence(joined(*found[1]), joined(*found[0])),
        book=book(*books[1]),
        book_before=book(*books[0]),
        gaps=gaps,
    )


@given(weeks())
def test_the_cents_always_add_up(both: Evidence) -> None:
    made = build_review(both, Settings())
    if made.split is not None:
        _add_up(made)
        assert write_causes(made.change)


def test_the_price_part_is_that_of_this_weeks_hours() -> None:
    made = reviewed(target("a", 504.0, price=3.0), target("a", 336.0, price=2.0))
    assert made.split is not None
    assert made.split.parts() == {**dict.fromkeys(made.split.parts(), 0.0), "list_price": 168.0}


def test_another_node_and_another_workload_are_moves() -> None:
    held = target("a", 336.0)
    places = tuple(Book(nodes=(gauge(1.0, target="a", node=node),)) for node in ("n1", "n2"))
    (one,) = reviewed(held, held, book_before=places[0], book=places[1]).change.movements
    assert (one.kind, one.name, one.detail, one.usd) == (Kind.MOVED, "a", "from n1 to n2", 0.0)
    of = tuple(Book(workloads=(gauge(1.0, target="a", workload=name),)) for name in ("old", "new"))
    (one,) = reviewed(held, held, book_before=of[0], book=of[1]).change.movements
    assert (one.kind, one.name, one.detail) == (Kind.MOVED, "a", "between workloads new, old")


def test_a_kind_that_one_week_does_not_know_is_no_other_hardware() -> None:
    made = reviewed(target("a", 504.0, price=3.0), target("a", 336.0), book=book(("a", "H100", "spot", 3.0)))
    assert made.split is not None
    assert (made.split.list_price, made.split.hardware) == (pytest.approx(168.0), 0.0)
    assert made.change.movements == ()
