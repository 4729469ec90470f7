"""The GPU catalogue held against a second source of each figure: vendors' headlines, memory by pins, units by clocks, planners' tables.

None of these is where the rows come from, so that an error of either shows. The headlines are sparse rates, as vendors print them.
They, the clocks and the pins are recalled from vendors' pages and were not read again; the planner's and the chips' tables were read.
"""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.shape import Precision
from tests.support.models.gpucatalogue import CATALOGUE, row
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.unit.facts.test_gpus import PUBLISHED

BF16, FP8, INT8, FP4, FP32 = Precision.BF16, Precision.FP8, Precision.INT8, Precision.FP4, Precision.FP32

# NVIDIA's product pages and data sheets: the largest tensor figure, sparse, of the precision it is of
HEADLINES = [
    ("RTX 5000 Ada", FP8, 1044.4), ("RTX 4500 Ada", FP8, 634.0), ("RTX 4000 Ada", FP8, 427.6), ("RTX 4000 SFF Ada", FP8, 306.8),
    ("RTX 2000 Ada", FP8, 191.9), ("RTX A5500", BF16, 272.8), ("RTX A5000", BF16, 222.2), ("RTX A4500", BF16, 189.2),
    ("RTX A4000", BF16, 153.4), ("RTX A2000 12GB", BF16, 63.9), ("RTX A2000 6GB", BF16, 63.9), ("RTX PRO 6000 Max-Q", FP4, 3511),
    ("RTX PRO 5000", FP4, 2142), ("RTX PRO 5000 72GB", FP4, 2142), ("RTX PRO 4000", FP4, 1178), ("RTX PRO 2000", FP4, 545),
    ("RTX 5080", FP4, 1801), ("RTX 5070 Ti", FP4, 1406), ("RTX 5070", FP4, 988), ("RTX 5060 Ti", FP4, 759), ("RTX 5060", FP4, 614),
    ("RTX 4080", INT8, 780), ("RTX 4070 Ti SUPER", INT8, 706), ("RTX 4070 Ti", INT8, 641), ("RTX 4070 SUPER", INT8, 568),
    ("RTX 4070", INT8, 466), ("RTX 4060 Ti", INT8, 353), ("RTX 4060", INT8, 242), ("RTX 4090 D", INT8, 1177),
    ("RTX 3090 Ti", INT8, 640), ("RTX 3080 Ti", INT8, 546), ("RTX 3080 10GB", INT8, 476), ("RTX 3070", INT8, 325),
    ("A2", INT8, 72), ("A16", INT8, 71.8), ("GB10", FP4, 1000), ("Jetson AGX Thor", FP4, 2070), ("Jetson T4000", FP4, 1200),
    ("Jetson AGX Orin 64GB", INT8, 170), ("Jetson AGX Orin 32GB", INT8, 108), ("Jetson Orin Nano Super 8GB", INT8, 67),
    ("B100", FP4, 14000), ("Radeon RX 9070 XT", INT8, 779), ("Radeon RX 9070", INT8, 578), ("Radeon AI PRO R9700", INT8, 766),
]  # fmt: skip


@check_rows(("name", "precision", "sparse"), HEADLINES)
def test_a_dense_rate_is_half_of_the_sparse_headline(name, precision, sparse):
    assert row(name).flops[precision] / 1e12 == pytest.approx(sparse / 2, rel=0.012)


