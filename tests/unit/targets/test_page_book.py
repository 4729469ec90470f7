"""PageBook: targets whose pages are alike share what was worked out for one of them, and nothing of it outlives them."""

import gc
import weakref

from llm_serving_exporter.engines.apply import Plans
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.targets.page_source import PageBook
from tests.support.builders.recordings import page as recorded_page
from tests.support.builders.snapshots import page_of

VLLM = RUNTIMES["vllm"]

FIRST, SECOND = (page_of(recorded_page("vllm-0.32", second).decode()) for second in (60, 61))


def test_a_page_of_another_replica_is_known() -> None:
    book = PageBook()
    assert book.recall_runtime(FIRST) is None
    book.note_runtime(FIRST, VLLM)
    assert book.recall_runtime(SECOND) is VLLM
    assert book.recall_runtime(page_of("vllm:num_requests_running 1\n")) is None
    one, other = book.make_parser(VLLM, 50_000), book.make_parser(VLLM, 50_000)
    assert one.parse(FIRST).layout is other.parse(SECOND).layout


def test_plans_are_made_once_for_a_layout_and_a_version_and_go_with_the_layout() -> None:
    book = PageBook()
    parser = book.make_parser(VLLM, 50_000)
    layout = parser.parse(FIRST).layout
    plan = book.plans.find(VLLM, layout, "0.32.0")
    assert book.plans.find(VLLM, layout, "0.32.0") is plan
    assert book.plans.find(VLLM, layout, "0.9.0") is not plan
    gone = weakref.ref(layout)
    del parser, layout, plan
    gc.collect()
    assert gone() is None


def test_plans_of_a_server_that_calls_itself_something_else_at_each_start_are_bounded() -> None:
    plans, layout = Plans(), PageBook().make_parser(VLLM, 50_000).parse(FIRST).layout
    for number in range(40):
        plans.find(VLLM, layout, f"0.32.{number}")
    (known,) = plans._plans.values()
    assert len(known) <= 16
