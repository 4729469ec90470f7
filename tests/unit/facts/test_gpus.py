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
from tests.support.models.gpucatalogue import CATALOGUE, DOCUMENT, MEBIBYTE, TABLES, device, instance, row
from tests.support.paths import ROOT
from tests.support.rows import check_rows

BF16, FP8, INT8, FP4, FP32 = Precision.BF16, Precision.FP8, Precision.INT8, Precision.FP4, Precision.FP32

PUBLISHED = TABLES["published"]


@check_rows("published", PUBLISHED, ids=lambda each: each[0])
def test_figures(published):
    name, gigabytes, bf16, fp8, int8, fp4, watts, capability = published
    spec = row(name)
    told = [spec.flops.get(key) for key in (BF16, FP8, INT8, FP4)]
    assert told == [pytest.approx(each * 1e12) if each else None for each in (bf16, fp8, int8, fp4)]
    assert spec.bandwidth_bytes_per_second == pytest.approx(gigabytes * 1e9)
    assert (spec.tdp_watts, spec.compute_capability) == (watts or None, tuple(capability) or None)


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


NAMES = TABLES["names"]


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


@check_rows(("name", "memory_mib", "pci", "meant"), TABLES["devices"])
def test_devices_as_nvml_names_them(name, memory_mib, pci, meant):
    found = match(device(name, memory_mib or None, pci or None), CATALOGUE)
    assert ("" if found is None else found.name) == meant


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


HEADLINES = TABLES["headlines"]


@check_rows(("name", "precision", "sparse"), HEADLINES)
def test_a_dense_rate_is_half_of_the_sparse_headline(name, precision, sparse):
    assert row(name).flops[precision] / 1e12 == pytest.approx(sparse / 2, rel=0.012)


BY_CLOCK = TABLES["by_clock"]


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


BY_PINS = TABLES["by_pins"]


@check_rows(("name", "gigabits", "bits"), BY_PINS)
def test_a_bandwidth_is_the_pins_rate_times_the_bus(name, gigabits, bits):
    assert row(name).bandwidth_bytes_per_second == pytest.approx(gigabits * 1e9 * bits / 8, rel=0.026)


BY_CHIP = TABLES["by_chip"]


@check_rows(("name", "bandwidth", "precision", "rate"), BY_CHIP)
def test_a_chip_is_what_another_table_says(name, bandwidth, precision, rate):
    spec = row(name)
    assert spec.bandwidth_bytes_per_second == pytest.approx(bandwidth, rel=0.03)
    assert spec.flops[precision] == pytest.approx(rate, rel=0.006)


PLANNER = TABLES["planner"]


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
