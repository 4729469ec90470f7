"""When a counter that is printed with six digits is too coarse for a rate."""

from llm_serving_exporter.derive.phases import is_coarse
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.windows import engine
from tests.support.rows import check_rows

TOKENS = "prefill_tokens_total"


@check_rows(
    ("value", "grown", "expected"),
    [
        # six digits print whole numbers below a million in full
        (99_999, 5, False),
        (100_010, 10, False),
        (999_999, 1, False),
        # then steps of 10: a twentieth of 200
        (1_000_190, 190, True),
        (1_000_200, 200, False),
        (12_345_700, 1900, True),
        (12_345_700, 2000, False),
        (12_345_700, 0, False),
    ],
)
def test_a_counter_is_coarse_where_its_step_is_more_than_a_twentieth_of_what_it_grew(
    value: float, grown: float, expected: bool
) -> None:
    window = EngineWindow((engine(prefill=value - grown), engine(prefill=value)), 60.0)
    assert is_coarse(window, TOKENS, 6) is expected
    assert is_coarse(window, TOKENS, None) is False
