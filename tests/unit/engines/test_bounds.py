"""What a page may make of labels that come from outside: so much, and no more."""

from __future__ import annotations

from llm_serving_exporter.engines.mapping import Row, Runtime
from llm_serving_exporter.engines.plan import MAX_ENGINES
from llm_serving_exporter.engines.rows import MAX_LABEL_VALUES
from tests.support.builders.snapshots import engine_of, snapshot_of


def test_reasons_without_end_are_bounded_and_those_that_are_counted_are_counted_on() -> None:
    finished = Runtime("made-up", "Made Up", (Row("requests_finished_total", ("x_done",), by="why"),), ("x_",))
    reasons = "".join(f'x_done{{why="reason-{number}"}} {number}\n' for number in range(100))
    again = 'x_done{why="reason-3",zone="b"} 1000\n'
    found = engine_of(reasons + again, runtime=finished).requests_finished_total
    assert found == {f"reason-{number}": number + 1000 * (number == 3) for number in range(MAX_LABEL_VALUES)}
    assert MAX_LABEL_VALUES == 32


def test_engines_without_end_are_bounded_and_those_that_are_kept_have_all_their_fields() -> None:
    rows = (Row("requests_running", ("x_run",)), Row("requests_waiting", ("x_wait",)))
    many = Runtime("made-up", "Made Up", rows, ("x_",), engine_labels=("e",))
    text = "".join(f'x_{name}{{e="{engine}"}} 1\n' for name in ("run", "wait") for engine in range(1500))
    engines = snapshot_of(text, runtime=many).engines
    assert len(engines) == MAX_ENGINES == 1024
    assert all((engine.requests_running, engine.requests_waiting) == (1, 1) for engine in engines)
