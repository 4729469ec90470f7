"""What a usable configuration becomes; the `model` block of a target; which shard a pod has."""

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import trustme

from llm_serving_exporter.discovery.sections import Discovery
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import ExpectedReplicas, ModelSettings, Role, Secret, Shard, Target, find_shard
from llm_serving_exporter.settings.config import Config, effective
from tests.support.builders.configuration import load_flags, load_text, problems_of, problems_of_flags
from tests.support.builders.recordings import page
from tests.support.rows import check_rows


def target_of(folder: Path, *lines: str, environ: dict[str, str] | None = None) -> Target:
    text = "targets:\n- url: http://gpu-1:8000\n" + "".join(f"  {line}\n" for line in lines)
    (target,) = load_text(folder, text, environ=environ).targets
    return target


def test_a_target_with_every_setting(tmp_path: Path) -> None:
    text = """
targets:
- name: chat-0
  url: https://gpu-1:8443
  metrics_path: /m
  runtime: vllm
  model_name: Qwen/Qwen3-32B
  role: decode
  group: blue
  nodes: [gpu-1, gpu-2]
  gpus: [GPU-00000000-0000-0000-0000-000000000001, 3]
  gpu_count: 2
  batch_limit_requests: 256
  context_limit_tokens: 131072
  interval: 10s
  timeout: 9s
  max_series: 2000
  max_body_bytes: 4MiB
  auth: {basic: {username: reader, password_file: secrets/password}}
  headers: {X-Tenant: blue, X-Token: {env: TOKEN}, X-Key: {file: /run/key}}
  tls: {server_name: vllm.internal}
"""
    config = load_text(tmp_path, text, environ={"TOKEN": "hunter2"})
    (target,) = config.targets
    http = target.http
    assert target == Target(
        name="chat-0",
        url="https://gpu-1:8443",
        metrics_path="/m",
        runtime="vllm",
        model_name="Qwen/Qwen3-32B",
        role=Role.DECODE,
        group="blue",
        nodes=("gpu-1", "gpu-2"),
        gpus=("GPU-00000000-0000-0000-0000-000000000001", 3),
        gpu_count=2,
        batch_limit_requests=256,
        context_limit_tokens=131072,
        interval_seconds=10.0,
        max_series=2000,
        http=http,
    )
    assert (http.timeout_seconds, http.max_body_bytes, http.server_name) == (9.0, 4 * 2**20, "vllm.internal")
    assert (http.basic_username, http.basic_password) == ("reader", Secret(file=str(tmp_path / "secrets/password")))
    assert http.headers == (("X-Tenant", "blue"), ("X-Token", Secret(env="TOKEN")), ("X-Key", Secret(file="/run/key")))
    assert "hunter2" not in repr(config)


def test_a_target_may_be_just_a_url(tmp_path: Path) -> None:
    config = load_text(tmp_path, "targets: ['http://a:1', 'b:2/m']\n")
    assert [(target.name, target.metrics_path) for target in config.targets] == [("a:1", None), ("b:2", "/m")]


@check_rows(("interval", "timeout"), [("5s", 4.0), ("1s", 0.8), ("12s", 9.6), ("15s", 10.0), ("1m", 10.0)])
def test_default_timeout_is_80_percent_of_the_interval_and_at_most_10_seconds(
    tmp_path: Path, interval: str, timeout: float
) -> None:
    text = f"targets: [{{url: 'http://a:1', interval: {interval}}}]\nwindow: 5m\n"
    assert load_text(tmp_path, text).targets[0].http.timeout_seconds == pytest.approx(timeout)
    assert load_flags("--target", "a:1", "--window=5m", "--scrape.interval", interval).targets[
        0
    ].http.timeout_seconds == pytest.approx(timeout)


