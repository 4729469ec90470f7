"""What one phase of an engine on an H100 says of its tokens/s at another batch and mix: within a quarter, but for a batch of one."""

import statistics
import tomllib

import pytest

from bench.what_if import ENGINES, FILE, LOADS, QUESTIONS, answer
from llm_serving_exporter.commands.what_if.reach import fit_reach
from tests.support.builders.h100 import list_phases
from tests.support.builders.steppedphases import RUNS, roof_of, tell, window_of

TOLERANCE = 0.25
TOLD = [told for run in RUNS for told in tell(run)]


def test_the_batch_of_64_and_prefill_say_what_256_do() -> None:
    """One quotient for both would promise 17.5k tokens/s, where 12k are true."""
    (told,) = (one for one in TOLD if (one.run, one.by, one.phase) == ("h100-vllm-0.25.1", "decode64", "decode256"))
    assert abs(told.off) <= 0.1


def test_other_batches_and_mixes_are_within_a_quarter() -> None:
    assert not [one for one in TOLD if abs(one.off) > TOLERANCE and "decode1" not in (one.by, one.phase)]


def test_one_sequence_of_a_mixture_of_experts_needs_what_each_step_takes_beside() -> None:
    """A batch does not tell of the milliseconds that a step takes beside its bytes, unless another one is seen."""
    phases = {phase.name: window_of(phase) for phase in list_phases("h100-vllm-0.25.1-moe")}
    reach = fit_reach(
        roof_of("h100-vllm-0.25.1-moe"), [phases[name] for name in ("decode1", "decode8", "decode64", "prefill")]
    )
    assert reach.factors[3] == pytest.approx(0.002, abs=0.001)


def test_over_all_of_them_the_error_is_small() -> None:
    others = [one.off for one in TOLD if "decode1" not in (one.by, one.phase)]
    assert statistics.fmean(off * off for off in others) ** 0.5 <= 0.1


# --- simulated fleets ---------------------------------------------------------------------------------------------------


def test_replicas_of_simulated_fleets_are_within_one_and_never_too_few() -> None:
    cases = tomllib.loads(FILE.read_text(encoding="utf-8"))["case"]
    assert len(cases) == len(ENGINES) * len(LOADS) * len(QUESTIONS) == 60
    assert {case["answered"] - case["true"] for case in cases} <= {0, 1}
    assert sum(case["answered"] == case["true"] for case in cases) >= 55


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("engine", "load"), [("Llama-3.1-70B, 4 x H100", "long answers"), ("Llama-3.1-8B, H100", "chat by the hour")]
)
def test_the_file_has_what_is_answered_now(engine: str, load: str) -> None:
    """Two fleets watched again; what they are told is what stands in the file, and so does one truth."""
    (case,) = answer(engine, load, ["as it is"])
    cases = tomllib.loads(FILE.read_text(encoding="utf-8"))["case"]
    (written,) = (one for one in cases if (one["engine"], one["load"], one["question"]) == (engine, load, "as it is"))
    assert (case.answered, case.true) == (written["answered"], written["true"])
