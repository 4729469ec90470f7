"""The performance tables of the second seed (S2) against the ceilings: facts model-math A.3, cell by cell, by seed line and batch.

26 of the 32 tokens/s cells lie above what the hardware can do, most of the time-to-first-token ones too. They are what a tool that
knows the ceiling must refuse: a reading above it means that an input is wrong. A100 is taken at the generous 2.039 TB/s, the
8-bit rows with an 8-bit KV cache, contexts as each table states them (input + half the output).
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from llm_serving_exporter.derive.roof import Bound, decode_ceiling, prefill_floor_seconds
from llm_serving_exporter.derive.work import compute_seconds, prefill_flops
from llm_serving_exporter.model.derived import Cause
from llm_serving_exporter.model.hardware import GpuPeaks, Hardware, Parallel
from llm_serving_exporter.model.shape import Geometry, Precision, WeightFormat
from tests.support.builders.engine_roofline import roofline
from tests.support.builders.windows import MINUTE, held, window
from tests.support.models.roofs import A100, BF16, FP8, H100, INT8, LLAMA_8B, LLAMA_70B, LLAMA_405B, Roof, roof, served
from tests.support.rows import check_rows

IMPOSSIBLE_W = "impossible: weights alone"
IMPOSSIBLE_KV = "impossible: at the stated context"
ONLY_KV8 = "possible only with an 8-bit KV cache"
POSSIBLE = "possible"


@dataclass(frozen=True)
class Cell:
    """One tokens/s cell; `told` are A.3's ceilings by weights alone and with KV, in tokens/s."""

    line: int
    shape: Geometry
    peaks: GpuPeaks
    weights: WeightFormat
    tensor: int
    pipeline: int
    batch: int
    context: float
    seed: float
    told: tuple[float, float]
    verdict: str

    @property
    def eight_bit(self) -> bool:
        return self.weights.bits == 8

    def roof(self, *, kv_bytes: float | None = None) -> Roof:
        kv = kv_bytes if kv_bytes is not None else (1.0 if self.eight_bit else 2.0)
        return roof(served(self.shape, self.weights, kv), self.peaks, self.tensor, self.pipeline)

    def ceiling(self, context: float, *, kv_bytes: float | None = None) -> float:
        found = decode_ceiling(self.roof(kv_bytes=kv_bytes), self.batch, context)
        # at the stated contexts none of these cells comes near the compute arm
        assert context == 0 or found.bound is Bound.BANDWIDTH
        return found.bandwidth_tokens_per_second

    def judged(self) -> str:
        if self.seed > self.ceiling(0):
            return IMPOSSIBLE_W
        if self.seed > self.ceiling(self.context):
            return IMPOSSIBLE_KV
        if self.seed > self.ceiling(self.context, kv_bytes=2.0):
            return ONLY_KV8
        return POSSIBLE


