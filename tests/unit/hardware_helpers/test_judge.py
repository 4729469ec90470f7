"""What is held against what on a real GPU: judging, measuring, the independent witness, and what the tests say where there is none."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from llm_serving_exporter.facts.peaks import peaks_of_identity
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.shape import Precision
from llm_serving_simulator.replay import Recording
from scripts.pack_recordings import DEFAULT_MEMBERS, pack
from tests.hardware.engines import copy_outcome, matmul_outcome
from tests.hardware.judge import judge
from tests.hardware.loads import Device, Progress
from tests.hardware.measure import (
    DATA_SHEET_CLOCK_LOWEST_RATIO,
    FLOPS_PER_SM_AND_CYCLE,
    Measured,
    data_sheet_clock_hertz,
    measured,
)
from tests.hardware.witness import NoGpmError, NoGpuError, Witness
from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders.h100 import H100, RUNS, find_run, open_run
from tests.support.models.gpucatalogue import CATALOGUE, row

RUN = "h100-sglang-0.5.17"


@pytest.mark.parametrize("name", RUNS)
def test_the_committed_recordings_hold(name):
    found = judge(find_run(name))
    assert not found.faults
    assert any("prefill" in line or "shared4k" in line for line in found.lines)


def unpack(folder, **changed):
    """The recording's files in a folder with card.json, some of them changed, packed again."""
    members = dict(find_run(RUN).recording.members)
    for name, content in {**members, "card.json": json.dumps(H100).encode(), **changed}.items():
        path = folder / RUN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    pack([folder / RUN], folder / f"{RUN}.tar.xz", DEFAULT_MEMBERS, None)
    return open_run(Recording.load(folder / f"{RUN}.tar.xz"))


def test_a_recording_of_another_truth_does_not_hold(tmp_path):
    recording = find_run(RUN).recording
    phases = {one["phase"]: one for one in recording.json("client/phases.json")}
    truth, lines = recording.json("client/truth.json"), recording.jsonl("witness.jsonl")
    truth["mixed"]["gen_tokens_received"] += 1

    def change(line):
        within = {name for name, one in phases.items() if one["start"] <= line["t"] <= one["end"]}
        factors = {"dram": 1.25 if "decode64" in within else 1.0, "tensor": 1.5 if "prefill" in within else 1.0}
        factors["tensor"] *= 0.8 if "mixed" in within else 1.0
        return {**line, **{name: line[name] * factor for name, factor in factors.items()}}

    product = [
        {"t": at, "dram_bandwidth_ratio": 0.646}
        for number, at in recording.timestamps.items()
        if number in recording.pages
    ]
    changed = {
        "client/truth.json": json.dumps(truth).encode(),
        "witness.jsonl": b"".join(json.dumps(change(line)).encode() + b"\n" for line in lines),
        "product.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in product),
    }
    found = judge(unpack(tmp_path, **changed))
    said = "\n".join(found.faults)
    assert "decode64, 10 s: GPM 0.80" in said
    for phase, why in {
        "decode64": "-17.",  # above 15 % off, and so is the mean of all phases
        "prefill": "off what tensor cores did for prompts",
        "mixed": "off what tensor cores did",
    }.items():
        assert any(phase in line and why in line for line in found.faults), (phase, said)
    # what the product reads is its own: 0.646 everywhere is right in no phase but the one that was changed
    assert sum("the product's own reading of GPM differs" in line for line in found.faults) == 5 - 1
    assert any("mixed: page" in line for line in found.faults)
    assert any("(rms)" in line for line in found.faults)


# --- what is held against what on a real GPU, on figures made by hand ---


UUID = "GPU-00000000-0000-0000-0000-000000000000"
H100_PEAKS = GpuIdentity(
    UUID, 0, "NVIDIA H100 80GB HBM3", compute_capability=(9, 0), sm_clock_max_hertz=1980e6,
    memory_bandwidth_peak_bytes_per_second=3352.32e9,
)  # fmt: skip
HOPPER = FLOPS_PER_SM_AND_CYCLE[9, 0]


def reading(dram=0.8, tensor=0.9, clock=1.83e9, window=0.5, **more):
    clocks = {} if clock is None else {"sm": clock}
    return GpuReading(
        H100_PEAKS,
        dram_bandwidth_ratio=dram,
        tensor_activity_ratio=tensor,
        gpm_window_seconds=window,
        clock_hertz=clocks,
        **more,
    )


def one_pass(at, gpu):
    return GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", at, (gpu,))


