"""`gpu_models:`: cards that the user describes, every mistake at its place, and who wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.discovery.sections import Discovery
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_spec
from llm_serving_exporter.gpus.attribution import GpuFacts
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.prices import look_at_prices
from llm_serving_exporter.targets.host import TargetHost
from tests.support.builders.configuration import load_text, problems_of
from tests.support.models.gpucatalogue import CATALOGUE, device, instance
from tests.support.rows import check_rows

BF16, FP8, INT8, FP4 = Precision.BF16, Precision.FP8, Precision.INT8, Precision.FP4
# the whole of it
ACME = (
    "gpu_models: [{name: Acme X1, memory: 96GiB, bandwidth: 1.8TB/s, tflops: {bf16: 400, fp8: 800}, bandwidth_upper: 2000GB/s, "
    "tflops_upper: {fp8: 900.5}, nvml_names: [Acme X1 PCIe]}]\n"
)
ONE = "targets: [{url: 'http://a:8000', gpu_model: %s, gpu_count: 8}]\n"


def test_everything_that_can_be_said_of_a_card(tmp_path: Path) -> None:
    config = load_text(tmp_path, ACME + ONE % "Acme X1")
    (spec,) = config.gpu_models
    assert (spec.name, spec.names, spec.memory_bytes) == ("Acme X1", ("Acme X1", "Acme X1 PCIe"), 96 * 2**30)
    assert (spec.bandwidth_bytes_per_second, spec.bandwidth_highest_bytes_per_second) == (1.8e12, 2e12)
    assert (spec.flops, spec.flops_highest) == ({BF16: 400e12, FP8: 800e12}, {FP8: 900.5e12})
    assert peaks_of_spec(spec) == GpuPeaks(
        "Acme X1",
        1.8e12,
        "config",
        {"config": 1.8e12},
        {BF16: 400e12, FP8: 800e12},
        flops_upper={FP8: 900.5e12},
        bandwidth_upper_bytes_per_second=2e12,
        memory_bytes=96 * 2**30,
    )
    assert config.config_hash != load_text(tmp_path, ACME.replace("1.8", "1.9") + ONE % "Acme X1").config_hash


@check_rows(
    ("written", "bytes_per_second"),
    [("3.35TB/s", 3.35e12), ("3350GB/s", 3.35e12), ("3350 gb/s", 3.35e12), ("512GiB/s", 512 * 2**30), ("68GB/s", 68e9)],
)
def test_bandwidths(tmp_path: Path, written: str, bytes_per_second: float) -> None:
    text = f"gpu_models: [{{name: A1, memory: 16GB, bandwidth: {written}}}]\n"
    (spec,) = load_text(tmp_path, text + ONE % "a1").gpu_models
    assert spec.bandwidth_bytes_per_second == pytest.approx(bytes_per_second)
    assert spec.flops == {}


@check_rows(
    ("described", "told"),
    [
        ("bandwidth: 3.35", 'bandwidth: "3.35" has no unit. Write 3.35TB/s.'),
        ("bandwidth: 3350", 'bandwidth: "3350" has no unit. Write 3350GB/s.'),
        ("bandwidth: 3.35GB/s", 'bandwidth: "3.35GB/s" is less than any GPU has. Did you mean 3.35TB/s?'),
        ("bandwidth: 3350TB/s", 'bandwidth: "3350TB/s" is more than any GPU has. Did you mean 3350GB/s?'),
        ("bandwidth: fast", 'bandwidth: "fast" is not a bandwidth. Write one as in 3.35TB/s.'),
        ("bandwidth: 900Gbps", 'bandwidth: "900Gbps" is not a bandwidth. Write one as in 3.35TB/s.'),
        ("bandwidth: 1TB/s, memory: 80", 'memory: "80" has no unit. Write 80GB.'),
        ("bandwidth: 1TB/s, memory: 80MB", 'memory: "80MB" is less than any GPU has. Did you mean 80GB?'),
        (
            "bandwidth: 1TB/s, tflops: {bf16: 9.89e14}",
            'tflops.bf16: "9.89e14" is more than any GPU does. Write TFLOP/s',
        ),
        ("bandwidth: 1TB/s, tflops: {bf16: 0}", 'tflops.bf16: "0" is not a rate in TFLOP/s. Write one as in 989'),
        ("bandwidth: 1TB/s, tflops: {fp16: 989}", "tflops.fp16: this key is not allowed here. Write bf16"),
        ("bandwidth: 1TB/s, tflops: {nvfp4: 989}", "tflops.nvfp4: this key is not allowed here. Write fp4."),
        ("bandwidth: 1TB/s, tflops: 989", "tflops: must be a mapping"),
        ("bandwidth: 1TB/s, bandwidth_upper: 900GB/s", "bandwidth_upper: it is less than bandwidth."),
        ("bandwidth: 1TB/s, tflops: {bf16: 2}, tflops_upper: {bf16: 1}", "tflops_upper.bf16: it is less than the same"),
        ("bandwidth: 1TB/s, tflops_upper: {bf16: 1}", "tflops_upper.bf16: tflops has no bf16."),
        ("bandwith: 1TB/s", "bandwith: this key is not known. Did you mean bandwidth?"),
        ("memory_bandwidth: 1TB/s", "memory_bandwidth: this key is not allowed here. Write bandwidth: 1.8TB/s."),
        ("memory: 80GB", "bandwidth is missing. Write {name: My Card"),
    ],
)
def test_mistakes_are_said_with_their_place_and_what_to_do(tmp_path: Path, described: str, told: str) -> None:
    memory = "" if "memory:" in described else ", memory: 96GB"
    problems = problems_of(tmp_path, f"gpu_models: [{{name: X{memory}, {described}}}]\ntargets: ['http://a:8000']\n")
    assert any(told in problem for problem in problems), problems
    assert all(problem.startswith("gpu_models[0]") for problem in problems)


def test_a_name_that_says_nothing_and_a_card_that_is_there_twice(tmp_path: Path) -> None:
    card = "memory: 96GB, bandwidth: 1TB/s"
    text = f"gpu_models: [{{name: NVIDIA GPU, {card}}}, {{name: A1, {card}}}, {{name: nvidia-a1, {card}}}]\n"
    first, second = problems_of(tmp_path, text + "targets: ['http://a:8000']\n")
    assert first == 'gpu_models[0].name: "NVIDIA GPU" names no card. Write the name that the card is sold by.'
    assert second == 'gpu_models[2]: the GPU "nvidia-a1" is described twice. Keep one of them.'
    (odd,) = problems_of(tmp_path, "gpus: [0]\ntargets: ['http://a:8000']\n")
    assert odd.startswith("gpus: this key is not allowed here. Write gpu_models: to describe GPUs")


def test_a_target_may_name_it_and_no_other(tmp_path: Path) -> None:
    assert load_text(tmp_path, ACME + ONE % "acme-x1-pcie").targets[0].gpu_model == "acme-x1-pcie"
    (problem,) = problems_of(tmp_path, ACME + ONE % "Acme X2")
    assert problem.startswith("targets[0].gpu_model: GPU 'Acme X2' is not in the catalogue")
    (tmp_path / "sd.yml").write_text("- {targets: ['a:1'], labels: {gpu_model: 'acme x1'}}\n")
    config = load_text(tmp_path, ACME + "file_sd: [{files: [sd.yml]}]\n")
    (target,) = Discovery(config.discovery).targets((), ()).targets
    assert GpuFacts(config.gpu_models).name_target_gpus(target, (), {}) == "Acme X1"


def test_prices_may_name_it(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yml"
    prices.write_text("prices: [{gpu_model: ACME X1, usd_per_gpu_hour: 1}, {gpu_model: H100, usd_per_gpu_hour: 2}]\n")
    config = load_text(tmp_path, ACME + "cost: {price_file: prices.yml}\n" + ONE % "Acme X1")
    assert config.price_problems == ()
    assert [one.value for one in config.prices.statements] == ["Acme X1", "H100 SXM 80GB"]
    (problem,) = look_at_prices(str(prices)).problems
    assert "GPU 'ACME X1' is not in the catalogue" in str(problem)


def h200(tmp_path: Path) -> GpuFacts:
    """A user who holds other figures of a card that the catalogue has."""
    card = "{name: H200, memory: 141GB, bandwidth: 4.6TB/s, tflops: {bf16: 900, int8: 1700, fp4: 2000}}"
    return GpuFacts(load_text(tmp_path, f"gpu_models: [{card}]\n" + ONE % "H200").gpu_models)


def test_ones_own_figures_win_over_the_catalogue_and_over_nvmls_clocks(tmp_path: Path) -> None:
    facts = h200(tmp_path)
    own = facts._list_rows()  # what every look-up of this class goes by
    seen = peaks_of_identity(replace(device("NVIDIA H200", 143771, 0x2335, 3201, 6016), compute_capability=(9, 0)), own)
    assert (seen.bandwidth_bytes_per_second, seen.origin, seen.name) == (4.6e12, "config", "H200")
    assert seen.by_origin == {"config": 4.6e12, "nvml": pytest.approx(4814.304e9)}
    # all that is stated, whatever the card's kernels are taken to be
    assert seen.flops == {BF16: 900e12, INT8: 1700e12, FP4: 2000e12}
    # the driver's memory, and the driver's word on what the card can do
    assert (seen.memory_bytes, seen.compute_capability) == (143771 * 2**20, (9, 0))
    named = facts.find_target_peaks(Target("a", "http://a:1", gpu_model="h200"), (), {})
    assert isinstance(named, GpuPeaks)
    assert (named.bandwidth_bytes_per_second, named.memory_bytes) == (4.6e12, 141e9)
    # a card of another name is the catalogue's
    assert peaks_of_identity(device("NVIDIA H200 NVL", 143771, 0x233B), own).origin == "catalogue"


def test_an_instance_of_it_has_its_share(tmp_path: Path) -> None:
    mig = peaks_of_identity(device("NVIDIA H200", 16384, mig=instance("1g.18gb", 1)), h200(tmp_path)._list_rows())
    assert mig.bandwidth_bytes_per_second == pytest.approx(4.6e12 / 8)
    assert mig.flops[BF16] == pytest.approx(900e12 / 7)


def test_a_new_configuration_is_a_new_description(tmp_path: Path) -> None:
    facts = h200(tmp_path)
    target = Target("a", "http://a:1", gpu_model="H200")
    before = facts.find_target_peaks(target, (), {})
    facts.use_own(())
    after = facts.find_target_peaks(target, (), {})
    assert isinstance(before, GpuPeaks)
    assert isinstance(after, GpuPeaks)
    assert (before.bandwidth_bytes_per_second, after.bandwidth_bytes_per_second) == (4.6e12, 4.8e12)
    assert after.name in {spec.name for spec in CATALOGUE}


def test_the_host_of_targets_goes_by_the_configuration_in_force(tmp_path: Path) -> None:
    """The host hands a target's peaks to every figure; a reload without the description takes them away."""
    host = TargetHost(load_text(tmp_path, ACME + ONE % "Acme X1"))
    target = Target("a", "http://a:8000", gpu_model="Acme X1", gpu_count=8)
    found = host.gpus.facts.find_target_peaks(target, (), {})
    assert isinstance(found, GpuPeaks)
    assert (found.bandwidth_bytes_per_second, found.origin) == (1.8e12, "config")
    host.config = load_text(tmp_path, "targets: ['http://a:8000']\n")
    assert host.gpus.facts.find_target_peaks(target, (), {}) is Absence.PEAK_UNKNOWN
    host.close()