W, KV = IMPOSSIBLE_W, IMPOSSIBLE_KV
# the batch table says "2K ctx"; the others 2K in + 512 out, 4K in + 1K out
SHORT, CHAT, LONG = 2048, 2048 + 256, 4096 + 512
CELLS = [
    Cell(146, LLAMA_8B, A100, BF16, 1, 1, 1, SHORT, 140, (135.8, 133.5), W),
    Cell(147, LLAMA_8B, A100, BF16, 1, 1, 4, SHORT, 540, (543, 507), KV),
    Cell(148, LLAMA_8B, A100, BF16, 1, 1, 16, SHORT, 2000, (2174, 1690), KV),
    # printed again in line 239 and 240 at 2.3K, where the ceilings are 2,645 and 3,800
    Cell(149, LLAMA_8B, A100, BF16, 1, 1, 32, SHORT, 3600, (4347, 2765), KV),
    Cell(150, LLAMA_8B, A100, BF16, 1, 1, 64, SHORT, 5800, (8694, 4054), KV),
    Cell(151, LLAMA_8B, A100, BF16, 1, 1, 128, SHORT, 7200, (17388, 5287), KV),
    Cell(152, LLAMA_8B, A100, BF16, 1, 1, 256, SHORT, 7800, (34776, 6234), KV),
    Cell(238, LLAMA_8B, A100, INT8, 1, 1, 1, CHAT, 172, (271.7, 266), POSSIBLE),
    Cell(239, LLAMA_8B, A100, INT8, 1, 1, 32, CHAT, 4200, (8694, 5289), ONLY_KV8),
    Cell(240, LLAMA_8B, A100, INT8, 1, 1, 64, CHAT, 7000, (17388, 7601), ONLY_KV8),
    Cell(238, LLAMA_8B, H100, BF16, 1, 1, 1, CHAT, 238, (223.2, 218.8), W),
    Cell(239, LLAMA_8B, H100, BF16, 1, 1, 32, CHAT, 6100, (7142, 4345), KV),
    Cell(240, LLAMA_8B, H100, BF16, 1, 1, 64, CHAT, 9800, (14284, 6244), KV),
    Cell(238, LLAMA_8B, H100, FP8, 1, 1, 1, CHAT, 286, (446, 438), POSSIBLE),
    Cell(239, LLAMA_8B, H100, FP8, 1, 1, 32, CHAT, 7800, (14284, 8690), ONLY_KV8),
    Cell(240, LLAMA_8B, H100, FP8, 1, 1, 64, CHAT, 13500, (28568, 12488), KV),
    Cell(251, LLAMA_70B, A100, BF16, 2, 1, 1, LONG, 67, (29.3, 29.0), W),
    Cell(251, LLAMA_70B, A100, BF16, 2, 1, 32, LONG, 1400, (939, 697), W),
    Cell(252, LLAMA_70B, A100, INT8, 4, 1, 1, LONG, 154, (117.3, 116.1), W),
    Cell(252, LLAMA_70B, A100, INT8, 4, 1, 32, LONG, 3800, (3755, 2787), W),
    Cell(253, LLAMA_70B, H100, BF16, 2, 1, 1, LONG, 111, (48.2, 47.7), W),
    Cell(253, LLAMA_70B, H100, BF16, 2, 1, 32, LONG, 2400, (1542, 1145), W),
    Cell(254, LLAMA_70B, H100, FP8, 4, 1, 1, LONG, 286, (192.8, 190.7), W),
    Cell(254, LLAMA_70B, H100, FP8, 4, 1, 32, LONG, 7200, (6170, 4578), W),
    Cell(255, LLAMA_70B, H100, FP8, 8, 1, 1, LONG, 455, (385.6, 381.5), W),
    Cell(255, LLAMA_70B, H100, FP8, 8, 1, 32, LONG, 12000, (12339, 9156), KV),
    # two pipeline stages are serial for one token: the bandwidth of 8 GPUs, not of 16
    Cell(265, LLAMA_405B, A100, INT8, 8, 2, 1, CHAT, 45, (40.4, 40.3), W),
    # A.3 prints 631, the KV of all 16 sequences on each stage; two stages hold half of them each, as in its row 267
    Cell(265, LLAMA_405B, A100, INT8, 8, 2, 16, CHAT, 600, (646, 639), POSSIBLE),
    Cell(266, LLAMA_405B, H100, FP8, 8, 1, 1, CHAT, 91, (66.4, 66.3), W),
    Cell(266, LLAMA_405B, H100, FP8, 8, 1, 16, CHAT, 1200, (1062, 1038), W),
    Cell(267, LLAMA_405B, H100, FP8, 8, 2, 1, CHAT, 143, (66.4, 66.3), W),
    Cell(267, LLAMA_405B, H100, FP8, 8, 2, 16, CHAT, 2000, (1062, 1050), W),
]


def _name(cell: Cell) -> str:
    return f"S2:{cell.line}-{cell.peaks.name[:4]}-{cell.weights.name}-B{cell.batch}"


@check_rows("cell", CELLS, ids=_name)
def test_ceilings_of_the_cell(cell: Cell) -> None:
    assert (cell.ceiling(0), cell.ceiling(cell.context)) == pytest.approx(cell.told, rel=2e-3)


@check_rows("cell", CELLS, ids=_name)
def test_verdict_on_the_cell(cell: Cell) -> None:
    assert cell.judged() == cell.verdict


