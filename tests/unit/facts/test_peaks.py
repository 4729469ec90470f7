"""Peaks of devices and of named GPUs: which bandwidth is believed, MIG shares, precisions, groups of unlike GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.work import choose_rate
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.peaks import native, peaks_of_identity, peaks_of_many, peaks_of_spec, share_of_peaks
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import Precision
from tests.support.models.gpucatalogue import CATALOGUE, MEBIBYTE, TABLES, device, instance, row
from tests.support.rows import check_rows

BF16, FP8, INT8, FP4, FP32 = Precision.BF16, Precision.FP8, Precision.INT8, Precision.FP4, Precision.FP32

CLOCKS = TABLES["clocks"]


@check_rows(("name", "clock", "bits", "computed", "sheet", "off", "believed"), CLOCKS)
def test_clocks_against_the_data_sheet(name, clock, bits, computed, sheet, off, believed):
    peaks = peaks_of_identity(device(name, clock_mhz=clock, bus_bits=bits), CATALOGUE)
    assert peaks.by_origin["nvml"] == pytest.approx(computed * 1e9, abs=0.06e9)
    assert peaks.by_origin["catalogue"] == sheet * 1e9
    assert (peaks.by_origin["nvml"] / peaks.by_origin["catalogue"] - 1) * 100 == pytest.approx(off, abs=0.06)
    assert (peaks.origin, peaks.bandwidth_bytes_per_second) == (believed, peaks.by_origin[believed])


def test_a_device_as_a_whole():
    identity = replace(device("NVIDIA H100 80GB HBM3", 81559, 0x2330, 2619, 5120), compute_capability=(9, 0))
    peaks = peaks_of_identity(identity, CATALOGUE)
    assert peaks == GpuPeaks(
        name="H100 SXM 80GB",
        bandwidth_bytes_per_second=pytest.approx(3352.32e9),
        origin="nvml",
        by_origin={"catalogue": 3350e9, "nvml": pytest.approx(3352.32e9)},
        flops={FP32: 67e12, BF16: 989.5e12, FP8: 1979e12, INT8: 1979e12},
        compute_capability=(9, 0),
        memory_bytes=81559 * MEBIBYTE,
    )


def test_without_clocks_the_catalogue_is_believed():
    peaks = peaks_of_identity(device("NVIDIA A100-SXM4-80GB"), CATALOGUE)
    assert peaks.bandwidth_bytes_per_second == 2039e9
    assert peaks.origin == "catalogue"
    assert dict(peaks.by_origin) == {"catalogue": 2039e9}
    assert peaks.memory_bytes == 81920 * MEBIBYTE
    assert peaks.compute_capability == (8, 0)


def test_an_unknown_gpu_has_what_nvml_says():
    identity = replace(device("NVIDIA GeForce RTX 6080", 16303, 0x2C99, 15001, 256), compute_capability=(12, 0))
    peaks = peaks_of_identity(identity, CATALOGUE)
    assert (peaks.name, peaks.origin, dict(peaks.flops)) == ("NVIDIA GeForce RTX 6080", "nvml", {})
    assert peaks.bandwidth_bytes_per_second == pytest.approx(960.064e9)
    assert dict(peaks.by_origin) == {"nvml": peaks.bandwidth_bytes_per_second}
    assert (peaks.memory_bytes, peaks.compute_capability) == (16303 * MEBIBYTE, (12, 0))


def test_a_gpu_of_which_nothing_is_known_has_no_peak():
    """Jetson: NVML gives no memory clock, no bus width, no memory, and a name of several modules."""
    peaks = peaks_of_identity(replace(device("Orin (nvgpu)"), compute_capability=(8, 7)), CATALOGUE)
    assert peaks == GpuPeaks("Orin (nvgpu)", None, "", compute_capability=(8, 7))


def test_gb10_of_which_nvml_tells_nothing_has_the_catalogues_figures():
    peaks = peaks_of_identity(replace(device("NVIDIA GB10", pci=0x2E12), compute_capability=(12, 1)), CATALOGUE)
    assert (peaks.name, peaks.bandwidth_bytes_per_second, peaks.origin) == ("GB10", 273e9, "catalogue")
    assert (peaks.bandwidth_upper_bytes_per_second, peaks.memory_bytes) == (301e9, 128e9)
    assert (peaks.flops[FP4], INT8 in peaks.flops) == (500e12, False)


@check_rows(
    ("profile", "slices", "total", "bandwidth", "compute"),
    [
        ("1g.10gb", 1, 8, 1 / 8, 1 / 7),
        ("1g.20gb", 2, 8, 2 / 8, 1 / 7),
        ("2g.20gb", 2, 8, 2 / 8, 2 / 7),
        ("3g.40gb", 4, 8, 4 / 8, 3 / 7),
        ("4g.40gb", 4, 8, 4 / 8, 4 / 7),
        ("7g.80gb", 8, 8, 1, 1),
        ("1c.3g.40gb", 4, 8, 4 / 8, 1 / 7),  # a compute instance within the GPU instance: it sees all of its memory
        ("1g.10gb+me", 1, 8, 1 / 8, 1 / 7),
        ("", 2, 8, 2 / 8, 2 / 8),  # no profile: by memory slices
        ("9g.10gb", 1, 8, 1 / 8, 1 / 8),  # no such profile
    ],
)
def test_a_mig_instance_gets_its_slices_share(profile, slices, total, bandwidth, compute):
    mig = instance(profile, slices, total)
    peaks = peaks_of_identity(device("NVIDIA H100 80GB HBM3", 9856, 0x2330, 2619, 5120, mig), CATALOGUE)
    assert peaks.bandwidth_bytes_per_second == pytest.approx(3352.32e9 * bandwidth)
    assert peaks.by_origin["catalogue"] == pytest.approx(3350e9 * bandwidth)
    assert peaks.flops[BF16] == pytest.approx(989.5e12 * compute)
    assert peaks.memory_bytes == 9856 * MEBIBYTE
    assert peaks.name == f"H100 SXM 80GB MIG {profile}".rstrip()


def test_a_card_of_four_slices():
    peaks = peaks_of_identity(device("NVIDIA A30", 5952, mig=instance("1g.6gb", 1, 4)), CATALOGUE)
    assert peaks.bandwidth_bytes_per_second == pytest.approx(933e9 / 4)
    assert peaks.flops[BF16] == pytest.approx(165e12 / 4)


@check_rows(("memory_mib", "slices"), [(9856, 1), (19968, 2), (40192, 4), (80896, 8)])
def test_in_a_container_the_slices_come_from_the_catalogues_memory(memory_mib, slices):
    """There NVML refuses the whole GPU's memory, so that the identity has no slices."""
    mig = instance("1g.10gb", None)
    peaks = peaks_of_identity(device("NVIDIA H100 80GB HBM3", memory_mib, mig=mig), CATALOGUE)
    assert peaks.bandwidth_bytes_per_second == pytest.approx(3350e9 * slices / 8)


