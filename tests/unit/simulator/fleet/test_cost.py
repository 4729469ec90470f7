"""A step costs what the exporter's roofline says, over the efficiencies."""

from __future__ import annotations

import pytest

from llm_serving_exporter.derive.roof import decode_ceiling, prefill_floor_seconds
from llm_serving_exporter.derive.work import prefill_flops
from llm_serving_exporter.errors import FactsError
from llm_serving_simulator.fleet.batch import DecodeRun
from llm_serving_simulator.fleet.spec import Chunk, EngineSpec, StepCost
from tests.support.rows import check_rows

SPECS = [
    EngineSpec(),
    EngineSpec(tensor=2, pipeline=2),
    EngineSpec(model="meta-llama/Llama-3.1-70B-Instruct", gpu="B200", tensor=2),
    EngineSpec(model="Qwen/Qwen3-30B-A3B", gpu="H200", tensor=2),
]


def ideal(spec: EngineSpec) -> StepCost:
    return StepCost(spec.roof, bandwidth_efficiency=1.0, compute_efficiency=1.0, overhead_seconds=0.0)


@check_rows("spec", SPECS)
@check_rows(("prompt", "prefix"), [(1, 0), (37, 0), (5000, 0), (5000, 4000), (30000, 16)])
def test_a_prompt_alone_takes_its_floor(spec: EngineSpec, prompt: int, prefix: int) -> None:
    work = ideal(spec).mixed(0, 0, [Chunk(prompt - prefix, prefix, True)])
    assert work.seconds == pytest.approx(prefill_floor_seconds(spec.roof, prompt, prefix), rel=1e-9)
    rate = spec.roof.peaks.flops["bf16"] * spec.tensor
    assert work.compute_seconds * rate == pytest.approx(sum(prefill_flops(spec.roof, prompt - prefix, prefix).values()))


@check_rows("spec", SPECS)
@check_rows("batch", [1, 2, 7, 64, 1000])
def test_decode_steps_take_those_of_the_ceiling(spec: EngineSpec, batch: int) -> None:
    run = DecodeRun(0.0, batch, 400, ideal(spec).decode(batch, batch * 700), 1.0)
    for step in (0, 1, 250, 399):
        ceiling = decode_ceiling(spec.roof, batch, 700 + step)
        assert ceiling is not None
        assert run.step_seconds(step) == pytest.approx(ceiling.step_seconds, rel=1e-9)
    # sums in closed form are those of the steps, whichever arm of the roof is the larger
    assert run.elapsed_seconds(400) == pytest.approx(sum(map(run.step_seconds, range(400))), rel=1e-9)
    assert run.steps_by(run.end_seconds(123)) == 123
    assert run.steps_by(run.end_seconds(124) - 1e-9) == 123


def test_a_run_may_go_from_one_arm_of_the_roof_to_the_other() -> None:
    # bandwidth a tenth as much used as compute: at this batch the weights bind first, the growing contexts' FLOPs later
    spec = EngineSpec()
    cost = StepCost(spec.roof, bandwidth_efficiency=1.0, compute_efficiency=0.0105, overhead_seconds=0.001)
    ramp = cost.decode(3, 3)
    assert ramp.memory > ramp.computing
    assert ramp.memory_more < ramp.computing_more
    run = DecodeRun(0.0, 3, 100_000, ramp, 1.5)
    steps = [
        1.5 * (max(ramp.memory + ramp.memory_more * i, ramp.computing + ramp.computing_more * i) + 0.001)
        for i in range(100_000)
    ]
    assert ramp.computing + ramp.computing_more * 99_999 > ramp.memory + ramp.memory_more * 99_999
    for count in (1, 1000, 50_000, 100_000):
        assert run.elapsed_seconds(count) == pytest.approx(sum(steps[:count]), rel=1e-9)
    edge = steps[60_000]
    assert run.first_longer(edge, 0, 100_000) == 60_001


def test_windows_are_not_modelled() -> None:
    with pytest.raises(FactsError, match="attention with a window"):
        _ = EngineSpec(model="google/gemma-2-9b-it").cost