@check_rows("cell", CELLS, ids=_name)
def test_counters_that_say_so_are_shown_as_they_are_and_flagged(cell: Cell) -> None:
    """A server whose counters made the cell for a minute: above 1 nothing is clamped, and the cause says that an input is wrong."""
    # engines count each pipeline stage's micro-batch as a step
    together = max(1, cell.batch // cell.pipeline)
    decoded = cell.seed * MINUTE
    done = window(decoded=decoded, steps=decoded / together, **held(cell.context, cell.batch))
    parallel = Parallel(cell.tensor, cell.pipeline)
    found = roofline(done, (), cell.roof().model, Hardware(cell.peaks, parallel, float(parallel.gpus))).roofline
    assert found.decode_ratio == pytest.approx(cell.seed / cell.ceiling(cell.context), rel=1e-6)
    impossible = cell.verdict in (W, KV)
    assert (found.decode_ratio > 1) is impossible
    assert found.causes.get("decode_ceiling_ratio") is (Cause.INPUTS if impossible else None)


def test_26_of_32_cells_are_impossible() -> None:
    assert Counter(cell.judged() for cell in CELLS) == {W: 16, KV: 10, ONLY_KV8: 3, POSSIBLE: 3}
    # one of the possible ones would have to run at 94 % of its ceiling
    close = [cell for cell in CELLS if cell.judged() == POSSIBLE and cell.seed > 0.9 * cell.ceiling(cell.context)]
    assert [_name(cell) for cell in close] == ["S2:265-A100-int8-B16"]


@pytest.mark.parametrize(("line", "batch", "seed", "told"), [(239, 32, 3600, 2645), (240, 64, 5800, 3800)])
def test_cells_that_are_printed_twice_at_their_longer_context(line: int, batch: int, seed: float, told: float) -> None:
    found = decode_ceiling(roof(served(LLAMA_8B), A100), batch, CHAT)
    assert found.tokens_per_second == pytest.approx(told, rel=1e-3)
    assert found.tokens_per_second < seed


@pytest.mark.parametrize(("line", "seed", "batch"), [(201, 5400, 32), (202, 7000, 256), (203, 8500, 256)])
def test_serving_strategies_are_above_the_ceiling_of_decode(line: int, seed: float, batch: int) -> None:
    """S2:201-203, 8B on A100; the last two state no batch: above the ceiling at any up to 256, so they cannot count decode tokens only."""
    found = decode_ceiling(roof(served(LLAMA_8B), A100), batch, SHORT)
    assert seed > found.tokens_per_second


@check_rows(
    ("batch", "seed", "seed_utilisation", "told"),
    [(1, 140, 0.01, 0.007), (4, 540, 0.03, 0.028), (16, 2000, 0.10, 0.103), (32, 3600, 0.20, 0.186),
     (64, 5800, 0.40, 0.299), (128, 7200, 0.75, 0.371), (256, 7800, 0.95, 0.402)],
)  # fmt: skip
def test_compute_utilisation_of_the_batch_table(batch: int, seed: float, seed_utilisation: float, told: float) -> None:
    """S2:146-152, column 4 (e16): the seed's own tokens/s need less of 312 TFLOP/s than it says, from batch 64 on by far."""
    found = decode_ceiling(roof(served(LLAMA_8B), A100), batch, SHORT)
    share = seed / found.compute_tokens_per_second
    assert share == pytest.approx(told, abs=6e-4)
    assert (share < 0.8 * seed_utilisation) == (batch in {1, 64, 128, 256})


@dataclass(frozen=True)
class Prefill:
    """One time-to-first-token cell: least milliseconds at the row's own dense rate, all FLOPs counted at it."""

    line: int
    shape: Geometry
    peaks: GpuPeaks
    weights: WeightFormat
    rate: Precision
    tensor: int
    pipeline: int
    tokens: int
    teraflop: float
    least_ms: float
    seed_ms: float
    utilisation: float


EIGHT, SEVENTY = 29.7, 582.8
PREFILLS = [
    Prefill(236, LLAMA_8B, A100, BF16, Precision.BF16, 1, 1, 2048, EIGHT, 95.2, 45, 2.11),
    Prefill(236, LLAMA_8B, A100, INT8, Precision.INT8, 1, 1, 2048, EIGHT, 47.6, 35, 1.36),
    Prefill(236, LLAMA_8B, H100, BF16, Precision.BF16, 1, 1, 2048, EIGHT, 30.0, 18, 1.67),
    Prefill(236, LLAMA_8B, H100, FP8, Precision.FP8, 1, 1, 2048, EIGHT, 15.0, 12, 1.25),
    Prefill(251, LLAMA_70B, A100, BF16, Precision.BF16, 2, 1, 4096, SEVENTY, 934, 320, 2.92),
    Prefill(252, LLAMA_70B, A100, INT8, Precision.INT8, 4, 1, 4096, SEVENTY, 233.5, 95, 2.46),
    Prefill(253, LLAMA_70B, H100, BF16, Precision.BF16, 2, 1, 4096, SEVENTY, 294.5, 130, 2.27),
    Prefill(254, LLAMA_70B, H100, FP8, Precision.FP8, 4, 1, 4096, SEVENTY, 73.6, 35, 2.10),
    Prefill(255, LLAMA_70B, H100, FP8, Precision.FP8, 8, 1, 4096, SEVENTY, 36.8, 20, 1.84),
    Prefill(265, LLAMA_405B, A100, INT8, Precision.INT8, 8, 2, 2048, 1662.5, 166.5, 380, 0.44),
    Prefill(266, LLAMA_405B, H100, FP8, Precision.FP8, 8, 1, 2048, 1662.5, 105.0, 120, 0.88),
    Prefill(267, LLAMA_405B, H100, FP8, Precision.FP8, 8, 2, 2048, 1662.5, 52.5, 75, 0.70),
]


@check_rows("row", PREFILLS, ids=lambda row: f"S2:{row.line}-{row.peaks.name[:4]}-{row.weights.name}")
def test_time_to_first_token(row: Prefill) -> None:
    """Nine of the twelve are below what the FLOPs need, all of them 8B and 70B; 267 too, since a prompt alone passes two stages in turn."""
    it = roof(served(row.shape, row.weights, 1.0), row.peaks, row.tensor, row.pipeline)
    flops = sum(prefill_flops(it, row.tokens).values())
    assert flops / 1e12 == pytest.approx(row.teraflop, rel=1.5e-3)
    least = compute_seconds(it, {row.rate: flops})
    assert least * 1e3 == pytest.approx(row.least_ms, rel=2e-3)
    assert least * 1e3 / row.seed_ms == pytest.approx(row.utilisation, rel=8e-3)
    # ours keeps attention at BF16 and lets the stages take turns: never below the table's figure
    floor = prefill_floor_seconds(it, row.tokens)
    assert row.pipeline * least <= floor * (1 + 1e-12)
    assert floor <= row.pipeline * least * 1.05
    assert (row.seed_ms < floor * 1e3) == (row.line < 265 or row.line == 267)