# units, clock in MHz, dense FLOP each does in a cycle: AMD's CDNA and RDNA white papers, Intel's Gaudi and Xe documents
BY_CLOCK = [
    ("Instinct MI300A", BF16, 228, 2100, 2048), ("Instinct MI300X", BF16, 304, 2100, 2048), ("Instinct MI325X", FP8, 304, 2100, 4096),
    ("Instinct MI350X", BF16, 256, 2200, 4096), ("Instinct MI350X", FP4, 256, 2200, 16384), ("Instinct MI250X", BF16, 110, 1700, 1024),
    ("Instinct MI250", BF16, 104, 1700, 1024), ("Instinct MI210", INT8, 104, 1700, 1024), ("Radeon RX 7900 XTX", BF16, 96, 2498, 512),
    ("Radeon RX 7900 XT", BF16, 84, 2394, 512), ("Radeon PRO W7900", BF16, 96, 2495, 512), ("Radeon PRO W7800 32GB", BF16, 70, 2525, 512),
    ("Radeon PRO W7800 48GB", INT8, 70, 2525, 512), ("Radeon RX 9070 XT", BF16, 64, 2970, 1024), ("Radeon RX 9070", FP8, 56, 2520, 2048),
    ("Radeon AI PRO R9700", FP8, 64, 2920, 2048), ("Ryzen AI Max+ 395", BF16, 40, 2900, 512), ("Gaudi 2", BF16, 2, 1650, 2 * 256 * 256),
    ("Gaudi 3", BF16, 8, 1600, 2 * 256 * 256), ("Data Center GPU Max 1550", BF16, 64, 1300, 4096), ("Arc B580", INT8, 20, 2850, 4096),
    ("Arc Pro B60", BF16, 20, 2400, 2048), ("Arc A770 16GB", INT8, 32, 2000, 4096), ("Arc Pro B50", INT8, 16, 2600, 4096),
    ("TITAN RTX", BF16, 72, 1770, 1024), ("Quadro RTX 8000", BF16, 72, 1770, 1024), ("Quadro RTX 6000", INT8, 72, 1770, 2048),
    ("Quadro RTX 5000", BF16, 48, 1815, 1024), ("RTX 2080 SUPER", BF16, 48, 1815, 512), ("RTX 2080 Ti", INT8, 68, 1545, 2048),
    ("P100 SXM 16GB", BF16, 56, 1480, 256), ("P40", FP32, 30, 1531, 256), ("P40", INT8, 30, 1531, 1024),
    ("RTX 3060 12GB", BF16, 28, 1777, 512),
    ("RTX 3060 Ti", BF16, 38, 1665, 512), ("RTX 3070 Ti", BF16, 48, 1770, 512), ("RTX 3080 12GB", INT8, 70, 1710, 2048),
    ("RTX PRO 4500", BF16, 82, 2407, 1024), ("RTX 5090 D", FP32, 170, 2407, 256), ("Jetson Orin NX 16GB", INT8, 8, 918, 4096),
    ("Jetson Orin NX 8GB", INT8, 8, 765, 4096),
]  # fmt: skip


@check_rows(("name", "precision", "units", "megahertz", "flop"), BY_CLOCK)
def test_a_rate_is_what_its_units_do_at_their_clock(name, precision, units, megahertz, flop):
    assert row(name).flops[precision] == pytest.approx(units * megahertz * 1e6 * flop, rel=0.026)


@check_rows(
    ("name", "precision", "units", "megahertz", "flop"),
    [
        ("Instinct MI355X", BF16, 256, 2400, 4096),
        ("Gaudi 3", BF16, 8, 1750, 2 * 256 * 256),
        ("Data Center GPU Max 1550", BF16, 64, 1600, 4096),
        ("RTX 2080 Ti", INT8, 68, 1635, 2048),
    ],
)
def test_the_highest_is_what_the_units_do_at_the_boost_clock(name, precision, units, megahertz, flop):
    assert row(name).flops_highest[precision] == pytest.approx(units * megahertz * 1e6 * flop, rel=0.001)