def test_the_nearest_setting_wins_and_blocks_are_taken_whole(tmp_path: Path) -> None:
    text = """
scrape: {interval: 4s, max_series: 1000}
target_defaults: {interval: 3s, role: prefill, headers: {X-A: a, X-B: b}, runtime: vllm}
targets:
- {url: 'http://a:1', interval: 2s, headers: {X-C: c}, runtime: auto}
- url: http://b:1
"""
    first, second = load_text(tmp_path, text).targets
    assert (first.interval_seconds, second.interval_seconds) == (2.0, 3.0)
    assert (first.role, second.role) == (Role.PREFILL, Role.PREFILL)
    assert (first.runtime, second.runtime) == (None, "vllm")
    assert (first.http.headers, second.http.headers) == ((("X-C", "c"),), (("X-A", "a"), ("X-B", "b")))
    assert (first.max_series, second.max_series) == (1000, 1000)


def test_stale_after_follows_the_longest_interval(tmp_path: Path) -> None:
    assert load_text(tmp_path, "targets: [{url: 'http://a:1', interval: 20s}, 'b:1']\n").stale_after_seconds == 60


def test_yaml_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = "targets:\n- &a {url: 'http://a:1', role: decode}\n- {<<: *a, url: 'http://b:1'}\n"
    assert [(target.url, target.role) for target in load_text(tmp_path, text).targets] == [
        ("http://a:1", "decode"),
        ("http://b:1", "decode"),
    ]


@pytest.mark.parametrize(
    ("environ", "node"), [({}, "pod-7"), ({"NODE_NAME": "gpu-node-3"}, "gpu-node-3"), ({"NODE_NAME": ""}, "pod-7")]
)
def test_a_local_target_is_on_this_node(environ: dict[str, str], node: str) -> None:
    (target,) = load_flags("--target", "localhost:8000", environ=environ).targets
    assert (target.name, target.nodes) == ("pod-7:8000", (node,))


def test_the_node_of_a_remote_target_is_unknown_unless_it_is_given(tmp_path: Path) -> None:
    assert target_of(tmp_path).nodes == ()
    assert target_of(tmp_path, "node: gpu-1").nodes == ("gpu-1",)


@check_rows(("text", "gpus"), [("none", ()), ("[]", ()), ("['0', 1]", (0, 1)), ("[MIG-00000001]", ("MIG-00000001",))])
def test_gpus(tmp_path: Path, text: str, gpus: tuple[str | int, ...]) -> None:
    assert target_of(tmp_path, f"gpus: {text}").gpus == gpus


def test_an_index_is_of_the_targets_own_nodes(tmp_path: Path) -> None:
    every = ("{url: 'http://a:1', node: n1, gpus: [0, 1]}", "{url: 'http://b:1', node: n2, gpus: [0, 1]}")
    assert len(load_text(tmp_path, f"targets: [{', '.join(every)}]").targets) == 2
    with pytest.raises(ConfigError, match="GPU 1 is already claimed"):
        load_text(tmp_path, f"targets: [{', '.join(every)}, {{url: 'http://c:1', node: n2, gpus: [1]}}]")


def test_gpus_that_are_not_given_are_to_be_found_out(tmp_path: Path) -> None:
    assert target_of(tmp_path).gpus is None


def test_relative_paths_start_at_the_file_but_not_those_of_flags(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "web.yml").write_text("")
    text = """
state_file: state
web: {config: {file: web.yml}}
targets: [{url: 'https://a:1', tls: {ca_file: ca.pem}, auth: {bearer_token_file: /run/token}}]
file_sd: [{files: [sd/*.yml]}]
"""
    config = load_text(tmp_path, text)
    assert config.state_file == str(tmp_path / "state")
    assert config.web.config_file == str(tmp_path / "web.yml")
    assert config.targets[0].http.ca_file == str(tmp_path / "ca.pem")
    assert config.targets[0].http.bearer_token == Secret(file="/run/token")
    assert config.discovery[0].files == (str(tmp_path / "sd/*.yml"),)
    assert load_text(tmp_path, text, "--state-file", "here").state_file == "here"


