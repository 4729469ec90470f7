"""The GPU catalogue: its rows, held against a second source of each figure; which names mean which row, which device is which product."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import gpus
from llm_serving_exporter.facts.gpus import find, match
from llm_serving_exporter.facts.peaks import native
from llm_serving_exporter.model.shape import Precision
from tests.support.models.gpucatalogue import CATALOGUE, DOCUMENT, MEBIBYTE, device, instance, row
from tests.support.paths import ROOT
from tests.support.rows import check_rows

BF16, FP8, INT8, FP4, FP32 = Precision.BF16, Precision.FP8, Precision.INT8, Precision.FP4, Precision.FP32

# GB/s; dense TFLOP/s of bf16, fp8, int8, fp4; TDP; compute capability (NVIDIA data sheets through the sources in gpus.toml)
PUBLISHED = [
    ("H100 SXM 80GB", 3350, 989.5, 1979, 1979, None, 700, (9, 0)),
    ("H100 PCIe 80GB", 2039, 756, 1513, 1513, None, 350, (9, 0)),
    ("H100 NVL 94GB", 3938, 835.5, 1670.5, 1670.5, None, 400, (9, 0)),
    ("H200 SXM 141GB", 4800, 989.5, 1979, 1979, None, 700, (9, 0)),
    ("H200 NVL 141GB", 4800, 835.5, 1670.5, 1670.5, None, 600, (9, 0)),
    ("GH200 96GB", 4000, 989, 1979, 1979, None, None, (9, 0)),
    ("GH200 144GB", 4900, 989, 1979, 1979, None, None, (9, 0)),
    ("H20 96GB", 4000, 148, 296, 296, None, None, (9, 0)),
    ("H800 SXM 80GB", 3350, 989.5, 1979, 1979, None, 700, (9, 0)),
    ("B200 180GB", 8000, 2250, 4500, 4500, 9000, 1000, (10, 0)),
    ("GB200 186GB", 8000, 2500, 5000, 5000, 10000, 1200, (10, 0)),
    ("B300 288GB", 8000, 2250, 4500, None, 14000, None, (10, 3)),
    ("GB300 288GB", 8000, 2500, 5000, None, 15000, 1400, (10, 3)),
    ("A100 SXM 80GB", 2039, 312, None, 624, None, 400, (8, 0)),
    ("A100 PCIe 80GB", 1935, 312, None, 624, None, 300, (8, 0)),
    ("A100 SXM 40GB", 1555, 312, None, 624, None, 400, (8, 0)),
    ("A100 PCIe 40GB", 1555, 312, None, 624, None, 250, (8, 0)),
    ("A800 SXM 80GB", 2039, 312, None, 624, None, 400, (8, 0)),
    ("A800 PCIe 80GB", 1935, 312, None, 624, None, 300, (8, 0)),
    ("A30", 933, 165, None, 330, None, 165, (8, 0)),
    ("A40", 696, 149.7, None, 299.3, None, 300, (8, 6)),
    ("A10", 600, 125, None, 250, None, 150, (8, 6)),
    ("A10G", 600, 70, None, 140, None, 300, (8, 6)),
    ("L4", 300, 121, 242.5, 242, None, 72, (8, 9)),
    ("L40S", 864, 362, 733, 733, None, 350, (8, 9)),
    ("L40", 864, 181, 362, 362, None, 300, (8, 9)),
    ("L20", 864, 119.5, 239, 239, None, None, (8, 9)),
    ("RTX 6000 Ada", 960, 364, 728, 728, None, 300, (8, 9)),
    ("RTX A6000", 768, 154.8, None, 309.7, None, 300, (8, 6)),
    ("RTX PRO 6000 Workstation", 1792, 503.8, 1007.6, 1007.6, 2000, 600, (12, 0)),
    ("RTX PRO 6000 Server", 1597, 503.8, 1007.6, 1007.6, 2000, 600, (12, 0)),
    ("RTX PRO 6000 Max-Q", 1792, 438.8, 877.6, 877.6, 1755, 300, (12, 0)),
    ("RTX 5090", 1792, 209.5, 419, 838, 1676, 575, (12, 0)),
    ("RTX 4090", 1008, 165.2, 330.3, 660.6, None, 450, (8, 9)),
    ("RTX 4080 SUPER", 736, 104.4, 208.9, 417.8, None, 320, (8, 9)),
    ("RTX 3090", 936, 71.2, None, 284, None, 350, (8, 6)),
    ("RTX 2080 SUPER", 496, 44.6, None, 178.4, None, 250, (7, 5)),
    ("V100 SXM 32GB", 900, 125, None, None, None, 300, (7, 0)),
    ("V100 PCIe 32GB", 900, 112, None, None, None, 250, (7, 0)),
    ("V100 SXM 16GB", 900, 125, None, None, None, 300, (7, 0)),
    ("V100 PCIe 16GB", 900, 112, None, None, None, 250, (7, 0)),
    ("V100S PCIe 32GB", 1134, 130, None, None, None, 250, (7, 0)),
    ("T4", 320, 65, None, 130, None, 70, (7, 5)),
    ("Instinct MI300X", 5300, 1307, 2614, 2614, None, 750, None),
    ("Instinct MI325X", 6000, 1307, 2614, 2614, None, 1000, None),
    ("Instinct MI355X", 8000, 2500, 5000, 5000, 10100, 1400, None),
]


@check_rows("published", PUBLISHED, ids=lambda each: each[0])
def test_figures(published):
    name, gigabytes, bf16, fp8, int8, fp4, watts, capability = published
    spec = row(name)
    told = [spec.flops.get(key) for key in (BF16, FP8, INT8, FP4)]
    assert told == [None if each is None else pytest.approx(each * 1e12) for each in (bf16, fp8, int8, fp4)]
    assert spec.bandwidth_bytes_per_second == pytest.approx(gigabytes * 1e9)
    assert (spec.tdp_watts, spec.compute_capability) == (watts, capability)


@check_rows("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_every_row_says_where_its_figures_come_from(spec):
    assert spec.source
    assert "2026-06-01" <= spec.date <= "2026-11-25"
    assert spec.confidence in ("read", "secondary", "memory")
    assert spec.bandwidth_tolerance_ratio == 0.02


UNDOUBLED = (
    "Instinct MI2", "Radeon PRO W7", "Radeon RX 7", "Ryzen", "Gaudi 3", "TPU v6e", "TPU v5p", "Trainium",
    "Inferentia2",
)  # fmt: skip


@check_rows("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_rates_stand_as_dense_tensor_rates_do(spec):
    """8 bits run at twice the rate of 16 (GeForce INT8 at four times, for its 16-bit rate is halved), FP4 at twice FP8 and more.
    Only these do not double: CDNA 2, RDNA 3, Gaudi 3, TPUs and the first Trainium at 8 bits, Trainium3 at 4."""
    flops = spec.flops
    for eight in {FP8, INT8} & flops.keys() if BF16 in flops else ():
        least = 1.0 if spec.name.startswith(UNDOUBLED) else 1.94
        assert least <= flops[eight] / flops[BF16] <= (4.4 if spec.name.startswith("Rubin") else 4.03)
    if FP4 in flops:
        assert (1.0 if spec.name == "Trainium3" else 1.98) <= flops[FP4] / flops[FP8] <= 4.02
    if FP32 in flops and BF16 in flops:
        assert flops[FP32] < flops[BF16]
    if spec.compute_capability is not None:
        # what the catalogue has a rate for has a path of its own on the chip; only INT8 lacks kernels (vLLM) from 10.0 on
        assert all(native(each, spec.compute_capability) for each in flops.keys() - {INT8})
        assert INT8 not in flops or spec.compute_capability >= (6, 1)


@check_rows("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_what_is_published_beside_a_figure_is_beside_it(spec):
    for lowest, rates in ((True, spec.flops_lowest), (False, spec.flops_highest)):
        for key, rate in rates.items():
            assert (rate < spec.flops[key]) == lowest
            assert 0.7 < rate / spec.flops[key] < 1.25, "a sparse rate among dense ones"
    band = (spec.bandwidth_lowest_bytes_per_second, spec.bandwidth_highest_bytes_per_second)
    assert (band[0] or 0) < spec.bandwidth_bytes_per_second < (band[1] or 1e18)


# D.4 of the fact file: figures that published tables get wrong
@check_rows(
    ("name", "precision", "wrong"),
    [
        ("H100 SXM 80GB", BF16, 1979), ("H100 SXM 80GB", FP8, 3958),  # sparse
        ("L4", BF16, 242), ("L40S", BF16, 733), ("L40", BF16, 362),  # sparse
        ("B200 180GB", FP4, 18000), ("B200 180GB", FP4, 20000), ("B200 180GB", FP8, 9000),  # sparse
        ("RTX 5090", FP4, 3352), ("RTX PRO 6000 Server", FP4, 4000),  # "AI TOPS" are sparse FP4
        ("A100 SXM 80GB", BF16, 624),  # sparse; the dense INT8 rate
        ("A10G", BF16, 125),  # the A10's
        ("RTX 4090", BF16, 82.6), ("RTX 4090", BF16, 330.3),  # not tensor; FP16 accumulation
        ("RTX 3090", BF16, 142),  # FP16 accumulation
    ],
)  # fmt: skip
def test_published_rates_that_are_wrong(name, precision, wrong):
    assert abs(row(name).flops[precision] / 1e12 / wrong - 1) > 0.3


@check_rows(
    ("name", "wrong"),
    [
        ("A100 SXM 80GB", 1555), ("A100 SXM 80GB", 2000), ("A100 SXM 80GB", 2048), ("A100 PCIe 80GB", 2039),
        ("H100 PCIe 80GB", 3350), ("H200 SXM 141GB", 3360), ("H200 SXM 141GB", 4917),
        ("V100 SXM 32GB", 1134), ("RTX PRO 6000 Server", 1792),
    ],
)  # fmt: skip
def test_published_bandwidths_that_are_wrong(name, wrong):
    told = row(name).bandwidth_bytes_per_second / 1e9
    assert abs(told / wrong - 1) > 0.004
    right = {"A100 SXM 80GB": 2039, "A100 PCIe 80GB": 1935, "H100 PCIe 80GB": 2039, "H200 SXM 141GB": 4800}
    assert told == right.get(name, told)


def test_b200_has_what_can_be_seen_of_its_memory_not_what_is_on_the_package():
    assert row("B200 180GB").memory_bytes == 183359 * MEBIBYTE < 193e9
    assert row("H100 SXM 80GB").memory_bytes == 81559 * MEBIBYTE
    assert row("GB300 288GB").memory_bytes == 284208 * MEBIBYTE


def test_contested_figures_are_left_out_or_all_there():
    assert INT8 not in row("B300 288GB").flops.keys() | row("GB300 288GB").flops.keys()
    b300 = row("B300 288GB")
    assert (b300.flops_lowest[FP4], b300.flops[FP4], b300.flops_highest[FP4]) == (12600e12, 14000e12, 15000e12)


# names in the forms that people, drivers, clouds and node labels write
NAMES = [
    ("h100", "H100 SXM 80GB"), ("H100 SXM", "H100 SXM 80GB"), ("H100-SXM5-80GB", "H100 SXM 80GB"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM 80GB"), ("NVIDIA-H100-80GB-HBM3", "H100 SXM 80GB"), ("H100SXM5", "H100 SXM 80GB"),
    ("nvidia-h100-80gb", "H100 SXM 80GB"), ("nvidia-h100-mega-80gb", "H100 SXM 80GB"), ("DGX H100", "H100 SXM 80GB"),
    ("H100 PCIe", "H100 PCIe 80GB"), ("h100 80 gb pci-e", "H100 PCIe 80GB"), ("H100 80GB HBM2e", "H100 PCIe 80GB"),
    ("H100 NVL", "H100 NVL 94GB"), ("H100 94GB", "H100 NVL 94GB"), ("H100NVL", "H100 NVL 94GB"),
    ("H200", "H200 SXM 141GB"), ("H200 SXM", "H200 SXM 141GB"), ("H200-141GB", "H200 SXM 141GB"),
    ("nvidia-h200-141gb", "H200 SXM 141GB"), ("H200 NVL", "H200 NVL 141GB"), ("H20", "H20 96GB"), ("H800", "H800 SXM 80GB"),
    ("GH200", "GH200 96GB"), ("NVIDIA GH200 120GB", "GH200 96GB"), ("NVIDIA GH200 144G HBM3e", "GH200 144GB"),
    ("B200", "B200 180GB"), ("HGX B200", "B200 180GB"), ("B200 192GB", "B200 180GB"), ("GB200", "GB200 186GB"),
    ("GB200 NVL72", "GB200 186GB"), ("B300", "B300 288GB"), ("NVIDIA B300 SXM6 AC", "B300 288GB"), ("GB300", "GB300 288GB"),
    ("A100", "A100 SXM 80GB"), ("A100 80GB", "A100 SXM 80GB"), ("NVIDIA-A100-SXM4-80GB", "A100 SXM 80GB"),
    ("A100-SXM-80GB", "A100 SXM 80GB"), ("NVIDIA-A100-SXM4-80GB-SHARED", "A100 SXM 80GB"), ("a100-80g", "A100 SXM 80GB"),
    ("A100-SXM4-40GB", "A100 SXM 40GB"), ("A100 40GB", "A100 SXM 40GB"), ("nvidia-tesla-a100", "A100 SXM 40GB"),
    ("A100 PCIe", "A100 PCIe 80GB"), ("A100 80GB PCIe", "A100 PCIe 80GB"), ("A100-PCIE-40GB", "A100 PCIe 40GB"),
    ("A800", "A800 SXM 80GB"), ("A30", "A30"), ("A40", "A40"), ("A10", "A10"), ("NVIDIA A10", "A10"), ("A10 24GB", "A10"),
    ("A10G", "A10G"), ("a10g", "A10G"), ("A10G 24GB", "A10G"),
    ("L4", "L4"), ("nvidia-l4", "L4"), ("L40", "L40"), ("L40 48GB", "L40"), ("L40S", "L40S"), ("NVIDIA L40S", "L40S"), ("L20", "L20"),
    ("RTX 4090", "RTX 4090"), ("4090", "RTX 4090"), ("rtx4090", "RTX 4090"), ("GeForce RTX 4090", "RTX 4090"),
    ("NVIDIA-GeForce-RTX-4090", "RTX 4090"), ("RTX 5090", "RTX 5090"), ("RTX 3090", "RTX 3090"),
    ("RTX 4080 SUPER", "RTX 4080 SUPER"), ("4080super", "RTX 4080 SUPER"), ("RTX 6000 Ada", "RTX 6000 Ada"), ("A6000", "RTX A6000"),
    ("RTX PRO 6000", "RTX PRO 6000 Workstation"), ("rtxpro6000", "RTX PRO 6000 Workstation"),
    ("nvidia-rtx-pro-6000", "RTX PRO 6000 Workstation"), ("RTX PRO 6000 Blackwell", "RTX PRO 6000 Workstation"),
    ("RTX PRO 6000 Server Edition", "RTX PRO 6000 Server"), ("RTX PRO 6000 Max-Q", "RTX PRO 6000 Max-Q"),
    ("Tesla T4", "T4"), ("Tesla-T4-SHARED", "T4"), ("t4", "T4"), ("nvidia-tesla-t4", "T4"),
    ("V100", "V100 SXM 32GB"), ("V100 16GB", "V100 SXM 16GB"), ("V100 PCIe", "V100 PCIe 32GB"), ("V100S", "V100S PCIe 32GB"),
    ("Tesla V100-SXM2-16GB", "V100 SXM 16GB"), ("nvidia-tesla-v100", "V100 SXM 16GB"),
    ("MI300X", "Instinct MI300X"), ("AMD Instinct MI300X", "Instinct MI300X"), ("AMD Instinct MI300X OAM", "Instinct MI300X"),
    ("mi325x", "Instinct MI325X"), ("MI355X", "Instinct MI355X"),
    ("AMD_Instinct_MI300X_OAM", "Instinct MI300X"), ("AMD INSTINCT MI250X (MCM) OAM AC MBA", "Instinct MI250X"),
    ("AMD Instinct MI210", "Instinct MI210"), ("MI300A", "Instinct MI300A"), ("MI308X", "Instinct MI308X"), ("mi350x", "Instinct MI350X"),
    ("AMD Radeon PRO W7900", "Radeon PRO W7900"), ("W7900 Dual Slot", "Radeon PRO W7900"), ("W7800", "Radeon PRO W7800 32GB"),
    ("AMD Radeon RX 7900 XTX", "Radeon RX 7900 XTX"), ("7900xtx", "Radeon RX 7900 XTX"), ("RX 7900 XT", "Radeon RX 7900 XT"),
    ("9070 XT", "Radeon RX 9070 XT"), ("RX 9070", "Radeon RX 9070"), ("AMD Radeon AI PRO R9700", "Radeon AI PRO R9700"),
    ("Ryzen AI Max+ 395", "Ryzen AI Max+ 395"), ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "Ryzen AI Max+ 395"),
    ("Strix Halo", "Ryzen AI Max+ 395"), ("Radeon 8060S Graphics", "Ryzen AI Max+ 395"),
    ("Gaudi 3", "Gaudi 3"), ("GAUDI3", "Gaudi 3"), ("Intel Gaudi 2", "Gaudi 2"), ("HL-225", "Gaudi 2"), ("HL-325L", "Gaudi 3"),
    ("Intel Data Center GPU Max 1550", "Data Center GPU Max 1550"), ("Intel(R) Data Center GPU Max 1550", "Data Center GPU Max 1550"),
    ("Arc A770", "Arc A770 16GB"), ("Intel Arc B580", "Arc B580"), ("Intel Arc Pro B60 Graphics 24GB", "Arc Pro B60"),
    ("B60", "Arc Pro B60"),
    ("TPU v5e", "TPU v5e"), ("TPU v5 lite", "TPU v5e"), ("tpu-v5-lite-podslice", "TPU v5e"), ("tpu-v5p-slice", "TPU v5p"),
    ("tpu-v6e-slice", "TPU v6e"), ("TPU v6 lite", "TPU v6e"), ("Trillium", "TPU v6e"), ("tpu7x", "TPU v7"), ("Ironwood", "TPU v7"),
    ("Trainium2", "Trainium2"), ("AWS Trainium 3", "Trainium3"), ("trn1", "Trainium"), ("inf2", "Inferentia2"),
    ("Inferentia 2", "Inferentia2"),
    ("Apple M4 Max", "Apple M4 Max 40-core"), ("M4 Max 32-core", "Apple M4 Max 32-core"), ("M2 Ultra", "Apple M2 Ultra"),
    ("M1", "Apple M1"),
    ("NVIDIA GB10", "GB10"), ("NVIDIA-GB10", "GB10"), ("DGX Spark", "GB10"), ("Jetson AGX Orin", "Jetson AGX Orin 64GB"),
    ("NVIDIA Jetson AGX Orin Developer Kit", "Jetson AGX Orin 64GB"), ("Jetson Orin NX", "Jetson Orin NX 16GB"),
    ("Jetson AGX Thor", "Jetson AGX Thor"), ("NVIDIA Jetson AGX Thor Developer Kit", "Jetson AGX Thor"),
    ("NVIDIA-RTX-A5000", "RTX A5000"), ("NVIDIA-RTX-A6000", "RTX A6000"), ("RTX 4000 Ada Generation", "RTX 4000 Ada"),
    ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF Ada"), ("RTX PRO 5000", "RTX PRO 5000"), ("RTX 5000 Ada", "RTX 5000 Ada"),
    ("RTX PRO 4500 Blackwell", "RTX PRO 4500"), ("GeForce RTX 3060", "RTX 3060 12GB"), ("RTX 3060 8GB", "RTX 3060 8GB"),
    ("RTX 4060 Ti 16GB", "RTX 4060 Ti"), ("4070 Ti Super", "RTX 4070 Ti SUPER"), ("RTX 4070", "RTX 4070"), ("RTX 5080", "RTX 5080"),
    ("NVIDIA-GeForce-RTX-3090-Ti", "RTX 3090 Ti"), ("3080", "RTX 3080 10GB"), ("Tesla P40", "P40"),
    ("nvidia-tesla-p100", "P100 SXM 16GB"),
    ("Quadro RTX 6000", "Quadro RTX 6000"), ("Quadro RTX 8000", "Quadro RTX 8000"), ("H20-3e", "H20-3e 141GB"),
    ("H20 141GB", "H20-3e 141GB"),
    ("B100", "B100"), ("Vera Rubin", "Rubin 288GB"), ("L2", "L2"), ("A2", "A2"), ("A16", "A16"), ("RTX 4090 D", "RTX 4090 D"),
]  # fmt: skip


@check_rows(("text", "name"), NAMES)
def test_names_as_people_write_them(text, name):
    assert find(text, CATALOGUE).name == name


@check_rows("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_every_rows_own_names_find_it(spec):
    for name in (spec.name, *spec.names, *spec.aliases):
        for form in (name, f"NVIDIA {name}", name.replace(" ", "-"), name.upper(), f"  {name.lower()} "):
            assert find(form, CATALOGUE) is spec


@given(spec=st.sampled_from(CATALOGUE), data=st.data())
def test_the_order_of_words_and_the_separators_do_not_matter(spec, data):
    name = data.draw(st.sampled_from((spec.name, *spec.names)))
    words = data.draw(st.permutations(gpus.split_words(name)))
    assert find(data.draw(st.sampled_from(" -_/")).join(words), CATALOGUE).name in _meant(gpus.collect_words(name))


def _meant(words):
    """Rows that the words allow, and those whose whole name they are."""
    allowed = {spec.name for spec in CATALOGUE if spec.key_words <= words <= spec.key_words | spec.words}
    return allowed | {spec.name for spec in CATALOGUE if words in {gpus.collect_words(each) for each in spec.names}}


@check_rows(
    "text",
    [
        "", " ", "80GB", "GPU", "NVIDIA", "foo", "GB11", "H20-4e", "L20Y", "L3", "H10", "B20", "GB20", "V10", "A1", "A1000", "A100X",
        "A10M", "H100 96GB", "H100 SXM4", "A100 24GB", "RTX 4090 Ti", "B10", "A160", "A2000 Laptop GPU", "RTX 5000", "RTX 4500",
        "RTX 4090 Laptop GPU", "RTX 4080 Laptop GPU", "RTX 3090 D", "RTX 6000", "RTX 8000 Ada", "Quadro 6000", "GTX 1080 Ti",
        "RTX PRO 6000D", "RTX PRO 500", "MI300", "MI300B", "MI250 OAM 32GB", "W7700",
        "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]",
        "Gaudi", "Gaudi 4", "HL-100", "Max 1100", "Arc", "Arc A750", "TPU", "TPU v2", "tpu-v4-podslice", "v6e-8", "Trainium4", "inf1",
        "M5", "M4 Max 64-core", "Max", "Jetson", "Orin (nvgpu)", "Jetson Xavier NX", "DRIVE AGX Orin", "DGX", "Spark", "8x H100",
        "H100 H200", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "x" * 5000, "h100 " * 50,
    ],
)  # fmt: skip
def test_what_fits_no_row_is_refused(text):
    with pytest.raises(FactsError) as refused:
        find(text, CATALOGUE)
    assert refused.value.reason == "peak_unknown"
    assert repr(text[:20])[:-1] in str(refused.value)
    assert len(str(refused.value)) < 400


@check_rows(
    ("text", "near"),
    [
        ("RTX 4090 Ti", "RTX 4090"), ("H20-4e", "H20 96GB"), ("H1OO", "H100 SXM 80GB"), ("RTX 6000", "RTX 6000 Ada"),
        ("mi300", "Instinct MI300X"), ("Jetson", "Jetson AGX Orin"), ("TPU v4", "TPU v6e"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_nearest(text, near):
    with pytest.raises(FactsError, match=near):
        find(text, CATALOGUE)


@given(st.text(max_size=120))
def test_no_text_does_anything_but_find_or_refuse(text):
    with suppress(FactsError):
        assert find(text, CATALOGUE) in CATALOGUE


@check_rows(
    ("name", "memory_mib", "pci", "meant"),
    [
        # captures of nvidia_gpu_exporter, public nvidia-smi pages
        ("NVIDIA H100 80GB HBM3", 81559, 0x2330, "H100 SXM 80GB"),
        ("NVIDIA H100 PCIe", 81559, 0x2331, "H100 PCIe 80GB"),
        ("NVIDIA H100 NVL", 95830, 0x2321, "H100 NVL 94GB"),
        ("NVIDIA H200", 143771, 0x2335, "H200 SXM 141GB"),
        ("NVIDIA H200 NVL", 143771, 0x233B, "H200 NVL 141GB"),
        ("NVIDIA GH200 480GB", 97871, 0x2342, "GH200 96GB"),
        ("NVIDIA B200", 183359, 0x2901, "B200 180GB"),
        ("NVIDIA GB200", 189471, 0x2941, "GB200 186GB"),
        ("NVIDIA B300 SXM6 AC", 275040, 0x3182, "B300 288GB"),
        ("NVIDIA A100-SXM4-80GB", 81920, 0x20B2, "A100 SXM 80GB"),
        ("A100-SXM4-40GB", 40536, 0x20B0, "A100 SXM 40GB"),  # older drivers: no "NVIDIA ", less memory
        ("NVIDIA A100 80GB PCIe", 81920, 0x20B5, "A100 PCIe 80GB"),
        ("NVIDIA L40S", 46068, 0x26B9, "L40S"),
        ("NVIDIA L40", 46068, 0x26B5, "L40"),
        ("NVIDIA A10G", 23028, 0x2237, "A10G"),
        ("NVIDIA A10", 23028, 0x2236, "A10"),
        ("Tesla T4", 15360, 0x1EB8, "T4"),
        ("Tesla V100-SXM2-16GB", 16160, 0x1DB1, "V100 SXM 16GB"),
        ("NVIDIA GeForce RTX 4090", 24564, 0x2684, "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", 49140, 0x2684, "RTX 4090"),  # with twice the memory soldered on
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, 0x2BB1, "RTX PRO 6000 Workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 0x2BB5, "RTX PRO 6000 Server"),
        ("NVIDIA H100 80GB HBM3", None, None, "H100 SXM 80GB"),  # the name is enough
        (
            "NVIDIA Graphics Device",
            81559,
            0x2330,
            "H100 SXM 80GB",
        ),  # a driver older than the product: by PCI id and size
        ("A100-SXM-80GB", 81251, 0x20FE, "A100 SXM 80GB"),  # by words and size
        # another product behind the same id, or nothing that vouches
        ("GRID A100-20C", 20480, 0x20B0, None),  # a vGPU has a part of the memory
        ("NVIDIA Graphics Device", None, 0x2330, None),
        ("NVIDIA L20Y", 81559, 0x23B0, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, 0x2717, None),
        ("NVIDIA H100", 81559, None, None),  # SXM or PCIe
        ("Orin (nvgpu)", None, None, None),  # four modules
        ("NVIDIA Thor", None, 0x2B00, None),  # T5000 or T4000
        ("NVIDIA A16", 15356, 0x25B6, "A16"),
        ("NVIDIA A2", 15356, 0x25B6, "A2"),
        ("NVIDIA H20-3e", 143771, 0x232C, "H20-3e 141GB"),
        ("NVIDIA GeForce RTX 4090 D", 24564, 0x2685, "RTX 4090 D"),
        ("NVIDIA GB10", None, 0x2E12, "GB10"),
        ("NVIDIA GeForce RTX 3080", 10240, 0x2206, "RTX 3080 10GB"),
        ("NVIDIA GeForce RTX 3080", 12288, 0x220A, "RTX 3080 12GB"),
        ("NVIDIA GeForce RTX 3060", 8192, 0x24C7, "RTX 3060 8GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 8188, 0x2803, "RTX 4060 Ti"),
        ("NVIDIA RTX A2000 12GB", 12282, 0x2571, "RTX A2000 12GB"),
        ("NVIDIA RTX A2000", 6138, 0x2531, "RTX A2000 6GB"),
        ("NVIDIA RTX PRO 5000 Blackwell", 48935, 0x2BB3, "RTX PRO 5000"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", 73000, 0x2BB3, "RTX PRO 5000 72GB"),
        ("Quadro RTX 8000", 49152, 0x1E30, "Quadro RTX 8000"),
        ("Tesla P100-SXM2-16GB", 16276, 0x15F9, "P100 SXM 16GB"),
        ("", None, None, None),
    ],
)
def test_devices_as_nvml_names_them(name, memory_mib, pci, meant):
    found = match(device(name, memory_mib, pci), CATALOGUE)
    assert (None if found is None else found.name) == meant


def test_an_amd_id_is_not_an_nvidia_one():
    assert match(device("?", 196608, 0x74A1), CATALOGUE) is None


@pytest.mark.parametrize(
    ("name", "pci"), [("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None), ("NVIDIA H100 80GB HBM3", None), ("?", 0x2330)]
)
def test_an_instance_is_its_gpu_whatever_its_memory(name, pci):
    found = match(device(name, 9856, pci, mig=instance("1g.10gb", 1)), CATALOGUE)
    assert found is row("H100 SXM 80GB")


_FIGURES = {"memory", "bandwidth", "tdp", "nvlink", "pci", *Precision}
_REQUIRED = {"name", "nvml", "key_words", "words", "pci", "bandwidth_gb_per_second", "source", "confidence", "figures"}
_NUMBERS = {
    "memory_mib", "memory_gb", "tdp_watts", "nvlink_gb_per_second", "bandwidth_gb_per_second", "bandwidth_lowest_gb_per_second",
    "bandwidth_highest_gb_per_second", "bandwidth_tolerance_ratio",
}  # fmt: skip
_RATES = {"tflops", "tflops_lowest", "tflops_highest"}
_TEXTS = {"nvml", "aliases", "source"}


@check_rows("written", DOCUMENT["gpu"], ids=lambda written: written["name"])
def test_a_row_is_written_as_it_must_be(written):
    keys = written.keys()
    assert keys >= _REQUIRED
    assert keys <= _REQUIRED | _NUMBERS | _RATES | {"vendor", "aliases", "compute_capability"}
    assert ("memory_mib" in keys) != ("memory_gb" in keys)
    numbers = [written[key] for key in _NUMBERS & keys] + [
        rate for key in _RATES & keys for rate in written[key].values()
    ]
    assert all(type(number) in (int, float) and 0 < number < 1e9 for number in numbers)
    assert all(type(device) is int and 0 < device <= 0xFFFF for device in written["pci"])
    assert all(isinstance(text, str) and text for key in _TEXTS & keys for text in written[key])
    assert written["source"]
    assert {*written["source"], *written["figures"].values()} <= DOCUMENT["sources"].keys()
    assert written["figures"].keys() <= _FIGURES
    assert written["key_words"]
    assert re.fullmatch(r"\d+\.\d", written.get("compute_capability", "9.0"))


@check_rows("source", DOCUMENT["sources"].values(), ids=lambda source: source["title"])
def test_a_source_has_a_title_and_a_date(source):
    assert source["title"]
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", source["date"])


def test_no_two_rows_have_a_name_or_a_device_in_common():
    forms = [form for spec in CATALOGUE for form in gpus.list_forms(spec)]
    devices = [device for spec in CATALOGUE for device in set(spec.pci_device_ids)]
    assert len({*forms, *devices}) == len(forms) + len(devices)


# --- the GPU catalogue held against a second source of each figure ---
# None of these is where the rows come from, so that an error of either shows. The headlines are sparse rates, as vendors print them.
# They, the clocks and the pins are recalled from vendors' pages and were not read again; the planner's and the chips' tables were read.


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