def under_load(per_second, *readings):
    passes = [one_pass(10.0 + 0.5 * number, gpu) for number, gpu in enumerate(readings)]
    progress = Progress(Device(132), [(0.0, 0), (100.0, round(100 * per_second))])
    return measured(UUID, passes, progress)


def test_a_ratio_is_weighted_by_its_windows_and_the_baseline_counts_for_nothing():
    found = under_load(1.0, reading(dram=0.0), reading(dram=0.8, window=0.5), reading(dram=0.5, window=1.0))
    assert found.mean("dram_bandwidth_ratio") == pytest.approx((0.8 * 0.5 + 0.5 * 1.0) / 1.5)
    assert under_load(1.0, reading(), reading(dram=None)).mean("dram_bandwidth_ratio") is None
    assert under_load(1.0, reading(), reading(window=None)).mean("dram_bandwidth_ratio") is None


def test_tensor_cycles_follow_the_clock_as_it_was():
    # a window at 1800 MHz, one from there to 1600: 0.9 x 1800 and 0.6 x 1700
    found = under_load(1.0, reading(clock=1.8e9), reading(tensor=0.9, clock=1.8e9), reading(tensor=0.6, clock=1.6e9))
    assert found.tensor_cycles_per_second() == pytest.approx((0.9 * 1.8e9 + 0.6 * 1.7e9) / 2)
    assert under_load(1.0, reading(), reading(clock=None)).tensor_cycles_per_second() is None
    assert under_load(1.0, reading(), reading(tensor=None)).tensor_cycles_per_second() is None


def test_a_gpu_that_a_pass_does_not_show_is_not_measured():
    with pytest.raises(ValueError, match="1 of 2 passes do not show GPU-0000"):
        under_load(1.0, reading(), reading(lost=True))


def test_the_rate_is_that_between_the_first_and_the_last_pass():
    found = under_load(3e12, reading(), reading(), reading())
    assert (found.per_second, found.seconds, found.multiprocessors) == (pytest.approx(3e12), 1.0, 132)


@pytest.mark.parametrize(
    ("name", "multiprocessors", "megahertz"),
    [
        # boost clocks for tensor cores: H100 white paper, table 3 (SXM 1830, PCIe 1620)
        ("H100 SXM 80GB", 132, 1830),
        ("H100 PCIe 80GB", 114, 1620),
        ("H200 SXM 141GB", 132, 1830),
        ("GH200 96GB", 132, 1830),
    ],
)
def test_the_catalogues_dense_rates_hold_at_the_clocks_that_the_white_paper_names(name, multiprocessors, megahertz):
    dense = row(name).flops[Precision.BF16]
    assert data_sheet_clock_hertz(dense, multiprocessors, HOPPER) / 1e6 == pytest.approx(megahertz, rel=0.002)


def test_a_product_that_is_slowed_down_for_export_is_told_from_one_that_is_not():
    # H20: 78 SMs at up to 1980 MHz (nvidia-smi)
    cut = data_sheet_clock_hertz(row("H20 96GB").flops[Precision.BF16], 78, HOPPER)
    assert cut < 0.5 * DATA_SHEET_CLOCK_LOWEST_RATIO * 1980e6
    # H200 NVL, the lowest of the others: 132 SMs at up to 1785 MHz
    whole = data_sheet_clock_hertz(row("H200 NVL 141GB").flops[Precision.BF16], 132, HOPPER)
    assert DATA_SHEET_CLOCK_LOWEST_RATIO * 1785e6 < whole < 1785e6


def test_a_sparse_rate_would_need_a_clock_that_no_card_has():
    dense = row("H100 SXM 80GB").flops[Precision.BF16]
    assert data_sheet_clock_hertz(2 * dense, 132, HOPPER) > 1.5 * 1980e6


def test_the_copy_is_an_engine_whose_two_sources_are_its_bytes_and_gpms():
    peaks = peaks_of_identity(H100_PEAKS, CATALOGUE)
    copied = 2.9e12  # BabelStream's copy on H100
    outcome = copy_outcome(under_load(copied, reading(), *[reading(dram=0.86)] * 4), peaks, 4 << 30)
    assert outcome.roofline.achieved["model"] == pytest.approx(copied)
    assert outcome.roofline.ratio["model"] == pytest.approx(copied / 3352.32e9)
    assert outcome.roofline.ratio["gpm"] == pytest.approx(0.86)
    assert outcome.roofline.achieved["gpm"] == pytest.approx(0.86 * 3352.32e9)
    assert outcome.roofline.compute_ratio == 0.0
    assert not outcome.roofline.causes


