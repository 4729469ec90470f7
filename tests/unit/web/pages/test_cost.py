"""What the landing page says of a target's cost."""

from llm_serving_exporter.model.cost import (
    EngineCost,
    EngineTotals,
    Method,
    Price,
    Rate,
    RateKind,
    TargetCost,
    WindowCost,
)
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target
from tests.support.builders import views
from tests.support.builders.landingpage import page_of
from tests.support.builders.target_readings import change_reading

RESERVED = Rate("reserved", RateKind.RESERVED)
SPENT = {
    ("prefill", "reserved", "roofline"): 10.0,
    ("decode", "reserved", "roofline"): 60.0,
    ("idle", "reserved", "roofline"): 20.0,
    ("down", "reserved", "roofline"): 4.0,
    ("idle", "spot", "roofline"): 5.0,
    ("unattributed", "reserved", "roofline"): 1.0,
}
WINDOW = WindowCost(
    {
        ("prefill", "busy"): 0.05,
        ("prefill", "allocated"): 0.0714,
        ("decode", "allocated"): 0.62,
        ("blended", "allocated"): 0.161,
    },
    tokens_per_usd=6.2e6,
    usd_per_request=0.000119,
)


def costing(reading: TargetReading, **changes: object) -> TargetReading:
    engine = EngineCost(
        "meta-llama/Llama-3.3-70B-Instruct", "0", "unified", EngineTotals({}, SPENT), Later(lambda: WINDOW)
    )
    found = TargetCost((engine,), Price(2.49, RESERVED), Method.ROOFLINE, "model facts", Later(dict))
    return change_reading(reading, total=TargetGpus(2, "H100 SXM 80GB"), cost=replace(found, **changes))


def test_busy_time_that_is_not_split_is_not_said_to_be() -> None:
    chat = views.fleet().targets[0]
    engine = EngineCost(
        "m", "0", "unified", EngineTotals({}, {("unattributed", "reserved", "roofline"): 2.0}), Later(lambda: WINDOW)
    )
    text = page_of(views.view(costing(chat, engines=(engine,)))).text
    assert "busy time is not split: what the method roofline needs is not known" in text
    assert "1 GPU at" in page_of(views.view(change_reading(costing(chat), total=TargetGpus(1, "H100 SXM 80GB")))).text


def test_a_target_with_a_price() -> None:
    chat = views.fleet().targets[0]
    page = page_of(views.view(costing(chat)))
    assert page.row("cost")[:5] == ["cost", "prefill, $/M", "decode, $/M", "blended, $/M", "$/request"]
    assert page.row("meta-llama/Llama-3.3-70B-Instruct") == [
        "meta-llama/Llama-3.3-70B-Instruct", "$0.0714", "$0.62", "$0.16", "$0.000119", "$100.00", "10 %", "60 %", "25 %", "4 %", "1 %",
    ]  # fmt: skip
    assert "2 GPUs at $2.49 an hour (rate reserved); per million tokens and per request over 1 min" in page.text
    assert "busy time split by roofline: model facts" in page.text


def test_a_price_of_pools_is_before_commitments() -> None:
    chat = views.fleet().targets[0]
    page = page_of(views.view(costing(chat, price=Price(4.0, Rate("pool", RateKind.POOL)))))
    assert "2 GPUs at $4.00 an hour (rate pool, before commitments); per million tokens" in page.text


def test_one_that_is_down_still_shows_what_it_has_cost() -> None:
    page = page_of(views.view(costing(views.down())))
    row = page.row("meta-llama/Llama-3.3-70B-Instruct")
    assert row[1:6] == ["–", "–", "–", "–", "$100.00"]


def test_without_a_price_there_is_no_table_but_the_reason() -> None:
    chat = views.fleet().targets[0]
    bare = EngineCost("m", "0", "unified", EngineTotals({("busy", ""): 5.0}))
    unpriced = costing(chat, engines=(bare,), price=None, reasons=Later(lambda: {"cost_usd_total": Absence.NO_PRICE}))
    page = page_of(views.view(unpriced))
    assert "blended, $/M" not in page.text
    assert "cost USD" in page.text
    assert "The price file states no price for its GPUs that has begun" in page.text
    unset = costing(
        chat, engines=(bare,), price=None, reasons=Later(lambda: {"cost_usd_total": Absence.NOT_CONFIGURED})
    )
    assert "Set cost.price_file" in page_of(views.view(unset)).text


def test_a_shared_gpu_says_its_share() -> None:
    chat = views.fleet().targets[0]
    shared = replace(chat, target=Target("chat-0", "http://chat-0:8000", gpu_share=0.5))
    assert "2 GPUs x share 0.5 at $2.49 an hour" in page_of(views.view(costing(shared))).text
    # or as it is known: instances of cards
    slices = change_reading(chat, total=TargetGpus(2, "H100 SXM 80GB MIG 1g.10gb", 1 / 7))
    assert (
        "2 GPUs x share 0.143 at $2.49 an hour"
        in page_of(views.view(change_reading(costing(chat), total=slices.gpus.total))).text
    )