def test_discovery_alone_is_enough_and_has_defaults_of_its_own(tmp_path: Path) -> None:
    text = """
scrape: {interval: 4s}
target_defaults: {role: prefill, group: blue}
file_sd:
- {files: ['a/*.json', b.yml], defaults: {role: decode}}
"""
    config = load_text(tmp_path, text)
    (discovery,) = config.discovery
    assert config.targets == ()
    assert discovery.files == (str(tmp_path / "a/*.json"), str(tmp_path / "b.yml"))
    defaults = discovery.defaults
    assert (defaults.name, defaults.url, defaults.role, defaults.group) == ("", "", Role.DECODE, "blue")
    assert (defaults.interval_seconds, defaults.http.timeout_seconds, defaults.nodes) == (4.0, 3.2, ())


def test_expected_replicas(tmp_path: Path) -> None:
    text = "targets: ['a:1']\nexpected_replicas: [{model_name: m, replicas: 3}, {model_name: m, role: decode, replicas: 0}]\n"
    expected = (ExpectedReplicas("m", "unified", 3), ExpectedReplicas("m", "decode", 0))
    assert load_text(tmp_path, text).expected_replicas == expected


def test_sections_that_are_all_comments_say_nothing(tmp_path: Path) -> None:
    text = "web:\nscrape:\nslo:\ntarget_defaults:\nfile_sd:\nexpected_replicas:\ntargets: ['a:1']\n"
    assert load_text(tmp_path, text).targets == load_text(tmp_path, "targets: ['a:1']\n").targets


def test_an_empty_block_of_a_target_says_nothing_an_empty_mapping_says_none(tmp_path: Path) -> None:
    text = """
target_defaults: {headers: {X-A: a}, node: n, tls: {server_name: s}, auth: {bearer_token_env: TOKEN}}
targets:
- {url: 'https://a:1', headers: , nodes: , tls: , auth: }
- {url: 'https://b:1', headers: {}, tls: {}, auth: {}}
"""
    first, second = load_text(tmp_path, text, environ={"TOKEN": "x"}).targets
    assert (first.http.headers, first.nodes, first.http.server_name) == ((("X-A", "a"),), ("n",), "s")
    assert first.http.bearer_token == Secret(env="TOKEN")
    assert (second.http.headers, second.http.server_name, second.http.bearer_token) == ((), None, None)


def test_a_node_name_that_is_no_label_value_is_refused(tmp_path: Path) -> None:
    expected = (
        "environment variable NODE_NAME: the node contains a control character. Remove it; it may be a line break."
    )
    assert problems_of(tmp_path, "targets: ['a:1']\n", environ={"NODE_NAME": "a\nb"}) == [expected]


def test_the_text_may_come_from_elsewhere() -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    config = load_flags(
        "--config.file", "/etc/x/c.yml", read=lambda path: f"state_file: s\ntargets: ['{path.name}:1']\n"
    )
    assert (config.targets[0].name, config.state_file) == ("c.yml:1", "/etc/x/s")
    with pytest.raises(ConfigError) as caught:
        load_flags("--config.file", "/etc/x/c.yml", read=refuse)
    expected = "/etc/x/c.yml: the file cannot be read: Permission denied. Check its path and permissions."
    assert str(caught.value) == expected


def test_the_hash_is_of_the_meaning_not_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = load_text(tmp_path, "targets: ['http://a:1']\n")
    same = load_text(tmp_path / "other", "# a comment\nscrape: {interval: 5000ms}\ntargets:\n- {url: 'a:1'}\n")
    changed = load_text(tmp_path, "targets: ['http://a:1']\nslo: {itl: 1s}\n")
    assert len(one.config_hash) == 64
    assert one.config_hash == same.config_hash != changed.config_hash


def test_effective_is_json_and_shows_secrets_as_their_source(tmp_path: Path) -> None:
    text = (
        "targets: [{url: 'https://a:1', auth: {bearer_token_file: /etc/token}, headers: {X-A: {env: TOKEN}, X-B: b}}]\n"
    )
    config = load_text(tmp_path, text, environ={"TOKEN": "hunter2"})
    shown = effective(config)
    assert shown["targets"][0]["http"]["bearer_token"] == {"file": "/etc/token"}
    assert shown["targets"][0]["http"]["headers"] == [["X-A", {"env": "TOKEN"}], ["X-B", "***"]]
    assert shown["targets"][0]["role"] is None
    assert shown["config_hash"] == config.config_hash
    assert json.loads(json.dumps(shown)) == shown
    assert "hunter2" not in json.dumps(shown)


