"""What the product says of a recorded engine, held against the GPU's own counters and the engine's client. Pure, but for the playing.

**Bandwidth.** By arithmetic over the steady part of each phase, and by the product's own reading of GPM, beside the witness's.

**Compute.** As measure.py explains: tensor activity x SM clock / data-sheet clock. Tensor cores also work on what is no token (unfilled
tiles), so FLOPs that are counted may never be above that; only prompts fill the tiles (recorded on an H100: 0 to 10 % below, 16 with
routed experts; decode up to 94).

**Counts.** Tokens and finished requests between pages at which nothing runs are the client's, to the token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_exporter.model.shape import Precision
from tests.hardware.measure import FLOPS_PER_SM_AND_CYCLE, data_sheet_clock_hertz
from tests.support.builders.h100 import (
    PHASE_TOLERANCE,
    Measured,
    Phase,
    Run,
    average_lines,
    list_phases,
    list_stretches,
    measure,
    read_lines,
)

# issue 4, as of the copy loop
GPM_TOLERANCE = 0.05
COMPUTE_ABOVE, COMPUTE_BELOW = 0.05, 0.20
# 5 % over all recordings; of one alone it is up to 5.9, a model with experts
RUN_RMS_TOLERANCE = 0.06


@dataclass(frozen=True)
class Judgement:
    """What was held, a line a phase and a stretch, and a sentence for each that does not hold."""

    lines: tuple[str, ...]
    faults: tuple[str, ...]


def judge(run: Run) -> Judgement:
    """Holds all of a run."""
    truth = run.recording.json("client/truth.json")
    faults = [f"{run} {name}: no request ended well" for name, one in truth.items() if not one["outcome_ok"]]
    lines, off = [], []
    for phase in (one for one in list_phases(run) if truth[one.name]["outcome_ok"]):
        alone, beside = measure(phase), measure(phase, with_gpm=True)
        shares = {
            "GPM": alone.gpm,
            "by arithmetic": alone.engine.roofline.ratio.get("model"),
            "by the product's GPM": beside.engine.roofline.ratio.get("gpm"),
            "FLOPs": alone.engine.roofline.compute_ratio,
            "tensor cores": count_tensor(phase),
        }
        said = (f"{name} {'–' if value is None else f'{value:.3f}'}" for name, value in shares.items())
        lines.append(f"{phase}, {phase.seconds:.0f} s: {', '.join(said)}")
        faults += [f"{lines[-1]}: {why}" for why in _faults_of(alone, shares)]
        if shares["by arithmetic"] is not None:
            off.append(alone.off)
    if off:
        rms = math.sqrt(sum(one * one for one in off) / len(off))
        lines.append(f"{run}: bandwidth by arithmetic is off by {rms:.1%} (rms), {max(map(abs, off)):.1%} at worst")
        if rms > RUN_RMS_TOLERANCE:
            faults.append(lines[-1])
    else:
        faults.append(f"{run}: no phase has bandwidth by arithmetic and two pages amid it")
    for stretch in list_stretches(run):
        page, client = stretch.count_of_page(), stretch.count_of_clients()
        lines.append(f"{stretch}: page {page}, client {client}")
        if any(client[key] not in (None, value) for key, value in page.items()):
            faults.append(lines[-1])
    counted = {name for stretch in list_stretches(run) for name in stretch.names}
    lines += [
        f"{run} {name}: no counts, requests were broken off in it or beside it" for name in truth if name not in counted
    ]
    return Judgement(tuple(lines), tuple(faults))


def _faults_of(alone: Measured, shares: dict[str, float | None]) -> Iterator[str]:
    _, model, gpm, compute, tensor = shares.values()
    if causes := alone.engine.roofline.causes:
        yield f"the product calls its own ratios suspect: {dict(causes)}"
    if model is None:
        yield f"no bandwidth by arithmetic ({alone.derived.signals.get('bandwidth_ceiling_ratio_model')})"
    elif abs(alone.off) > PHASE_TOLERANCE or not alone.is_bounded:
        bounds = alone.bounds
        yield f"bandwidth by arithmetic ({bounds.lower:.3f} to {bounds.upper:.3f}) is {alone.off:+.1%} off GPM's"
    if gpm is None or abs(gpm / alone.gpm - 1) > GPM_TOLERANCE:
        yield "the product's own reading of GPM differs from the witness's"
    if compute is not None and tensor is not None:
        if compute > tensor * (1 + COMPUTE_ABOVE):
            yield f"FLOPs counted are {compute / tensor - 1:+.1%} off what tensor cores did"
        elif compute < tensor * (1 - COMPUTE_BELOW) and _computes_prompts_only(alone.phase):
            yield f"FLOPs counted are {compute / tensor - 1:+.1%} off what tensor cores did for prompts"


def count_tensor(phase: Phase) -> float | None:
    """The share of the dense BF16 peak that the cycles of tensor cores make; None where card or witness do not say enough."""
    card, dense = phase.run.card, phase.run.peaks.flops.get(Precision.BF16)
    per_cycle, multiprocessors = (
        FLOPS_PER_SM_AND_CYCLE.get(tuple(card["compute_capability"])),
        card.get("multiprocessors"),
    )
    if dense is None or per_cycle is None or multiprocessors is None:
        return None
    cycles = [
        {"t": line["t"], "hertz": line["tensor"] / 100 * line["smclk"] * 1e6}
        for line in read_lines(phase.run, "witness.jsonl")
        if "tensor" in line and "smclk" in line
    ]
    times = phase.run.recording.timestamps
    hertz = average_lines(cycles, times[phase.first_page], times[phase.last_page], "hertz")
    return None if hertz is None else hertz / data_sheet_clock_hertz(dense, multiprocessors, per_cycle)


def _computes_prompts_only(phase: Phase) -> bool:
    """Whether each answer was one token, which comes of the prompt."""
    truth = phase.run.recording.json("client/truth.json")[phase.name]
    return bool(truth["gen_tokens_received"] == truth["outcome_ok"])
