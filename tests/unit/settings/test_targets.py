"""Who a target is and what is stated of it: place, labels, name, servers that a list may name, GPUs that flags or files describe."""

import json
from pathlib import Path

import pytest

from llm_serving_exporter.catalogue.own_labels import refuse_label_name
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, LABELS
from llm_serving_exporter.cli import main
from llm_serving_exporter.cost.terms import find_price
from llm_serving_exporter.discovery.sections import Discovery
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_spec
from llm_serving_exporter.gpus.attribution import GpuFacts
from llm_serving_exporter.model.cost import Price, PriceBook
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import ExpectedReplicas, Identity, Target
from llm_serving_exporter.settings.discovery import HOST_PATTERN, AllowedHosts
from llm_serving_exporter.settings.identity import read_host
from llm_serving_exporter.settings.options import Host
from llm_serving_exporter.settings.prices import look_at_prices
from llm_serving_exporter.settings.problems import InvalidValueError
from llm_serving_exporter.targets.host import TargetHost
from tests.support.builders.configuration import load_flags, load_text, problems_of, problems_of_flags
from tests.support.builders.recordings import page
from tests.support.models.gpucatalogue import CATALOGUE, device, instance
from tests.support.rows import check_rows
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.replica import Replica

POD = {"POD_NAMESPACE": "prod", "POD_NAME": "chat-0", "POD_UID": "uid-1", "CONTAINER_NAME": "vllm", "NODE_NAME": "n1"}


def test_a_target_has_its_place_and_labels_of_its_own(tmp_path: Path) -> None:
    text = """
target_defaults: {namespace: prod, region: eu, labels: {team: ops, tier: gold}}
targets:
- {url: "http://10.0.0.7:8000", pod: chat-0, container: vllm, node: n1, workload: chat, workload_kind: Deployment, provider_id: i-0,
   instance_type: p5, labels: {team: search}}
- {url: "http://10.0.0.8:8000", namespace: other}
"""
    first, second = load_text(tmp_path, text).targets
    labels = (("team", "search"), ("tier", "gold"))
    assert first.identity == Identity("prod", "chat-0", "", "vllm", "chat", "Deployment", "i-0", "eu", "p5", labels)
    assert (first.name, first.nodes) == ("prod/chat-0:8000", ("n1",))
    assert second.identity == Identity("other", region="eu", labels=(("team", "ops"), ("tier", "gold")))
    assert second.name == "10.0.0.8:8000"


def test_a_sidecars_loopback_target_is_its_pod(tmp_path: Path) -> None:
    text = "targets: ['localhost:8000', 'http://10.0.0.9:1', {url: 'http://127.0.0.1:8001', name: mine}]\n"
    local, other, named = load_text(tmp_path, text, environ=POD).targets
    pod = Identity("prod", "chat-0", "uid-1", "vllm")
    assert (local.name, local.identity, local.nodes) == ("prod/chat-0:8000", pod, ("n1",))
    assert (other.name, other.identity, other.nodes) == ("10.0.0.9:1", Identity(), ())
    assert (named.name, named.identity) == ("mine", pod)


def test_every_exporter_gives_a_pod_the_same_name(tmp_path: Path) -> None:
    sidecar = load_text(tmp_path, "targets: ['localhost:8000']\n", environ=POD).targets[0]
    elsewhere = load_text(tmp_path, "targets: [{url: 'http://10.0.0.7:8000', namespace: prod, pod: chat-0}]\n").targets[
        0
    ]
    assert sidecar.name == elsewhere.name == "prod/chat-0:8000"


def test_a_target_that_is_said_to_be_another_pod_is_not_the_exporters(tmp_path: Path) -> None:
    text = "targets: [{url: 'http://localhost:8000', namespace: prod, pod: other}]\n"
    (target,) = load_text(tmp_path, text, environ=POD).targets
    assert (target.name, target.identity) == ("prod/other:8000", Identity("prod", "other"))


@pytest.mark.parametrize("left_out", ["POD_NAMESPACE", "POD_NAME"])
def test_half_a_pod_is_none(left_out: str) -> None:
    environ = {name: value for name, value in POD.items() if name != left_out}
    assert read_host(environ, host_name="h") == Host("h", "n1")