def test_the_result_cannot_be_changed() -> None:
    config = load_flags("--target", "a:1")
    with pytest.raises(FrozenInstanceError):
        config.window_seconds = 1.0


def test_at_most_2000_targets(tmp_path: Path) -> None:
    text = "targets:\n" + "".join(f"- a{number}:1\n" for number in range(2000))
    assert len(load_text(tmp_path, text).targets) == 2000
    assert problems_of(tmp_path, text + "- b:1\n") == [
        "targets[2000]: 2001 targets are more than 2000. "
        "Share them among several exporters: --shard 1/2 for the first, --shard 2/2 for the second."
    ]


def test_a_file_full_of_faults_is_reported_up_to_a_bound(tmp_path: Path) -> None:
    messages = problems_of(tmp_path, "targets:\n" + "- 1\n" * 5000)
    assert len(messages) == 201
    assert messages[-1] == "there are more than 200 problems. Start here."


def warnings_of(folder: Path, text: str, **settings: object) -> list[str]:
    config: Config = load_text(folder, text, **settings)
    return [warning.removeprefix(f"{folder}/config.yml: ") for warning in config.warnings]


def test_warnings_about_targets(tmp_path: Path) -> None:
    text = """
targets:
- {url: 'https://a:1', interval: 500ms}
- {url: 'https://b:1', tls: {insecure_skip_verify: true}}
- {url: 'http://c:1', tls: {server_name: x}}
- {url: 'http://d:1', auth: {bearer_token_env: TOKEN}}
- {url: 'http://localhost:1', auth: {bearer_token_env: TOKEN}}
- {url: 'https://e:1', auth: {bearer_token_file: missing}}
"""
    assert warnings_of(tmp_path, text, environ={"TOKEN": "x"}) == [
        "targets[5].auth.bearer_token_file: the file that it names cannot be read (yet)",
        "targets[0]: an interval of 500ms reads the server more than once a second; "
        "most engines refresh their metrics less often",
        "targets[1]: insecure_skip_verify is on: anyone on the way to the server can forge its metrics",
        "targets[2]: tls is set but the URL is http, so that it has no effect",
        "targets[3]: a secret is sent over http to another host; use https",
    ]


def test_fewer_gpus_than_one_engine_uses_are_warned_about(tmp_path: Path) -> None:
    text = """
targets:
- {url: 'http://a:1', gpus: [0, 1], tensor_parallel_size: 2}
- {url: 'http://b:1', gpus: [2, 3], tensor_parallel_size: 2, pipeline_parallel_size: 2}
- {url: 'http://c:1', gpus: [4, 5], tensor_parallel_size: 4, nodes: [here, there]}
- {url: 'http://d:1', gpu_count: 4, tensor_parallel_size: 8}
- {url: 'http://e:1', gpus: none}
- {url: 'http://f:1', gpus: none, tensor_parallel_size: 2}
"""
    assert warnings_of(tmp_path, text) == [
        "targets[1].gpus: 2 are fewer than tensor_parallel_size x pipeline_parallel_size = 4: one engine alone uses more",
        "targets[3].gpu_count: 4 are fewer than tensor_parallel_size x pipeline_parallel_size = 8: one engine alone uses more",
        "targets[5].gpus: 0 are fewer than tensor_parallel_size x pipeline_parallel_size = 2: one engine alone uses more",
    ]


def test_warnings_are_bounded(tmp_path: Path) -> None:
    entry = "- {{url: 'https://a{0}:1', tls: {{insecure_skip_verify: true}}}}\n"
    warnings = warnings_of(tmp_path, "targets:\n" + "".join(entry.format(number) for number in range(60)))
    assert len(warnings) == 51
    assert warnings[-1] == "and 10 more warnings"


