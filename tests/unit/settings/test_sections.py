"""Sections of the configuration about others: `http_sd:`, `kubernetes:`, `dcgm:`, `otlp:`, and the review's schedule."""

import json
from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.discovery.sections import MAKERS
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.settings import endpoints as otlp
from llm_serving_exporter.settings import kubernetes as kubernetes_module
from llm_serving_exporter.settings.config import DcgmConfig, OtlpConfig, ReviewSchedule, effective
from llm_serving_exporter.settings.discovery import (
    DISCOVERY_KEYS,
    READERS,
    DiscoverySection,
    FileDiscovery,
    HttpDiscovery,
)
from llm_serving_exporter.settings.http import drop_credentials, has_credentials, sends_secret
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from llm_serving_exporter.settings.review import with_review
from tests.support.builders.configuration import load_flags, load_text, problems_of, problems_of_flags
from tests.support.rows import check_rows

# --- Sections of the configuration about others: `http_sd:`, `kubernetes:`, `dcgm:`, `otlp:`


LEAST = "http_sd: [{url: 'https://inventory.example.com/targets', hosts: [10.0.0.0/8]}]\n"


def section(folder: Path, text: str, **settings: object) -> HttpDiscovery:
    (found,) = load_text(folder, text, **settings).discovery
    assert isinstance(found, HttpDiscovery)
    return found


def test_every_kind_of_section_is_read_and_run() -> None:
    assert tuple(READERS) == DISCOVERY_KEYS
    assert set(MAKERS) == set(DiscoverySection.__args__)
    assert [section.kind for section in MAKERS] == list(DISCOVERY_KEYS)


def test_the_least_section(tmp_path: Path) -> None:
    found = section(tmp_path, LEAST)
    assert (found.url, found.path, found.hosts) == ("https://inventory.example.com:443", "/targets", ("10.0.0.0/8",))
    assert found.name == "https://inventory.example.com:443/targets"
    assert (found.refresh_seconds, found.http.timeout_seconds, found.http.max_body_bytes) == (60.0, 10.0, 4 * 2**20)
    assert not has_credentials(found.http)
    assert found.defaults.interval_seconds == 5.0