def test_a_pods_variables_are_checked(tmp_path: Path) -> None:
    expected = "environment variable POD_NAME: the pod contains a control character. Remove it; it may be a line break."
    assert problems_of(tmp_path, "targets: ['a:1']\n", environ={**POD, "POD_NAME": "a\nb"}) == [expected]


REFUSED = {*LABELS, *IDENTITY_LABELS, "le", "quantile", "job", "instance", "__a", "exported_team", "1a", "a-b", ""}


@check_rows("name", sorted(REFUSED))
def test_a_label_that_would_be_taken_for_another_is_refused(tmp_path: Path, name: str) -> None:
    refusal = refuse_label_name(name)
    (problem,) = problems_of(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{'{name}': x}}}}]\n")
    assert " ".join(refusal[:1]) in problem


@check_rows("name", ["team", "cluster", "Team_2", "_x"])
def test_any_other_label_is_a_targets_own(tmp_path: Path, name: str) -> None:
    (target,) = load_text(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{{name}: x}}}}]\n").targets
    assert target.identity.labels == ((name, "x"),)


def test_labels_are_bounded(tmp_path: Path) -> None:
    many = ", ".join(f"l{number}: x" for number in range(33))
    assert problems_of(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{{many}}}}}]\n") == [
        "targets[0].labels: 33 labels are more than 32. Keep those that somebody groups by."
    ]
    assert problems_of(tmp_path, f"targets: [{{url: 'http://a:1', labels: {{team: {'x' * 201}}}}}]\n") == [
        "targets[0].labels.team: the label value has 201 characters. At most 200 are allowed."
    ]


def test_target_labels_name_identity_labels_and_own_ones(tmp_path: Path) -> None:
    text = "target_labels: [namespace, node, workload, team]\ntargets: ['a:1']\n"
    assert load_text(tmp_path, text).target_labels == ("namespace", "node", "workload", "team")


@check_rows(
    ("names", "fault"),
    [
        ("[model_name]", 'target_labels[0]: "model_name" is on series of the exporter anyway. Remove it.'),
        ("[phase]", 'target_labels[0]: "phase" is on series of the exporter anyway. Remove it.'),
        ("[job]", 'target_labels[0]: "job": Prometheus gives this label a meaning of its own. Choose another name.'),
        ("[team, team]", "target_labels: a label is named twice. Name each label once."),
        (
            "[a, b, c, d, e, f, g, h, i]",
            "target_labels: 9 labels are more than 8. Each of them stands on every series: keep those that rules and dashboards group by.",
        ),
    ],
)
def test_target_labels_are_checked(tmp_path: Path, names: str, fault: str) -> None:
    assert problems_of(tmp_path, f"target_labels: {names}\ntargets: ['a:1']\n") == [fault]


def test_replicas_of_equal_models_are_told_apart_by_their_identity(tmp_path: Path) -> None:
    text = """
targets: ['a:1']
expected_replicas:
- {model_name: m, replicas: 1}
- {model_name: m, replicas: 2, namespace: prod, labels: {team: a}}
- {model_name: m, replicas: 3, namespace: prod, workload: chat, workload_kind: Deployment, region: eu}
"""
    assert load_text(tmp_path, text).expected_replicas == (
        ExpectedReplicas("m", "unified", 1),
        ExpectedReplicas("m", "unified", 2, Identity("prod", labels=(("team", "a"),))),
        ExpectedReplicas("m", "unified", 3, Identity("prod", workload="chat", workload_kind="Deployment", region="eu")),
    )


def test_replicas_are_not_told_apart_by_what_comes_and_goes(tmp_path: Path) -> None:
    (problem,) = problems_of(
        tmp_path, "targets: ['a:1']\nexpected_replicas: [{model_name: m, replicas: 1, pod: chat-0}]\n"
    )
    assert problem.endswith(
        "expected_replicas[0].pod: this key is not allowed here. Replicas come and go: say which are meant by namespace, workload, "
        "workload_kind, region or labels."
    )