def vllm_edges() -> dict[str, tuple[float, ...]]:
    names = {
        "ttft": "time_to_first_token_seconds",
        "itl": "inter_token_latency_seconds",
        "e2e": "e2e_request_latency_seconds",
    }
    lines = page("vllm-0.32-mfu", 60).decode().splitlines()
    found = {}
    for key, name in names.items():
        texts = [line.split('le="')[1].split('"')[0] for line in lines if line.startswith(f"vllm:{name}_bucket")]
        found[key] = tuple(sorted({float(edge) for edge in texts if edge != "+Inf"}))
    return found


@check_rows(
    ("slo", "expected"),
    [
        ("", None),
        ("ttft: off, itl: 200ms, e2e: 1m", None),
        (
            "ttft: 3s",
            "slo.ttft: 3 s lies between the bucket edges 2.5 s and 5 s of vLLM's histogram: "
            "requests count as good up to 2.5 s (strict)",
        ),
        (
            "itl: 5ms",
            "slo.itl: 0.005 s lies below the first bucket edge 0.01 s of vLLM's histogram: no request can count as good",
        ),
        (
            "e2e: 3h",
            "slo.e2e: 10800 s lies above the last bucket edge 7680 s of vLLM's histogram: "
            "requests count as good up to 7680 s (strict)",
        ),
    ],
)
def test_warnings_about_thresholds_that_the_histogram_cannot_tell_apart(
    tmp_path: Path, slo: str, expected: str | None
) -> None:
    text = f"targets: ['a:1']\nslo: {{{slo}}}\n"
    runtimes = {"vllm": replace(RUNTIMES["vllm"], default_edges=vllm_edges())}
    assert warnings_of(tmp_path, text, runtimes=runtimes) == ([] if expected is None else [expected])


@check_rows(
    ("written", "asked"),
    [
        ("/metrics?model=a", "/metrics?model=a&autoload=false"),
        ("/metrics?model=org/a-GGUF:Q4_K_M&x=1", "/metrics?model=org/a-GGUF:Q4_K_M&x=1&autoload=false"),
        ("/metrics?autoload=true&model=a", "/metrics?autoload=true&model=a"),
        ("/metrics?model=a&autoload=false", "/metrics?model=a&autoload=false"),
        ("/metrics?models=a", "/metrics?models=a"),
        ("/metrics?format=prometheus", "/metrics?format=prometheus"),
    ],
)
def test_a_metrics_path_with_a_query_never_has_a_model_loaded(tmp_path: Path, written: str, asked: str) -> None:
    assert target_of(tmp_path, f"metrics_path: {json.dumps(written)}").metrics_path == asked


@check_rows(
    "written",
    ["metrics?model=a", "/metrics?", "/metrics?model=a b", "/metrics?a=1#b", "?model=a", "//x?a=1", "/metrics?m=ä"],
)
def test_a_query_that_cannot_stand_in_a_url_is_refused(tmp_path: Path, written: str) -> None:
    (problem,) = problems_of(tmp_path, f"targets:\n- url: http://a:8000\n  metrics_path: {json.dumps(written)}\n")
    assert problem.startswith("targets[0].metrics_path: ")


def test_the_path_of_a_url_and_of_the_exporters_own_page_have_no_query(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "targets:\n- url: http://a:8000/metrics?model=a\n")
    assert "the URL holds a query (?)" in problem
    (problem,) = problems_of_flags("--web.telemetry-path", "/metrics?x=1", "--target", "http://a:8000")
    assert "is not a URL path" in problem


def test_two_models_of_one_server_are_two_targets(tmp_path: Path) -> None:
    lines = "".join(
        f"- {{name: {model}, url: 'http://a:8080', metrics_path: '/metrics?model={model}'}}\n" for model in ("m1", "m2")
    )
    assert [target.metrics_path for target in load_text(tmp_path, f"targets:\n{lines}").targets] == [
        "/metrics?model=m1&autoload=false",
        "/metrics?model=m2&autoload=false",
    ]


# --- the `model` block of a target, GPU names and formats: what is taken, and from where ---