def test_every_key_of_http_sd(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.pem").write_text("")
    text = """
http_sd:
  - url: http://inventory:8080/targets?fleet=chat&x=1
    hosts: [gpu-1, "*.gpu.example.com", fd00::/8, "*", gpu-1]
    refresh_interval: 30s
    timeout: 5s
    max_body_bytes: 1MiB
    auth: {bearer_token_file: token}
    headers: {X-Scope: chat}
    tls: {ca_file: ca.pem}
    defaults: {interval: 10s, group: found}
"""
    found = section(tmp_path, text)
    assert (found.url, found.path) == ("http://inventory:8080", "/targets?fleet=chat&x=1")
    assert found.name == "http://inventory:8080/targets"
    assert found.hosts == ("gpu-1", "*.gpu.example.com", "fd00::/8", "*")
    assert (found.refresh_seconds, found.http.timeout_seconds, found.http.max_body_bytes) == (30.0, 5.0, 2**20)
    assert found.http.bearer_token == Secret(file=str(tmp_path / "token"))
    assert found.http.headers == (("X-Scope", "chat"),)
    assert found.http.ca_file == str(tmp_path / "ca.pem")
    assert (found.defaults.interval_seconds, found.defaults.group) == (10.0, "found")
    # what asks for the list is not sent to those that it names
    assert not has_credentials(found.defaults.http)
    assert found.defaults.http.ca_file is None


EXAMPLE = "Write {url: https://inventory.example.com/targets, hosts: [10.0.0.0/8]}."


@check_rows(
    ("entry", "expected"),
    [
        ("{url: 'http://a:1/'}", f"http_sd[0]: hosts is missing. {EXAMPLE}"),
        ("{hosts: ['*']}", f"http_sd[0]: url is missing. {EXAMPLE}"),
        ("{url: 'http://a:1/', hosts: []}", f"http_sd[0].hosts: no host is allowed. {EXAMPLE}"),
        ("{url: 'http://a:1/', hosts: '*'}", "http_sd[0].hosts: must be a list of hosts and networks, not text. Start"),
        ("{url: 'http://a:1/', hosts: [10.1.0.0/8]}", "http_sd[0].hosts[0]: \"10.1.0.0/8\" is neither"),
        ("{url: 'ftp://a:1/', hosts: ['*']}", "http_sd[0].url: \"ftp://a:1/\" has the scheme \"ftp\""),
        ("{url: 'http://u:p@a:1/', hosts: ['*']}", "http_sd[0].url: the URL holds a user name or password"),
        ("{url: 'http://a:1/#x', hosts: ['*']}", "http_sd[0].url: the URL holds a query (?) or a fragment (#)"),
        ("{url: 'http://a:1/?a b', hosts: ['*']}", "http_sd[0].url: the URL has no usable query"),
        ("{url: 'http://a:1/', hosts: ['*'], refresh_interval: 1ms}", "http_sd[0].refresh_interval: \"1ms\" is shorter"),
        ("{url: 'http://a:1/', hosts: ['*'], refresh_interval: 5s, timeout: 5s}", "http_sd[0].timeout: the timeout of 5s is not"),
        ("{url: 'http://a:1/', hosts: ['*'], max_body_bytes: 2GiB}", "http_sd[0].max_body_bytes: the size \"2GiB\" is out of range"),
        ("{url: 'http://a:1/', hosts: ['*'], basic_auth: {}}", "http_sd[0].basic_auth: this key is not allowed here. Write auth:"),
        ("{url: 'http://a:1/', hosts: ['*'], defaults: {url: x}}", "http_sd[0].defaults.url: this key is not allowed here"),
        ("{url: 'http://a:1/', hosts: ['*'], defaults: {timeout: 1m}}", "http_sd[0].defaults.timeout: the timeout of 1m is not"),
        ("http://a:1/", "http_sd[0]: must be a mapping (key: value), not text."),
    ],
)  # fmt: skip
def test_mistakes_say_where_and_what_to_do(tmp_path: Path, entry: str, expected: str) -> None:
    problem = problems_of(tmp_path, f"http_sd: [{entry}]\n")[0]
    assert problem.startswith(expected), problem


def test_the_word_of_prometheus_is_explained(tmp_path: Path) -> None:
    (problem, *_) = problems_of(tmp_path, "http_sd_configs: [{url: 'http://a:1'}]\ntargets: [a:1]\n")
    assert problem == (
        "http_sd_configs: this key is not allowed here. Write http_sd:, with hosts: for the servers that it may name."
    )


CREDENTIALS = """
target_defaults:
  interval: 10s
  auth: {bearer_token_env: TOKEN}
  headers: {X-Scope: chat, X-Key: {env: TOKEN}}
"""


def test_credentials_of_all_targets_do_not_go_to_those_that_a_server_names(tmp_path: Path) -> None:
    config = load_text(tmp_path, CREDENTIALS + LEAST + "file_sd: [{files: [a.yml]}]\n", environ={"TOKEN": "x"})
    files, named = config.discovery
    assert isinstance(files, FileDiscovery)
    assert has_credentials(files.defaults.http)
    assert named.defaults.interval_seconds == 10.0
    assert named.defaults.http.headers == (("X-Scope", "chat"),)
    assert not has_credentials(named.defaults.http)
    place = f"{tmp_path}/config.yml: http_sd[0]: credentials in target_defaults"
    assert list(config.warnings) == [
        f"{place}.{key} do not go to the targets of this section; write them in its own defaults"
        for key in ("auth", "headers")
    ]


def test_a_section_sends_the_credentials_of_its_own_defaults(tmp_path: Path) -> None:
    own = CREDENTIALS + LEAST.replace("}]", ", defaults: {auth: {bearer_token_env: OWN}, headers: {X-A: b}}}]")
    config = load_text(tmp_path, own, environ={"TOKEN": "x", "OWN": "y"})
    assert config.discovery[0].defaults.http.bearer_token == Secret(env="OWN")
    assert config.warnings == ()


def test_a_secret_for_the_list_over_http_is_warned_about(tmp_path: Path) -> None:
    text = "http_sd: [{url: 'http://inventory:80/', hosts: ['*'], auth: {bearer_token_env: T}}]\n"
    config = load_text(tmp_path, text, environ={"T": "x"})
    assert config.warnings == (
        f"{tmp_path}/config.yml: http_sd[0]: a secret is sent over http to another host; use https",
    )


@check_rows(
    ("http", "any_credentials", "in_clear"),
    [
        (HttpSettings(), False, False),
        (HttpSettings(headers=(("X-A", "b"),), ca_file="ca", server_name="x"), False, False),
        (HttpSettings(bearer_token=Secret(env="T")), True, True),
        (HttpSettings(basic_username="u", basic_password=Secret(env="T")), True, True),
        (HttpSettings(headers=(("X-A", Secret(env="T")),)), True, True),
        (HttpSettings(cert_file="c", key_file="k"), True, False),
    ],
)
def test_what_counts_as_a_credential(http: HttpSettings, any_credentials: bool, in_clear: bool) -> None:
    assert (has_credentials(http), sends_secret(http)) == (any_credentials, in_clear)
    bare = drop_credentials(http)
    assert not has_credentials(bare)
    assert (bare.ca_file, bare.server_name) == (http.ca_file, http.server_name)


# --- `kubernetes:` in the configuration: what is read, and what is refused ---


POD = {"NODE_NAME": "gpu-node-3", "POD_NAMESPACE": "monitoring"}


def read(folder: Path, text: str, environ: dict[str, str] = POD) -> KubernetesDiscovery:
    (section,) = load_text(folder, f"kubernetes:\n  - {text}\n", environ=environ).discovery
    assert isinstance(section, KubernetesDiscovery)
    return section


def test_an_empty_section_is_every_known_pod_of_the_cluster(tmp_path: Path) -> None:
    section = read(tmp_path, "{}")
    assert (section.namespaces, section.node, section.selector, section.only_annotated) == ((), "", "", False)
    assert (section.pod_labels, section.node_data, section.loading_limit_seconds) == ((), False, 3600.0)
    assert (section.kubeconfig, section.context) == (None, None)


def test_every_key_of_kubernetes(tmp_path: Path) -> None:
    section = read(
        tmp_path,
        "{namespaces: [a, b, a], node: own, selector: 'app=vllm, tier in (x,y), !canary', only_annotated: true, "
        "pod_labels: [team, e.com/x], node_data: true, loading_limit: 20m, "
        "kubeconfig: kc, context: c, defaults: {group: g, auth: {bearer_token_file: t}}}",
    )
    assert (section.namespaces, section.node) == (("a", "b"), "gpu-node-3")
    assert section.selector == "app=vllm, tier in (x,y), !canary"
    assert (section.only_annotated, section.pod_labels, section.node_data) == (True, ("team", "e.com/x"), True)
    assert (section.loading_limit_seconds, section.context) == (1200.0, "c")
    assert section.kubeconfig == str(tmp_path / "kc")
    assert section.defaults.group == "g"
    assert section.defaults.http.bearer_token is not None


def test_the_own_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(tmp_path, "{namespaces: own}").namespaces == ("monitoring",)
    account = tmp_path / "namespace"
    account.write_text("other\n")
    monkeypatch.setattr(kubernetes_module, "NAMESPACE_FILE", account)
    assert read(tmp_path, "{namespaces: own}", {}).namespaces == ("other",)


@check_rows(
    ("text", "message"),
    [
        ("{namespaces: own}", "namespaces: the exporter's own namespace is not known. Set the environment variable POD_NAMESPACE "),
        ("{node: own}", "node: the exporter's own node is not known. Set the environment variable NODE_NAME from spec.nodeName, "),
        ("{namespaces: []}", "namespaces: no namespace is named. Write names, all, or own."),
        ("{namespaces: everywhere}", "namespaces: must be a list of namespaces; or all, or own, not text."),
        ("{namespaces: [A_b]}", 'namespaces[0]: "A_b" is not the name of a namespace.'),
        ("{selector: 'app vllm'}", 'selector: "app vllm" is not a label selector. Write one as in app=vllm,tier in (chat, code).'),
        ("{selector: 'app=vllm,'}", "selector: "),
        ("{selector: app=vllm&limit=1}", "selector: "),
        ("{pod_labels: ['a b']}", 'pod_labels[0]: "a b" is not the name of a label.'),
        ("{pod_labels: [team, role]}", 'pod_labels: a target cannot keep "role": this is a key of a target, '),
        ("{pod_labels: [example.com/x, target]}", 'pod_labels: a target cannot keep "target": series of the exporter have '),
        ("{pod_labels: [le]}", 'pod_labels: a target cannot keep "le": '),
        ("{pod_labels: [team.a, team-a]}", 'pod_labels: "team.a" and "team-a" would both be the label team_a. Keep one of them.'),
        ("{loading_limit: soon}", "loading_limit: "),
        ("{context: c}", "context: there is no kubeconfig that it belongs to."),
        ("{namespace: a}", "namespace: this key is not allowed here. Write namespaces: [NAME]."),
        ("{nodes: own}", "nodes: this key is not known. Did you mean node?"),
        ("{defaults: {auth: {bearer_token_file: t}}}", "defaults: credentials would go to pods of every namespace, "),
        ("{namespaces: all, defaults: {headers: {X-Token: {file: f}}}}", "defaults: credentials would go to pods of every namespace, "),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_module, "NAMESPACE_FILE", tmp_path / "absent")
    (found,) = problems_of(tmp_path, f"kubernetes:\n  - {text}\n")
    assert found.startswith(f"kubernetes[0].{message}")


def test_many_namespaces_and_labels_are_refused(tmp_path: Path) -> None:
    many = ", ".join(f"n{number}" for number in range(51))
    (found,) = problems_of(tmp_path, f"kubernetes:\n  - {{namespaces: [{many}]}}\n")
    assert "51 namespaces are more than 50. Write namespaces: all, and a selector." in found
    (found,) = problems_of(tmp_path, f"kubernetes:\n  - {{pod_labels: [{many}]}}\n")
    assert "more than 16 labels are named" in found


def test_credentials_of_all_targets_do_not_go_to_pods(tmp_path: Path) -> None:
    text = "target_defaults: {auth: {bearer_token_file: t}, interval: 7s}\nkubernetes: [{}]\n"
    config = load_text(tmp_path, text)
    (section,) = config.discovery
    assert section.defaults.http.bearer_token is None
    assert section.defaults.interval_seconds == 7.0
    assert any(
        "credentials in target_defaults.auth do not go to the targets of this section" in one for one in config.warnings
    )


def test_claimed_devices_are_read_by_the_first_section_of_a_node(tmp_path: Path) -> None:
    text = "gpu: {dra: true}\nkubernetes: [{selector: a=b}, {node: own}, {node: own, selector: a=c}]\n"
    sections = load_text(tmp_path, text, environ=POD).discovery
    assert [one.claimed_devices for one in sections if isinstance(one, KubernetesDiscovery)] == [False, True, False]
    assert not read(tmp_path, "{node: own}").claimed_devices


def test_claimed_devices_without_a_section_of_a_node_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = problems_of(tmp_path, "gpu: {dra: true}\nkubernetes: [{}]\n")
    assert found == (
        "gpu.dra: no section of kubernetes looks at one node, whose ResourceSlices could be read. "
        "Write kubernetes: [{node: own}], or leave out gpu.dra."
    )
    # what is wrong with the section is enough
    monkeypatch.setattr(kubernetes_module, "CLIENT", "no_such_client")
    (found,) = problems_of(tmp_path, "gpu: {dra: true}\nkubernetes: [{node: a}]\n")
    assert found.startswith("kubernetes[0]: the client of Kubernetes is not installed")


def test_without_the_client_the_section_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_module, "CLIENT", "no_such_client")
    (found,) = problems_of(tmp_path, "kubernetes: [{}]\n")
    assert found == (
        "kubernetes[0]: the client of Kubernetes is not installed. Run pip install 'llm-serving-exporter[kubernetes]'."
    )


# --- `dcgm:`: where dcgm-exporter is, and how it is asked ---


DCGM_TARGET = ("--target", "http://localhost:8000")
DCGM_URL = ("--dcgm.url", "http://gpu-1:9400")


def test_without_a_url_none_is_read() -> None:
    assert load_flags(*DCGM_TARGET).dcgm is None
    assert load_flags(*DCGM_TARGET, environ={"LLM_SERVING_EXPORTER_DCGM_URL": ""}).dcgm is None


def test_a_url_alone_gives_the_defaults_of_the_type() -> None:
    config = load_flags(*DCGM_TARGET, *DCGM_URL)
    assert config.dcgm == DcgmConfig("http://gpu-1:9400")
    assert config.warnings == ()


def test_every_setting(tmp_path: Path) -> None:
    text = """
targets: ['a:1']
scrape: {max_series: 2000, max_body_bytes: 4MiB}
dcgm:
  url: https://gpu-1:9443/dcgm/metrics
  interval: 15s
  timeout: 3s
  auth: {basic: {username: reader, password_file: secrets/password}}
  headers: {X-Scope: blue, X-Token: {env: TOKEN}}
  tls: {server_name: dcgm.internal}
"""
    config = load_text(tmp_path, text, environ={"TOKEN": "hunter2"})
    assert config.dcgm == DcgmConfig(
        url="https://gpu-1:9443",
        metrics_path="/dcgm/metrics",
        interval_seconds=15.0,
        max_series=2000,
        http=HttpSettings(
            timeout_seconds=3.0,
            max_body_bytes=4 * 2**20,
            basic_username="reader",
            basic_password=Secret(file=str(tmp_path / "secrets/password")),
            headers=(("X-Scope", "blue"), ("X-Token", Secret(env="TOKEN"))),
            server_name="dcgm.internal",
        ),
    )
    shown = json.dumps(effective(config))
    assert "hunter2" not in shown
    assert json.loads(shown)["dcgm"]["http"]["basic_password"] == {"file": str(tmp_path / "secrets/password")}


def test_the_default_timeout_follows_the_interval() -> None:
    config = load_flags(*DCGM_TARGET, *DCGM_URL, "--dcgm.interval", "5s")
    assert config.dcgm.http.timeout_seconds == 4.0


def test_a_flag_for_the_url_keeps_what_the_file_says_beside_it(tmp_path: Path) -> None:
    text = "targets: ['a:1']\ndcgm: {url: 'http://b:1', auth: {bearer_token_env: TOKEN}}\n"
    config = load_text(tmp_path, text, "--dcgm.url", "https://c:9400", environ={"TOKEN": "x"})
    assert (config.dcgm.url, config.dcgm.http.bearer_token) == ("https://c:9400", Secret(env="TOKEN"))


def test_settings_change_the_hash() -> None:
    hashes = [
        load_flags(*DCGM_TARGET, *flags).config_hash for flags in ((), DCGM_URL, (*DCGM_URL, "--dcgm.interval", "10s"))
    ]
    assert len(set(hashes)) == 3


def test_problems_name_the_place() -> None:
    assert problems_of_flags(*DCGM_TARGET, "--dcgm.url", "gpu-1") == [
        'flag --dcgm.url: "gpu-1" names no port. Write one such as http://localhost:8000.'
    ]
    assert problems_of_flags(*DCGM_TARGET, *DCGM_URL, "--dcgm.timeout", "40s") == [
        "flag --dcgm.timeout: the timeout of 40s is not below the interval of 30s. "
        "Write a shorter one; where none is written it is 80 % of the interval, at most 10s."
    ]


def test_a_header_beside_auth_is_refused(tmp_path: Path) -> None:
    text = """
targets: ['a:1']
dcgm: {url: 'https://b:1', auth: {bearer_token_env: T}, headers: {Authorization: {env: T}}}
"""
    expected = ["dcgm: both auth and a header Authorization are given. Keep one of them."]
    assert problems_of(tmp_path, text, environ={"T": "x"}) == expected


def test_warnings(tmp_path: Path) -> None:
    def warnings(text: str, *flags: str) -> list[str]:
        found = load_text(tmp_path, f"targets: ['a:1']\n{text}\n", *flags, environ={"T": "x"}).warnings
        return [warning.removeprefix(f"{tmp_path}/config.yml: ") for warning in found]

    assert warnings("dcgm: {interval: 10s}") == ["dcgm: not used, because dcgm.url is not set"]
    assert warnings("dcgm: {interval: 10s}", *DCGM_URL) == []
    assert warnings("gpu: {enabled: false}\ndcgm: {url: 'http://b:1'}") == [
        "dcgm.url: not used, because gpu.enabled is false: which GPUs there are is known from NVML only"
    ]
    assert warnings("dcgm: {url: 'http://b:1', auth: {bearer_token_env: T}}") == [
        "dcgm.url: a secret is sent over http to another host; use https"
    ]
    assert warnings("dcgm: {url: 'https://b:1', tls: {insecure_skip_verify: true}}") == [
        "dcgm.url: insecure_skip_verify is on: anyone on the way to the server can forge its metrics"
    ]


# --- `otlp:`: where all series are sent, and how ---


OTLP_TARGET = ("--target", "a:1")
OTLP_URL = ("--otlp.url", "http://collector:4318")


def test_nothing_is_sent_unless_a_receiver_is_named() -> None:
    assert load_flags(*OTLP_TARGET).otlp is None


def test_a_flag_that_says_how_without_where_is_warned_of() -> None:
    said = load_flags(*OTLP_TARGET, "--otlp.gen-ai.operation", "chat").warnings
    assert [one for one in said if "otlp" in one] == [
        "flag --otlp.gen-ai.operation: not used, because otlp.url is not set"
    ]
    assert not any("not used" in one for one in load_flags(*OTLP_TARGET).warnings)


def test_a_url_is_enough() -> None:
    assert load_flags(*OTLP_TARGET, *OTLP_URL).otlp == OtlpConfig(
        "http://collector:4318", http=HttpSettings(timeout_seconds=10.0, max_body_bytes=65536)
    )


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hidden-value")
    text = """
targets: ['a:1']
otlp:
  url: https://prometheus:9090/api/v1/otlp/v1/metrics
  interval: 30s
  timeout: 5s
  auth: {bearer_token_file: token}
  headers: {X-Scope-OrgID: llm}
  resource: {service.name: llm, deployment.environment.name: prod}
"""
    config = load_text(tmp_path, text)
    assert config.otlp == OtlpConfig(
        "https://prometheus:9090",
        "/api/v1/otlp/v1/metrics",
        30.0,
        HttpSettings(
            timeout_seconds=5.0,
            max_body_bytes=65536,
            bearer_token=Secret(file=str(tmp_path / "token")),
            headers=(("X-Scope-OrgID", "llm"),),
        ),
        (("deployment.environment.name", "prod"), ("service.name", "llm")),
    )
    assert "hidden-value" not in json.dumps(effective(config))


def test_what_is_wrong_is_said_with_what_to_write(tmp_path: Path) -> None:
    assert problems_of_flags(*OTLP_TARGET, *OTLP_URL, "--otlp.timeout", "20s") == [
        "flag --otlp.timeout: the timeout of 20s is not below the interval of 15s. "
        "Write a shorter one; where none is written it is 80 % of the interval, at most 10s."
    ]
    text = "targets: ['a:1']\notlp: {url: 'http://b:1', resource: {'a b': x}}\n"
    assert problems_of(tmp_path, text) == [
        'otlp.resource.a b: "a b" is not the name of an attribute. Write one as in deployment.environment.name.'
    ]


def test_settings_without_a_receiver_are_warned_of(tmp_path: Path) -> None:
    config = load_text(tmp_path, "targets: ['a:1']\notlp: {interval: 30s}\n")
    assert next(one for one in config.warnings if "otlp" in one).endswith("otlp: not used, because otlp.url is not set")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_is_installed", lambda: False)
    assert problems_of_flags(*OTLP_TARGET, *OTLP_URL) == [
        "flag --otlp.url: the messages of OpenTelemetry are not installed. "
        "Run pip install 'llm-serving-exporter[otlp]'."
    ]


# --- What the daemon takes from the review's settings, and what it refuses before it listens


GOOD = 'prometheus: {url: "http://prometheus:9090"}\nschedule: "0 7 * * mon"\nout: reviews\ntimezone: Europe/Berlin\n'


def loaded(tmp_path: Path, text: str, *flags: str):
    path = tmp_path / "report.yml"
    path.write_text(text)
    config = load_flags("--target", "a:1", "--report.settings-file", str(path), *flags)
    return with_review(config, {})


def test_the_schedule_of_the_settings(tmp_path: Path) -> None:
    found = loaded(tmp_path, GOOD)
    path = str(tmp_path / "report.yml")
    expected = ReviewSchedule(path, str(tmp_path / "reviews"), "0 7 * * mon", "Europe/Berlin", True)
    assert found.review == expected
    assert loaded(tmp_path, GOOD, "--no-report.run").review.run is False
    # another schedule is another configuration
    assert loaded(tmp_path, GOOD.replace("7", "8")).config_hash != found.config_hash


def test_a_file_that_is_named_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.yml").write_text(GOOD)
    config = load_flags("--target", "a:1", "--report.settings-file", "report.yml")
    review = with_review(config, {}).review
    assert review.folder == str(tmp_path / "reviews")


@check_rows(
    ("text", "said"),
    [
        (GOOD.replace('prometheus: {url: "http://prometheus:9090"}\n', ""), "there is no Prometheus to ask"),
        (GOOD.replace('schedule: "0 7 * * mon"\n', ""), "there is no schedule"),
        (GOOD.replace("out: reviews\n", ""), "there is no folder for the reviews"),
        (GOOD + "keeep: 3\n", "keeep: this key is not known"),
        ("[", "report.yml"),
    ],
)
def test_what_the_daemon_cannot_do_with_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, text)


def test_check_config_reads_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.yml"
    path.write_text("schedule: soon")
    assert main(["check-config", "--target", "a:1", "--report.settings-file", str(path)]) == 2
    said = capsys.readouterr().err
    assert "schedule: " in said
    assert said.count("error: ") >= 1
    path.write_text(GOOD)
    assert main(["check-config", "--target", "a:1", "--report.settings-file", str(path)]) == 0