def test_a_copy_above_the_peak_is_suspect():
    peaks = peaks_of_identity(H100_PEAKS, CATALOGUE)
    outcome = copy_outcome(under_load(3.4e12, reading(), reading(dram=1.02)), peaks, 4 << 30)
    assert outcome.roofline.ratio["model"] > 1
    assert set(outcome.roofline.causes) == {"bandwidth_ceiling_ratio_model", "bandwidth_ceiling_ratio_gpm"}


def test_the_product_is_an_engine_whose_compute_ratio_is_its_flops():
    peaks = peaks_of_identity(H100_PEAKS, CATALOGUE)
    done = 790e12
    found = under_load(done, reading(), reading(), reading())
    outcome = matmul_outcome(found, peaks, 8192)
    assert outcome.roofline.flops_per_second == pytest.approx(done)
    assert outcome.roofline.compute_ratio == pytest.approx(done / 989.5e12)


def test_activity_and_clock_make_the_same_ratio_where_the_counters_are_right():
    peaks = peaks_of_identity(H100_PEAKS, CATALOGUE)
    dense = peaks.flops[Precision.BF16]
    activity, clock = 0.92, 1.7e9
    done = activity * clock * 132 * HOPPER  # what tensor cores do in that many cycles
    found: Measured = under_load(done, reading(clock=clock), *[reading(tensor=activity, clock=clock)] * 3)
    cycles = found.tensor_cycles_per_second()
    assert cycles is not None
    counted = cycles / data_sheet_clock_hertz(dense, found.multiprocessors, HOPPER)
    assert matmul_outcome(found, peaks, 8192).roofline.compute_ratio == pytest.approx(counted)
    # the clock is not left out: with the data sheet's it would be 7 % more
    assert counted == pytest.approx(0.92 * 1700 / 1830, rel=1e-3)


# --- the independent witness over the NVML stub ---


@pytest.fixture
def state(tmp_path):
    return StubState(tmp_path / "state.txt", gpus=2)


@pytest.fixture
def nvml(nvml_library, state):
    with loaded_stub(nvml_library, state.path) as stub:
        yield stub
        assert (stub.live_samples, stub.init_balance, stub.misuse) == (0, 0, 0)


def test_a_line_has_what_gpm_says_in_percent_and_the_readings_of_now(state, nvml):
    state.update("gpu1", {"gpm:10": 62.5, "gpm:5": 22.0, "gpm:2": 88.0, "gpm:1": 91.0, "power_mw": 345_000})
    with closing(Witness(1)) as witness:
        first, second = witness.read(), witness.read()
    assert second.pop("t") >= first.pop("t") > 1e9
    assert first == second == {
        "sm": 88.0, "tensor": 22.0, "dram": 62.5, "gr": 91.0, "util": 100, "memutil": 8, "watts": 345.0, "mj": 123456789,
        "smclk": 1755, "memclk": 2619, "used": (70000 + 479) << 20,
    }  # fmt: skip
    assert nvml.calls("nvmlGpmSampleGet") == 3  # windows follow one another


def test_what_a_card_does_not_say_is_left_out(state, nvml):
    state.drop("gpu0", "energy_mj", "gpm:5")
    state.update("gpu0", {"gpm:10": "nan"})
    with closing(Witness()) as witness:
        assert not {"mj", "tensor", "dram", "occ"} & set(witness.read())


def test_the_card_is_described_as_its_driver_does(state, nvml):
    with closing(Witness()) as witness:
        assert witness.card == {
            "name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0], "memory_clock_max_megahertz": 2619, "bus_width_bits": 5120,
            "multiprocessors": 132,
        }  # fmt: skip
        assert witness.uuid == StubState.uuid(0)
    state.drop("gpu0", "cores")
    with closing(Witness()) as witness:
        assert "multiprocessors" not in witness.card


def test_no_gpu_and_no_gpm_are_told_apart(state, nvml):
    with pytest.raises(NoGpuError, match="GPU 2: Invalid Argument"):
        Witness(2)
    state.set("gpu0", gpm=0)
    with pytest.raises(NoGpmError, match="NVIDIA H100 80GB HBM3 has no GPM"):
        Witness()
    state.fail("sys", "nvmlInitWithFlags", 9)
    with pytest.raises(NoGpuError, match="Driver Not Loaded"):
        Witness()