def model(folder: Path, text: str) -> ModelSettings:
    config = load_text(folder, f"targets: [{{url: 'http://a:8000', model: {text}}}]\n")
    return config.targets[0].model


@check_rows(
    ("text", "expected"),
    [
        ("Llama-3.1-8B", ModelSettings(name="Llama-3.1-8B")),
        ("meta-llama/Llama-3.1-8B", ModelSettings(name="meta-llama/Llama-3.1-8B")),
        ("/models/a", ModelSettings(config="/models/a")),
        ("{config: /models/a/config.json}", ModelSettings(config="/models/a/config.json")),
        (
            "{name: a, weight_format: FP8, kv_cache_dtype: fp8-e5m2}",
            ModelSettings(name="a", weight_format="FP8", kv_cache_dtype="fp8-e5m2"),
        ),
        ("{weight_format: q4_k_m, state_dtype: auto}", ModelSettings(weight_format="q4_k_m", state_dtype="auto")),
        ("{kv_cache_dtype: auto, state_dtype: float32}", ModelSettings(kv_cache_dtype="auto", state_dtype="float32")),
        ("{}", ModelSettings()),
    ],
)  # fmt: skip
def test_a_block_or_a_text_alone(tmp_path: Path, text: str, expected: ModelSettings) -> None:
    assert model(tmp_path, text) == expected


@check_rows("text", ["./m", "../m", "{config: m}", "{config: ./m}"])
def test_relative_paths_are_of_the_file(tmp_path: Path, text: str) -> None:
    found = model(tmp_path, text).config
    assert found is not None
    assert Path(found).resolve() in ((tmp_path / "m").resolve(), (tmp_path / "../m").resolve())


def test_defaults_and_the_more_specific_target(tmp_path: Path) -> None:
    text = (
        "target_defaults: {gpu_model: H100 SXM, model: {name: a, weight_format: fp8}}\n"
        "targets: ['http://a:8000', {url: 'http://b:8000', gpu_model: L40S, model: {name: b}}]\n"
    )
    first, second = load_text(tmp_path, text).targets
    assert (first.gpu_model, first.model) == ("H100 SXM", ModelSettings(name="a", weight_format="fp8"))
    assert second.gpu_model == "L40S"
    assert second.model.name == "b"


@pytest.mark.parametrize("text", ["8", "1.5", "true"])
def test_formats_are_texts(tmp_path: Path, text: str) -> None:
    for key in ("weight_format", "kv_cache_dtype", "state_dtype"):
        (problem,) = problems_of(tmp_path, f"targets: [{{url: 'http://a:8000', model: {{{key}: {text}}}}}]\n")
        assert problem.startswith(f"targets[0].model.{key}: ")


def test_state_dtypes_that_are_taken_hold_at_the_lookup() -> None:
    """ "auto" is the config's own, else the model's dtype, as vLLM has it."""

    def bytes_of(name: str, dtype: str | None) -> float:
        return loader.model_facts(ModelSettings(name=name, state_dtype=dtype)).state_bytes_per_element

    assert [bytes_of("Jamba-v0.1", dtype) for dtype in (None, "auto", "AUTO", "BF16", "float32")] == [
        4.0, 2.0, 2.0, 2.0, 4.0,
    ]  # fmt: skip


def test_a_gpu_that_a_discovered_target_names_and_nobody_knows_costs_no_target(tmp_path: Path) -> None:
    (tmp_path / "sd.yml").write_text("- {targets: ['a:1', 'b:1'], labels: {gpu_model: 'Future GPU 9000'}}\n")
    config = load_text(tmp_path, "file_sd: [{files: [sd.yml]}]\n")
    found = Discovery(config.discovery).targets((), ())
    assert [target.gpu_model for target in found.targets] == ["Future GPU 9000"] * 2
    assert list(found.problems) == []


def test_what_names_nothing_reads_no_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader.gpu_catalogue.cache_clear()
    monkeypatch.setattr(loader, "model_catalogue", None)
    load_text(tmp_path, "targets: ['http://a:8000']\n")
    assert loader.gpu_catalogue.cache_info().currsize == 0