def test_an_instance_whose_share_is_not_known_has_no_bandwidth():
    for mig, memory in ((instance("1g.10gb", None, None), 9856), (instance("1g.10gb", None), None)):
        peaks = peaks_of_identity(device("NVIDIA H100 80GB HBM3", memory, None, 2619, 5120, mig), CATALOGUE)
        assert (peaks.bandwidth_bytes_per_second, peaks.origin, dict(peaks.by_origin)) == (None, "", {})
    assert peaks.flops[BF16] == pytest.approx(989.5e12 / 7)  # the profile still tells the compute slices
    assert peaks.memory_bytes is None
    peaks = peaks_of_identity(device("NVIDIA H100 80GB HBM3", None, mig=instance("", None, None)), CATALOGUE)
    assert dict(peaks.flops) == {}


def test_an_instance_of_an_unknown_gpu_has_its_share_of_what_nvml_says():
    peaks = peaks_of_identity(
        device("NVIDIA X1 MIG 1g.10gb", 9856, None, 1000, 8000, instance("1g.10gb", 1)), CATALOGUE
    )
    assert peaks.bandwidth_bytes_per_second == pytest.approx(250e9)
    assert dict(peaks.flops) == {}


def test_a_named_gpu():
    spec = row("Instinct MI300X")
    assert peaks_of_spec(spec) == GpuPeaks(
        name="Instinct MI300X",
        bandwidth_bytes_per_second=5300e9,
        origin="catalogue",
        by_origin={"catalogue": 5300e9},
        flops=spec.flops,
        flops_lower={BF16: 1300e12, FP8: 2610e12, INT8: 2600e12},
        compute_capability=None,
        memory_bytes=192 * 1024 * MEBIBYTE,
    )