# --- `hosts`: which servers a list from elsewhere may name ---


def allows(*patterns: str, host: str) -> bool:
    return AllowedHosts(HOST_PATTERN.parse(pattern) for pattern in patterns).allow(host)


@check_rows(
    ("pattern", "host", "expected"),
    [
        ("gpu-1.example.com", "gpu-1.example.com", True),
        ("GPU-1.example.com.", "gpu-1.EXAMPLE.com", True),
        ("gpu-1.example.com", "gpu-1.example.com.", True),
        ("gpu-1.example.com", "x.gpu-1.example.com", False),
        ("gpu-1.example.com", "gpu-1.example.com.evil.org", False),
        ("*.example.com", "gpu-1.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("*.example.com", "10.0.0.7", False),
        ("*.0.7", "10.0.0.7", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "ten.example.com", False),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("fd00::/8", "fd00::7", True),
        ("fd00::/8", "fe80::7", False),
        ("[fd00::7]", "fd00::7", True),
        ("::ffff:10.0.0.0/104", "10.0.0.1", False),
        ("0.0.0.0/0", "169.254.169.254", True),
        ("0.0.0.0/0", "::1", False),
        ("localhost", "localhost", True),
        ("localhost", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.1", True),
    ],
)
def test_names_and_networks(pattern: str, host: str, expected: bool) -> None:
    assert allows(pattern, host=host) is expected


@check_rows("host", ["a.example.com", "10.0.0.7", "8.8.8.8", "fd00::7", "2001:db8::1"])
def test_a_star_allows_any_server(host: str) -> None:
    assert allows("*", host=host)


@check_rows(
    "host",
    [
        "localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "::1", "::ffff:127.0.0.1",
        "0.0.0.0", "0", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "255.255.255.255",
    ],
)  # fmt: skip
def test_a_star_does_not_allow_this_host_nor_its_link(host: str) -> None:
    assert not allows("*", host=host)
    assert not allows("*", "10.0.0.0/8", "*.example.com", host=host)


def test_what_is_special_is_allowed_where_it_is_named() -> None:
    assert allows("*", "127.0.0.0/8", host="127.0.0.1")
    assert allows("169.254.0.0/16", host="169.254.1.1")


@check_rows(
    ("pattern", "expected"),
    [
        ("10.0.0.7/8", '"10.0.0.7/8" is neither an address nor a network. Write 10.0.0.0/8.'),
        ("10.0.0.0/33", "is neither an address nor a network. Write a name"),
        ("fd00::7/8", "is neither an address nor a network. Write fd00::/8."),
        ("::ffff:10.0.0.7/104", "is neither an address nor a network. Write ::ffff:10.0.0.0/104."),
        ("http://gpu-1:8000", "is neither an address nor a network"),
        ("gpu-1:8000", "is not a host. Write the host alone, without scheme and port."),
        ("gpu-*.example.com", "is not a host"),
        ("*.*.example.com", "is not a host"),
        ("**", "is not a host"),
        ("*.", "is not a host"),
        ("", "is not a host"),
        ("a b", "is not a host"),
        ("gpü", "is not a host"),
        ("127.1", "is neither an address nor a network"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(pattern: str, expected: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        HOST_PATTERN.parse(pattern)
    assert expected in str(caught.value)


# --- what flags say of the GPUs of the servers that --target names ---


TWO = ("--target", "http://gpu-1:8000", "--target", "http://gpu-2:8000")


def test_each_server_of_target_has_such_gpus_at_that_price() -> None:
    config = load_flags(*TWO, "--gpu-model", "H100 SXM", "--gpu-count", "4", "--gpu-price", "2.99")
    assert [(one.gpu_model, one.gpu_count) for one in config.targets] == [("H100 SXM", 4)] * 2
    assert isinstance(config.prices, PriceBook)
    for one in config.targets:
        found = find_price(config.prices, one.name, (), "H100 SXM 80GB", 0.0)
        assert isinstance(found, Price)
        assert (found.usd_per_gpu_hour, found.rate.name) == (2.99, "on_demand")


def test_variables_say_the_same() -> None:
    environ = {
        "LLM_SERVING_EXPORTER_TARGET": "http://gpu-1:8000",
        "LLM_SERVING_EXPORTER_GPU_COUNT": "2",
        "LLM_SERVING_EXPORTER_GPU_PRICE": "1.5",
    }
    config = load_flags(environ=environ)
    assert config.targets[0].gpu_count == 2
    assert config.prices.statements[0].usd_per_gpu_hour == 1.5


def test_they_win_over_the_defaults_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("target_defaults: {gpu_count: 8, gpu_model: A100 SXM}\n")
    config = load_flags("--config.file", str(file), "--target", "http://gpu-1:8000", "--gpu-count", "2")
    assert (config.targets[0].gpu_count, config.targets[0].gpu_model) == (2, "A100 SXM")


@pytest.mark.parametrize("flag", [("--gpu-model", "H100 SXM"), ("--gpu-count", "4"), ("--gpu-price", "2.99")])
def test_without_target_there_is_nothing_they_are_about(flag: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("targets: [{url: http://gpu-1:8000}]\n")
    (problem,) = problems_of_flags("--config.file", str(file), *flag)
    assert problem.startswith(f"flag {flag[0]}: it is about the servers of --target, and there are none. Give --target")


def test_a_price_file_beside_a_price_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.yml"
    file.write_text(
        "rates: {own: {kind: owned}}\nprices: [{gpu_model: H100 SXM 80GB, usd_per_gpu_hour: 2, rate: own}]\n"
    )
    (problem,) = problems_of_flags(*TWO, "--gpu-price", "2.99", "--cost.price-file", str(file))
    assert problem.startswith("flag --gpu-price: there is a price file as well. Leave one of them out")


def test_a_gpu_is_one_of_the_catalogue_or_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("gpu_models: [{name: House Card, memory: 96GB, bandwidth: 1.8TB/s}]\n")
    config = load_flags("--config.file", str(file), "--target", "http://gpu-1:8000", "--gpu-model", "House Card")
    assert config.targets[0].gpu_model == "House Card"
    (problem,) = problems_of_flags(*TWO, "--gpu-model", "House Card")
    assert problem.startswith("flag --gpu-model: GPU 'House Card' is not in the catalogue")


@check_rows("value", ["0", "-1", "nan", "two"])
def test_a_price_that_is_none_is_refused(value: str) -> None:
    (problem,) = problems_of_flags(*TWO, f"--gpu-price={value}")
    assert "USD above 0" in problem


def test_one_command_shows_what_a_server_elsewhere_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """The price of an hour of two GPUs, as `once` shows it and as its JSON says it."""
    with Replica({"/metrics": page("vllm-0.32", 60)}) as server:
        words = ["once", "--target", server.url, "--gpu-model", "H100 SXM", "--gpu-count", "2", "--gpu-price", "3.5"]
        # a stub of NVML that an earlier test has loaded stays in the process
        words += ["--gpu.enabled", "false"]
        assert main([*words, "--wait", "1s"]) == 0
        assert "  cost: 2 GPUs at $3.50 an hour (rate on_demand)" in capsys.readouterr().out
        assert main([*words, "--wait", "1s", "--json"]) == 0
        cost = json.loads(capsys.readouterr().out)["cost"]
    assert (cost["gpus"], cost["price_usd_per_gpu_hour"], cost["rate"]) == (2, 3.5, "on_demand")


@pytest.mark.process
def test_a_running_daemon_counts_by_it() -> None:
    with Replica({"/metrics": page("vllm-0.32", 60)}) as server:
        words = ("--target", server.url, "--gpu-count", "2", "--gpu-model", "H100 SXM", "--gpu-price", "3600")
        with Exporter(*words, "--scrape.interval", "1s") as exporter:
            counted = exporter.until(
                lambda page: sum(page.series("cost_usd_total", rate="on_demand").values()) > 0, "money is counted"
            )
    assert list(counted.series("gpu_price_usd_per_hour").values()) == [3600.0]


# --- `gpu_models:`: cards that the user describes, every mistake at its place, and who wins ---


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