# --- `shard`: how it is written, and which one a pod of a StatefulSet has ---


TARGET = ("--target", "a:1")


def test_the_second_of_four() -> None:
    assert load_flags(*TARGET).shard is None
    assert load_flags(*TARGET, "--shard", "2/4").shard == Shard(2, 4)
    assert load_flags(*TARGET, "--shard", "1/1").shard == Shard(1, 1)
    assert load_flags(*TARGET, "--shard", "256/256").shard == Shard(256, 256)


@check_rows(
    ("written", "expected"),
    [
        ("0/4", "there is no shard 0 of 4. Shards count from 1: write 1/4 to 4/4."),
        ("5/4", "there is no shard 5 of 4. Shards count from 1: write 1/4 to 4/4."),
        ("1/0", "0 shards are out of range. Write 1 to 256 shards."),
        ("1/257", "257 shards are out of range. Write 1 to 256 shards."),
        *(
            (
                text,
                f'"{text}" is not a shard. Write 2/4 for the second of four, or ordinal/4 in the pods of a StatefulSet with 4 replicas.',
            )
            for text in ("2", "2/", "/4", "-1/4", "2/4/8", "two/4", "2 / 4", "٢/٤", "2.0/4", "ordinal", "99999999/4")
        ),
    ],
)
def test_nonsense_is_refused(written: str, expected: str) -> None:
    assert problems_of_flags(*TARGET, f"--shard={written}") == [f"flag --shard: {expected}"]


@pytest.mark.parametrize("ordinal", [0, 1, 3])
def test_a_pod_of_a_statefulset_has_the_shard_of_its_ordinal(ordinal: int, tmp_path: Path) -> None:
    by_name = load_flags(*TARGET, "--shard=ordinal/4", host_name=f"exporter-eu-1-{ordinal}")
    assert by_name.shard == Shard(ordinal + 1, 4)
    # with hostNetwork the host name is the node's
    environ = {"POD_NAME": f"exporter-{ordinal}"}
    assert load_flags(*TARGET, "--shard=ordinal/4", environ=environ, host_name="node-9").shard == Shard(ordinal + 1, 4)
    assert load_text(tmp_path, "shard: ordinal/4\ntargets: [a:1]\n", environ=environ).shard == Shard(ordinal + 1, 4)


def test_a_pod_beyond_the_last_shard_does_not_start() -> None:
    # it would read what another one reads
    assert problems_of_flags(*TARGET, "--shard=ordinal/4", environ={"POD_NAME": "exporter-4"}) == [
        'flag --shard: the pod "exporter-4" has the ordinal 4, but the ordinals of 4 shards end at 3. '
        "Give the StatefulSet as many replicas as there are shards, starting at 0."
    ]


@check_rows("name", ["exporter-7d9f8b6c5-x2x4z", "exporter", "-", "exporter-1a", "exporter-12345678901"])
def test_a_pod_without_an_ordinal_does_not_start(name: str) -> None:
    (problem,) = problems_of_flags(*TARGET, "--shard=ordinal/4", environ={"POD_NAME": name})
    assert problem.startswith(f'flag --shard: the pod\'s name "{name}" does not end in an ordinal')


def test_the_bound_on_configured_targets_is_that_of_the_shard(tmp_path: Path) -> None:
    text = "targets:\n" + "".join(f"- a{number}:1\n" for number in range(3000))
    assert len(load_text(tmp_path, text, "--shard", "1/2").targets) == 3000
    (problem,) = problems_of(tmp_path, text)
    assert "3000 targets are more than 2000. Share them among several exporters" in problem


def test_shards_of_one_fleet_have_one_hash() -> None:
    # a hash that differs is how a person finds the replica that still has the configuration of before
    first, second = (load_flags(*TARGET, "--shard", f"{number}/2") for number in (1, 2))
    assert first.config_hash == second.config_hash
    assert effective(second)["shard"] == {"number": 2, "count": 2}
    assert find_shard("a:1", 2) in (1, 2)