# rate of a pin in Gbit/s and the width of the bus, as vendors state them
BY_PINS = [
    ("RTX 5080", 30, 256), ("RTX 5070 Ti", 28, 256), ("RTX 5070", 28, 192), ("RTX 5060 Ti", 28, 128), ("RTX 5060", 28, 128),
    ("RTX 5090 D", 28, 512), ("RTX 4090 D", 21, 384), ("RTX 4080", 22.4, 256), ("RTX 4070 Ti SUPER", 21, 256), ("RTX 4070 Ti", 21, 192),
    ("RTX 4070 SUPER", 21, 192), ("RTX 4070", 21, 192), ("RTX 4060 Ti", 18, 128), ("RTX 4060", 17, 128), ("RTX 3090 Ti", 21, 384),
    ("RTX 3080 Ti", 19, 384), ("RTX 3080 12GB", 19, 384), ("RTX 3080 10GB", 19, 320), ("RTX 3070 Ti", 19, 256), ("RTX 3070", 14, 256),
    ("RTX 3060 Ti", 14, 256), ("RTX 3060 12GB", 15, 192), ("RTX 3060 8GB", 15, 128), ("RTX 2080 Ti", 14, 352), ("TITAN RTX", 14, 384),
    ("Quadro RTX 8000", 14, 384), ("Quadro RTX 6000", 14, 384), ("Quadro RTX 5000", 14, 256), ("RTX 5000 Ada", 18, 256),
    ("RTX 4500 Ada", 18, 192), ("RTX 4000 Ada", 18, 160), ("RTX 4000 SFF Ada", 14, 160), ("RTX 2000 Ada", 16, 128),
    ("RTX A5500", 16, 384),
    ("RTX A5000", 16, 384), ("RTX A4500", 16, 320), ("RTX A4000", 14, 256), ("RTX A2000 12GB", 12, 192), ("RTX A2000 6GB", 12, 192),
    ("RTX PRO 5000 72GB", 28, 384), ("RTX PRO 5000", 28, 384), ("RTX PRO 4500", 28, 256), ("RTX PRO 4000", 28, 192),
    ("RTX PRO 2000", 18, 128), ("A16", 12.5, 128), ("A2", 12.5, 128), ("L2", 12.5, 192), ("P100 SXM 16GB", 1.43, 4096),
    ("P100 PCIe 16GB", 1.43, 4096), ("P40", 7.2, 384), ("GB10", 8.533, 256), ("Jetson AGX Thor", 8.533, 256),
    ("Jetson T4000", 8.533, 256),
    ("Jetson AGX Orin 64GB", 6.4, 256), ("Jetson AGX Orin 32GB", 6.4, 256), ("Jetson Orin NX 16GB", 6.4, 128),
    ("Jetson Orin NX 8GB", 6.4, 128),
    ("Jetson Orin Nano Super 8GB", 6.4, 128), ("Instinct MI350X", 8, 8192), ("Instinct MI308X", 5.2, 8192),
    ("Instinct MI300A", 5.2, 8192),
    ("Instinct MI250X", 3.2, 4096), ("Instinct MI250", 3.2, 4096), ("Instinct MI210", 3.2, 4096), ("Radeon PRO W7900", 18, 384),
    ("Radeon PRO W7800 48GB", 18, 384), ("Radeon PRO W7800 32GB", 18, 256), ("Radeon RX 7900 XTX", 20, 384),
    ("Radeon RX 7900 XT", 20, 320),
    ("Radeon AI PRO R9700", 20, 256), ("Radeon RX 9070 XT", 20, 256), ("Radeon RX 9070", 20, 256), ("Ryzen AI Max+ 395", 8, 256),
    ("Data Center GPU Max 1550", 3.2, 4096), ("Arc Pro B60", 19, 192), ("Arc Pro B50", 14, 128), ("Arc B580", 19, 192),
    ("Arc A770 16GB", 17.5, 256), ("Gaudi 2", 3.2, 6144), ("Gaudi 3", 3.6, 8192), ("H20-3e 141GB", 6.25, 6144), ("B100", 8, 8192),
    ("Apple M4 Max 40-core", 8.533, 512), ("Apple M4 Max 32-core", 8.533, 384), ("Apple M4 Pro", 8.533, 256), ("Apple M4", 7.5, 128),
    ("Apple M3 Max 40-core", 6.4, 512), ("Apple M3 Max 30-core", 6.4, 384), ("Apple M3 Pro", 6.4, 192), ("Apple M3", 6.4, 128),
    ("Apple M3 Ultra", 6.4, 1024), ("Apple M2 Ultra", 6.4, 1024), ("Apple M2 Max", 6.4, 512), ("Apple M2 Pro", 6.4, 256),
    ("Apple M2", 6.4, 128),
    ("Apple M1 Ultra", 6.4, 1024), ("Apple M1 Max", 6.4, 512), ("Apple M1 Pro", 6.4, 256), ("Apple M1", 4.267, 128),
]  # fmt: skip


@check_rows(("name", "gigabits", "bits"), BY_PINS)
def test_a_bandwidth_is_the_pins_rate_times_the_bus(name, gigabits, bits):
    assert row(name).bandwidth_bytes_per_second == pytest.approx(gigabits * 1e9 * bits / 8, rel=0.026)