def test_what_else_is_published_is_the_upper_bound_and_an_instance_has_its_share():
    named = peaks_of_spec(row("B300 288GB"))
    assert (named.flops_lower[FP4], named.flops[FP4], named.flops_upper[FP4]) == (12600e12, 14000e12, 15000e12)
    assert (named.bandwidth_lower_bytes_per_second, named.bandwidth_upper_bytes_per_second) == (7750e9, None)
    mig = peaks_of_identity(device("NVIDIA B200", mig=instance("1g.23gb", 1)), CATALOGUE)
    assert mig.flops_upper == {FP4: pytest.approx(10000e12 / 7)}
    assert mig.bandwidth_lower_bytes_per_second == pytest.approx(7700e9 / 8)


def test_the_upper_bound_of_a_group_is_the_lowest_of_its_upper_bounds():
    group = peaks_of_many([peaks_of_spec(row("B200 180GB")), peaks_of_spec(row("GB200 186GB"))])
    assert (group.flops[FP4], group.flops_upper[FP4]) == (9000e12, 10000e12)
    assert (group.bandwidth_bytes_per_second, group.bandwidth_lower_bytes_per_second) == (8000e9, 7700e9)
    assert group.bandwidth_upper_bytes_per_second is None
    alike = peaks_of_many([peaks_of_spec(row("H100 SXM 80GB")), peaks_of_spec(row("A100 SXM 80GB"))])
    assert (dict(alike.flops_upper), dict(alike.flops_lower)) == ({}, {})


@check_rows("parts", [1, 2, 4, 8])
def test_a_partition_has_its_part_of_everything(parts):
    """AMD's compute partitions: CPX of an MI300X is eight GPUs of 24 GB."""
    whole = peaks_of_spec(row("Instinct MI300X"))
    part = share_of_peaks(whole, parts)
    assert part.bandwidth_bytes_per_second == pytest.approx(5300e9 / parts)
    assert part.memory_bytes == 196608 * MEBIBYTE // parts
    assert part.flops[FP8] == pytest.approx(2614e12 / parts)
    assert part.by_origin == {"catalogue": pytest.approx(5300e9 / parts)}
    assert part.name == ("Instinct MI300X" if parts == 1 else f"Instinct MI300X part 1/{parts}")


# table D.3 of the fact file: compute capability -> precisions with a path of their own
@check_rows(
    ("capability", "precisions"),
    [
        ((5, 2), set()),
        ((6, 0), {BF16}),  # P100's FP16
        ((6, 1), {BF16, INT8}),
        ((7, 0), {BF16, INT8}),  # FP16; the key stands for 16-bit float
        ((7, 5), {BF16, INT8}),
        ((8, 0), {BF16, INT8}),
        ((8, 6), {BF16, INT8}),
        ((8, 9), {BF16, INT8, FP8}),
        ((9, 0), {BF16, INT8, FP8}),
        ((10, 0), {BF16, FP8, FP4}),
        ((10, 3), {BF16, FP8, FP4}),
        ((12, 0), {BF16, FP8, FP4}),
        ((12, 1), {BF16, FP8, FP4}),
        (None, {BF16, INT8, FP8, FP4}),
    ],
)
def test_native_paths(capability, precisions):
    assert {each for each in Precision if native(each, capability)} == precisions | {FP32}


@check_rows(
    ("name", "wanted", "runs"),
    [
        ("H100 SXM 80GB", FP8, FP8),
        ("H100 SXM 80GB", INT8, INT8),
        ("H100 SXM 80GB", FP4, BF16),  # Marlin, weights only
        ("A100 SXM 80GB", FP8, BF16),
        ("A100 SXM 80GB", INT8, INT8),
        ("L40S", FP8, FP8),
        ("B200 180GB", FP4, FP4),
        ("B200 180GB", INT8, BF16),  # the hardware has it, vLLM has no kernel
        ("B300 288GB", INT8, BF16),
        ("RTX 5090", FP4, FP4),
        ("V100 SXM 32GB", INT8, BF16),
        ("T4", INT8, INT8),
        ("T4", FP8, BF16),
        ("Instinct MI300X", FP8, FP8),
        ("Instinct MI300X", FP4, BF16),
        ("Instinct MI355X", FP4, FP4),
        ("Instinct MI308X", FP8, BF16),  # no rate is known
        ("H100 SXM 80GB", BF16, BF16),
        ("A10G", FP32, FP32),  # without a rate: no ceiling rather than BF16's
    ],
)
def test_a_format_without_a_native_path_runs_at_the_16_bit_rate(name, wanted, runs):
    assert choose_rate(peaks_of_spec(row(name)), wanted) == runs


