"""The roofline on the landing page: figures with their units, what limits, and what to think of what cannot be."""

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.derived import Cause, Limiter
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.render.sentences import CAUSES, LIMITERS
from llm_serving_exporter.web.pages.engines import MOST_ENGINES, render_roofline
from tests.support.builders import views
from tests.support.builders.landingpage import Page, page_of
from tests.support.builders.limited import DECODING, reading
from tests.support.builders.target_readings import change_reading
from tests.support.models.roofs import H100, flat, shape
from tests.support.rows import check_rows

ENCODER = flat(1e9, form=shape(encoder=True))


def card(target: TargetReading) -> str:
    return page_of(views.view(target)).card("chat-0")


def test_the_figures_of_one_engine_with_their_units() -> None:
    """64 sequences of 100 tokens at 83 steps a second on an H100, 63 % of its bandwidth by GPM."""
    shown = card(reading(DECODING))
    for figure in (
        "Limited by memory bandwidth", "Memory bandwidth 63 % gpm 63 %, model 43.7 %", "Compute 9.54 % of the dense peak",
        "Ridge batch 295 of the weights; with KV 396; now 64",
        "Decode ceiling 13.5k tok/s reached 39.4 %", "Steps 83.3 per s counted by the engine",
        "weights 14 GiB", "Prefill's share", "Model m: 8.03G parameters, 7.5G read",
    ):  # fmt: skip
        assert figure in shown, shown


def test_a_figure_that_is_not_there_says_why() -> None:
    shown = card(reading(DECODING, hardware=Hardware(Absence.PEAK_UNKNOWN, Parallel(), 1.0)))
    assert "Memory bandwidth" not in shown
    prefill = card(reading({"prompts": 300.0, "prefill": 60_000.0, "steps": 300.0}, device=None))
    assert "Decode ceiling – idle" in prefill


def test_steps_that_were_worked_out_say_so() -> None:
    assert "from inter-token latency" in card(reading({**DECODING, "steps": None} | {"seconds_per_token": 0.02}))


def test_several_engines_have_a_row_each_and_a_bound() -> None:
    page = page_of(views.view(reading(*[DECODING] * 3, hardware=Hardware(H100, Parallel(), 1.0))))
    (header,) = [place for place, row in enumerate(page.rows) if row[1:3] == ["bandwidth", "compute"]]
    assert [row[0] for row in page.rows[header + 1 : header + 4]] == ["0", "1", "2"]
    assert page.rows[header + 3][1] == "63 %"
    many = reading(*[DECODING] * (MOST_ENGINES + 5))
    assert len(Page(f"<section>{render_roofline(many)}</section>").rows) == MOST_ENGINES + 1


def test_an_embedding_server_whose_gpu_is_not_the_bottleneck() -> None:
    busy = {"prompts": 300.0, "prefill": 60_000.0, "steps": 300.0}
    shown = card(reading(busy, model=ENCODER))
    assert "The GPU is not the bottleneck" in shown
    assert "Decode ceiling – no decode" in shown
    # 30 million tokens of 2 GFLOP in a minute are all that an H100 can do
    saturated = card(reading({**busy, "prefill": 2e7}, model=ENCODER))
    assert "The GPU is not the bottleneck" not in saturated


def test_an_embedding_server_without_work_is_not_told_to_look_at_its_clients() -> None:
    idle = {"prompts": 3.0, "prefill": 600.0, "steps": 3.0, "requests_running": 0.0}
    shown = card(reading(idle, model=ENCODER))
    assert "The GPU is not the bottleneck" not in shown
    assert "Limited by nothing" in shown


def test_what_cannot_be_is_shown_as_it_is_with_the_likely_reason() -> None:
    shown = card(reading({**DECODING, "decoded": 32e6, "steps": 500_000.0}))
    assert "Values that are impossible:" in shown
    assert CAUSES[Cause.INPUTS] in shown
    # believed is what was measured
    assert "Memory bandwidth 63 %" in shown


def test_a_model_that_is_not_known_says_why_and_is_escaped() -> None:
    target = change_reading(
        reading(DECODING), models={"<b>m": FactsError(Absence.ARCHITECTURE_UNKNOWN, "no formula for <i>this</i>")}
    )
    assert "Model <b>m: no formula for <i>this</i>" in card(target)
    assert "&lt;b&gt;m" in render_roofline(target)


def test_nothing_is_said_of_a_target_without_a_page() -> None:
    assert render_roofline(change_reading(reading(DECODING), snapshot=None)) == ""
    assert render_roofline(change_reading(reading(DECODING), derivation=None)) == ""


@check_rows("state", Limiter)
def test_each_state_has_its_words(state: Limiter) -> None:
    assert LIMITERS[state]


@check_rows("cause", Cause)
def test_each_cause_has_its_sentence(cause: Cause) -> None:
    assert CAUSES[cause].endswith(".")