# jax-ml/scaling-book tpus.md (0819a7d), GiB and bytes/s and FLOP/s of a chip; the Neuron SDK's comparison tables (81ce03a)
BY_CHIP = [
    ("TPU v5p", 2.8e12, BF16, 4.59e14), ("TPU v5e", 8.1e11, INT8, 3.94e14), ("TPU v6e", 1.6e12, INT8, 1.84e15),
    ("TPU v7", 7.4e12, FP8, 4.614e15),
    ("Trainium", 0.8e12, BF16, 191e12), ("Trainium2", 2.9e12, FP8, 1299e12), ("Trainium3", 4.9e12, BF16, 671e12),
    ("Inferentia2", 0.82e12, BF16, 190e12), ("Rubin 288GB", 22e12, FP4, 35e15),
]  # fmt: skip


@check_rows(("name", "bandwidth", "precision", "rate"), BY_CHIP)
def test_a_chip_is_what_another_table_says(name, bandwidth, precision, rate):
    spec = row(name)
    assert spec.bandwidth_bytes_per_second == pytest.approx(bandwidth, rel=0.03)
    assert spec.flops[precision] == pytest.approx(rate, rel=0.006)


# ai-dynamo/aiconfigurator's system files (095f58a): bandwidth, bf16, fp8, fp4 (0: none)
PLANNER = [
    ("A100 PCIe 80GB", 1.935e12, 312e12, 0, 0), ("A100 SXM 80GB", 2.039e12, 312e12, 0, 0), ("A30", 0.933e12, 165e12, 0, 0),
    ("B200 180GB", 7.7e12, 2250e12, 4500e12, 9000e12), ("B300 288GB", 7.75e12, 2250e12, 4500e12, 14e15),
    ("Arc Pro B60", 0.456e12, 98.3e12, 0, 0),
    ("GB200 186GB", 8e12, 2500e12, 5000e12, 10e15), ("GB300 288GB", 8e12, 2500e12, 5000e12, 15e15),
    ("H100 PCIe 80GB", 2e12, 756.5e12, 1513e12, 0),
    ("H100 SXM 80GB", 3.35e12, 989e12, 1978e12, 0), ("H200 SXM 141GB", 4.8e12, 989e12, 1978e12, 0), ("L4", 0.3e12, 121e12, 242e12, 0),
    ("L40S", 0.864e12, 362.05e12, 733e12, 0), ("RTX PRO 6000 Server", 1.792e12, 467.8e12, 935.6e12, 1871.2e12),
]  # fmt: skip


@check_rows(("name", "bandwidth", "bf16", "fp8", "fp4"), PLANNER)
def test_nvidias_planner_is_within_what_the_row_says_is_published(name, bandwidth, bf16, fp8, fp4):
    spec = row(name)
    low = spec.bandwidth_lowest_bytes_per_second or spec.bandwidth_bytes_per_second
    high = spec.bandwidth_highest_bytes_per_second or spec.bandwidth_bytes_per_second
    assert low * 0.98 <= bandwidth <= high * 1.001
    for key, rate in ((BF16, bf16), (FP8, fp8), (FP4, fp4)):
        assert (key in spec.flops) == bool(rate)
        if rate:
            assert spec.flops_lowest.get(key, spec.flops[key]) * 0.997 <= rate
            assert rate <= spec.flops_highest.get(key, spec.flops[key]) * 1.001


def test_every_row_is_held_against_something():
    checked = {each[0] for each in (*PUBLISHED, *HEADLINES, *BY_CLOCK, *BY_PINS, *BY_CHIP, *PLANNER)}
    assert sorted(spec.name for spec in CATALOGUE) == sorted(checked)


def test_every_bandwidth_is_held_against_something():
    checked = {each[0] for each in (*PUBLISHED, *BY_PINS, *BY_CHIP, *PLANNER)}
    assert {spec.name for spec in CATALOGUE} <= checked


def test_the_page_says_how_many_there_are() -> None:
    assert f"**The catalogue** has {len(CATALOGUE)} GPUs" in (ROOT / "docs/ceiling-command.md").read_text()


def test_how_many_rows_were_only_recalled():
    """Better fewer; none may be added without a word about it here."""
    recalled = sorted(spec.name for spec in CATALOGUE if spec.confidence == "memory")
    assert len(recalled) == 20, recalled


@check_rows("vendor", ["Instinct", "Radeon", "Gaudi", "Arc", "TPU", "Trainium", "Inferentia", "Apple", "Jetson"])
def test_every_vendor_is_there(vendor):
    assert any(spec.name.startswith(vendor) for spec in CATALOGUE)