def test_a_rate_that_no_kernel_reaches_is_no_peak():
    assert INT8 in row("B200 180GB").flops
    named, seen = peaks_of_spec(row("B200 180GB")), peaks_of_identity(device("NVIDIA B200"), CATALOGUE)
    assert set(named.flops) == set(seen.flops) == {FP32, BF16, FP8, FP4}


def test_the_devices_own_compute_capability_counts():
    told = replace(device("NVIDIA H100 80GB HBM3"), compute_capability=(8, 0))
    assert FP8 not in peaks_of_identity(told, CATALOGUE).flops


def test_like_gpus_are_one():
    peaks = peaks_of_spec(row("A100 SXM 80GB"))
    assert peaks_of_many([peaks] * 8) is peaks


def test_unlike_gpus_run_at_the_lowest_of_each():
    group = peaks_of_many([peaks_of_spec(row(name)) for name in ("H100 SXM 80GB", "A100 SXM 40GB", "H100 SXM 80GB")])
    assert group == GpuPeaks(
        name="A100 SXM 40GB + H100 SXM 80GB (lowest of each)",
        bandwidth_bytes_per_second=1555e9,
        origin="catalogue",
        by_origin={"catalogue": 1555e9},
        flops={FP32: 19.5e12, BF16: 312e12, INT8: 624e12},
        compute_capability=(8, 0),
        memory_bytes=40960 * MEBIBYTE,
    )


def test_what_one_gpu_of_a_group_does_not_tell_the_group_does_not():
    known = peaks_of_identity(device("NVIDIA B200", 183359, None, 3996, 7680), CATALOGUE)
    unknown = GpuPeaks("NVIDIA GB10", None, "")
    group = peaks_of_many([known, unknown])
    assert (group.bandwidth_bytes_per_second, group.origin) == (None, "")
    assert dict(group.by_origin) == {}
    assert dict(group.flops) == {}
    assert group.memory_bytes is None
    assert group.compute_capability is None


def test_the_origin_of_a_group_is_that_of_its_lowest():
    first = peaks_of_identity(device("NVIDIA H200", 143771, None, 3201, 6144), CATALOGUE)
    second = peaks_of_identity(device("NVIDIA H200", 143771, None, 3201, 6016), CATALOGUE)
    group = peaks_of_many([second, first])
    assert (group.name, group.bandwidth_bytes_per_second, group.origin) == ("H200 SXM 141GB", 4800e9, "catalogue")
    assert dict(group.by_origin) == {"catalogue": 4800e9, "nvml": pytest.approx(4814.304e9)}


def test_no_gpu_is_no_group():
    with pytest.raises(FactsError) as refused:
        peaks_of_many([])
    assert refused.value.reason == "gpus_unknown"


@given(st.lists(st.sampled_from([peaks_of_spec(spec) for spec in CATALOGUE]), min_size=1, max_size=9))
def test_a_group_never_does_more_than_any_of_it(gpus):
    group = peaks_of_many(gpus)
    for each in gpus:
        assert group.bandwidth_bytes_per_second <= each.bandwidth_bytes_per_second
        assert all(rate <= each.flops[key] for key, rate in group.flops.items())
        assert group.memory_bytes <= each.memory_bytes
    assert peaks_of_many(list(reversed(gpus))) == group


@given(
    spec=st.sampled_from([spec for spec in CATALOGUE if spec.names]),
    clock=st.none() | st.floats(100, 20000),
    slices=st.none() | st.integers(1, 8),
)
def test_a_device_never_has_more_than_its_origin_says(spec, clock, slices):
    mig = None if slices is None else instance("1g.10gb", slices)
    identity = device(f"NVIDIA {spec.names[0]}", 9856, None, clock, None if clock is None else 512, mig)
    peaks = peaks_of_identity(identity, CATALOGUE)
    assert peaks.bandwidth_bytes_per_second == peaks.by_origin[peaks.origin] > 0
    assert peaks.bandwidth_bytes_per_second <= spec.bandwidth_bytes_per_second * 1.021 * (slices or 8) / 8
    assert all(rate <= spec.flops[key] for key, rate in peaks.flops.items())
