"""Tables of the configuration file: what they become, whose pages they read, what is odd about them; docs/mapping.md works as it says."""

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.cli import main
from llm_serving_exporter.commands.once import as_table
from llm_serving_exporter.discovery.prometheus_sd import SectionFiles
from llm_serving_exporter.engines.check import FIELDS
from llm_serving_exporter.engines.hooks import HOOKS
from llm_serving_exporter.engines.mapping import (
    Aggregate,
    Fingerprint,
    FirstToken,
    Flags,
    Hooks,
    Mark,
    Reads,
    Row,
    Runtime,
)
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    Quality,
)
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.tenants import TenantKind
from llm_serving_exporter.settings.config import effective
from llm_serving_exporter.settings.options import Host
from llm_serving_exporter.settings.runtimes import ROW_COLUMNS, ROW_KEYS, RUNTIME_COLUMNS, RUNTIME_KEYS
from tests.support.builders.configuration import load_text, problems_of
from tests.support.builders.recordings import page
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.replica import Replica, readings

ROWS = """
  rows:
  - {field: decode_tokens_total, samples: acme_tokens_total}
  - {field: requests_running, samples: acme_running}
"""
ACME = f"""
runtimes:
- name: acme
  prefixes: ["acme_"]
  fingerprints: acme_tokens_total{ROWS}"""
PAGE = "# TYPE acme_tokens_total counter\nacme_tokens_total 640\n# TYPE acme_running gauge\nacme_running 3\n"


def tables(folder: Path, text: str) -> tuple[Runtime, ...]:
    return load_text(folder, f"targets: ['http://a:1']\n{text}").runtimes


# --- what a table becomes --------------------------------------------------------------------------------------------


def test_every_key_ends_in_its_column(tmp_path: Path) -> None:
    (table,) = tables(
        tmp_path,
        """
runtimes:
- name: acme
  title: ACME Serve
  paths: [/stats/metrics]
  prefixes: ["acme_", "acme:"]
  fingerprints:
  - acme_tokens_total
  - {all_of: ["acme_*", {name: acme_info, label: build}], none_of: [acme_router_up]}
  model_label: [model, model_id]
  engine_label: rank
  replica_label: replica
  rank_labels: tp
  only: {pp_rank: ["0", ""]}
  never: {phase: warmup}
  unnamed: [default, ""]
  any_case: true
  born_at_first_event: true
  living: acme_up
  respelt: {"acme:": [acmeserve_, a_]}
  start_sample: process_start_time_seconds
  significant_digits: 6
  ignored: ["acme_debug_*"]
  role: decode
  first_token: client_of_streams
  several_workers: run one
  tenants: {team: [team_alias, team], key: alias}
  no_tenant: [None, ""]
  default_edges: {ttft: [0.1, 1]}
  not_users: [{agent: "probe/.*", route: /up}]
  flags: {batch_limit: [--max-seqs, -n], unless: --stages, bounds: --most, source: https://example.com/flags}
  kv_as_calibrated: {modelopt: ">=2.1", deepseek_v4: ""}
  missing: {preemptions_total: not counted}
  versions: ">=2,<3"
  covered: "2.1"
  recorded: [acme-2.1]
  rows:
  - field: decode_tokens_total
    samples: 'acme_tokens_total{kind="out"}'
    where: {kind: [out, ""], zone: a}
    minus: acme_cached_total
    times: [acme_a, acme_b]
    over: acme_c
    agrees: acme_d
    times_label: {name: acme_info, label: block}
    scale: 1e-3
    versions: ">=2.1"
    guarded: true
    when: 'acme_info{cache="on"}'
    unless: 'acme_info{cache="off"}'
    proof: 'acme_info{version="2.1"}'
    quality: lagging
    multiprocess_quality: approximate
    may_fall: true
    caveat: Booked at the end.
    source: https://example.com/metrics.go
  - field: requests_running
    samples: [acme_running]
    aggregate: max
    quality: slow
    refresh: 1m30s
    freezes: true
    born_at_first_event: true
    zero_is_unset: true
  - {field: requests_finished_total, samples: [acme_done, acme_ok], by: why, named: {acme_ok: stop}, rename: {cancelled: abort, x: ""}}
  - {field: time_to_first_token_seconds, samples: acme_ttft, reads: histogram, sum_is_sound: false}
  - {field: inter_token_latency_seconds, samples: [acme_itl_sum, acme_itl_count], reads: mean}
  - {field: kv_cache_capacity_tokens, samples: acme_info, reads: labels, labels: [blocks, size], shared_by_engines: true}
  - {field: kv_block_tokens, samples: acme_info, reads: labels, labels: [size], of_a_context_part: true}
  - {field: kv_cache_dtype, samples: acme_info, reads: text, labels: dtype}
""",
    )
    info = "acme_info"
    assert table == Runtime(
        name="acme",
        title="ACME Serve",
        paths=("/stats/metrics",),
        prefixes=("acme_", "acme:"),
        fingerprints=(
            Fingerprint((Mark("acme_tokens_total"),)),
            Fingerprint((Mark("acme_*"), Mark(info, "build")), (Mark("acme_router_up"),)),
        ),
        model_labels=("model", "model_id"),
        engine_labels=("rank",),
        replica_label="replica",
        rank_labels=("tp",),
        only={"pp_rank": frozenset({"0", ""})},
        never={"phase": frozenset({"warmup"})},
        unnamed=frozenset({"default", ""}),
        any_case=True,
        born_at_first_event=True,
        living="acme_up",
        respelt=(("acme:", "acmeserve_"), ("acme:", "a_")),
        start_sample="process_start_time_seconds",
        significant_digits=6,
        ignored=("acme_debug_*",),
        role=Role.DECODE,
        first_token=FirstToken.CLIENT_OF_STREAMS,
        several_workers="run one",
        tenants={TenantKind.TEAM: ("team_alias", "team"), TenantKind.KEY: ("alias",)},
        no_tenant=frozenset({"None", ""}),
        default_edges={"ttft": (0.1, 1.0)},
        not_users=({"agent": "probe/.*", "route": "/up"},),
        flags=Flags(("--max-seqs", "-n"), ("--stages",), "https://example.com/flags", ("--most",)),
        kv_as_calibrated={"modelopt": ">=2.1", "deepseek_v4": ""},
        missing={"preemptions_total": "not counted"},
        versions=">=2,<3",
        covered="2.1",
        recorded=("acme-2.1",),
        rows=(
            Row(
                "decode_tokens_total",
                ('acme_tokens_total{kind="out"}',),
                where={"kind": frozenset({"out", ""}), "zone": frozenset({"a"})},
                minus=("acme_cached_total",),
                times=("acme_a", "acme_b"),
                over=("acme_c",),
                agrees="acme_d",
                times_label=(info, "block"),
                scale=0.001,
                versions=">=2.1",
                guarded=True,
                when=(info, "cache", "on"),
                unless=(info, "cache", "off"),
                proof=(info, "version", "2.1"),
                quality=Quality.LAGGING,
                multiprocess_quality=Quality.APPROXIMATE,
                may_fall=True,
                caveat="Booked at the end.",
                source="https://example.com/metrics.go",
            ),
            Row(
                "requests_running",
                ("acme_running",),
                aggregate=Aggregate.MAX,
                quality=Quality.SLOW,
                refresh_seconds=90.0,
                freezes=True,
                born_at_first_event=True,
                zero_is_unset=True,
            ),
            Row(
                "requests_finished_total",
                ("acme_done", "acme_ok"),
                by="why",
                named={"acme_ok": "stop"},
                rename={"cancelled": "abort", "x": ""},
            ),
            Row("time_to_first_token_seconds", ("acme_ttft",), reads=Reads.HISTOGRAM, sum_is_sound=False),
            Row("inter_token_latency_seconds", ("acme_itl_sum", "acme_itl_count"), reads=Reads.MEAN),
            Row("kv_cache_capacity_tokens", (info,), reads=Reads.LABELS, labels=("blocks", "size"), shared_by_engines=True),
            Row("kv_block_tokens", (info,), reads=Reads.LABELS, labels=("size",), of_a_context_part=True),
            Row("kv_cache_dtype", (info,), reads=Reads.TEXT, labels=("dtype",)),
        ),
    )  # fmt: skip


def test_every_column_of_the_built_in_tables_is_a_key_or_takes_code() -> None:
    row = set(ROW_COLUMNS) | {"field"}
    assert row == {*name_fields(Row)}
    code = {*name_fields(Hooks)} - {"complete"}
    own = set(RUNTIME_COLUMNS) | {"name", "rows", "hooks"}
    assert own.isdisjoint(code)
    assert own | code == {*name_fields(Runtime)}


def test_a_name_is_its_own_title_and_a_list_of_one_needs_no_list(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, ACME)
    assert table.title == "acme"
    assert table.paths == ("/metrics",)
    assert table.fingerprints == (Fingerprint((Mark("acme_tokens_total"),)),)
    assert [row.samples for row in table.rows] == [("acme_tokens_total",), ("acme_running",)]


def test_a_table_based_on_another_has_its_rows_before_it_and_is_not_recognised_as_it(tmp_path: Path) -> None:
    (table,) = tables(
        tmp_path,
        """
runtimes:
- name: fork
  based_on: vllm
  prefixes: ["fork_"]
  ignored: [fork_debug]
  model_label: served
  rows: [{field: kv_cache_usage_ratio, samples: fork_kv}]
""",
    )
    vllm = RUNTIMES["vllm"]
    assert table.rows == (Row("kv_cache_usage_ratio", ("fork_kv",)), *vllm.rows)
    assert (table.prefixes, table.ignored) == (("fork_", *vllm.prefixes), ("fork_debug", *vllm.ignored))
    assert (table.model_labels, table.engine_labels) == (("served",), vllm.engine_labels)
    assert (table.endpoints, table.default_edges) == (vllm.endpoints, vllm.default_edges)
    assert (table.fingerprints, table.shows, table.missing, table.title) == ((), (), {}, "fork")


def test_a_text_stands_wherever_its_name_does(tmp_path: Path) -> None:
    (table,) = tables(
        tmp_path,
        """
runtimes:
- name: acme
  prefixes: [acme_]
  source: $code/metrics.go
  texts:
    repository: https://example.com/acme
    code: $repository/src
    done: acme_done_total
  rows:
  - {field: requests_running, samples: acme_running, caveat: "Costs $5. See $repository."}
  - {field: requests_finished_total, samples: $done, named: {$done: stop}, source: $code/requests.go}
""",
    )
    running, finished = table.rows
    assert running.source == "https://example.com/acme/src/metrics.go"
    assert running.caveat == "Costs $5. See https://example.com/acme."
    assert (finished.samples, finished.named) == (("acme_done_total",), {"acme_done_total": "stop"})
    assert finished.source == "https://example.com/acme/src/requests.go"


def test_without_texts_a_dollar_is_a_dollar(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, ACME.replace("samples: acme_running", "samples: acme_running, caveat: as $is"))
    assert table.rows[1].caveat == "as $is"


def test_rows_of_another_table_stand_where_they_are_named(tmp_path: Path) -> None:
    (table,) = tables(
        tmp_path,
        ACME.replace("  rows:\n", "  rows:\n  - {field: requests_finished_total, as: triton}\n")
        + "  - {field: requests_waiting, samples: acme_waiting, quality: slow, refresh: 1s}\n",
    )
    of_triton = tuple(row for row in RUNTIMES["triton"].rows if row.field == "requests_finished_total")
    assert table.rows[: len(of_triton)] == of_triton
    assert [row.field for row in table.rows[len(of_triton) :]] == [
        "decode_tokens_total",
        "requests_running",
        "requests_waiting",
    ]


def test_hooks_give_what_takes_code(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, ACME.replace("- name: acme", "- name: acme\n  hooks: vllm"))
    vllm = RUNTIMES["vllm"]
    assert (table.endpoints, table.shows, table.polls) == (vllm.endpoints, vllm.shows, ())
    assert [row.field for row in table.rows] == ["decode_tokens_total", "requests_running"]


@check_rows(
    ("changes", "expected"),
    [
        (
            {"- name: acme": "- name: acme\n  texts: {at_end: Booked.}\n  source: $at_ends"},
            'runtimes[0].source: there is no text "at_ends". Did you mean at_end?',
        ),
        (
            {"- name: acme": "- name: acme\n  texts: {At: Booked.}"},
            'runtimes[0].texts.At: "At" is not a name for a text. Write lower-case letters, digits and _.',
        ),
        (
            {"  rows:": "  rows:\n  - {field: preemptions_total, as: triton}"},
            "runtimes[0].rows[0].field: Triton has no row for preemptions_total. Write a field that it reads.",
        ),
        (
            # the line of the file, where an earlier one has become several rows
            {
                "  rows:": "  rows:\n  - {field: requests_finished_total, as: triton}",
                "requests_running, samples": "requests_runing, samples",
            },
            'runtimes[0].rows[2].field: there is no field "requests_runing". Did you mean requests_running?',
        ),
        ({"- name: acme": "- name: acme\n  hooks: vlm"}, "runtimes[0].hooks:"),
        (
            {"- name: acme": "- name: acme\n  flags: {batch_limit: --max_seqs}"},
            'runtimes[0].flags.batch_limit: "--max_seqs" is not a flag. Write one such as --max-num-seqs, with - for _.',
        ),
        (
            {"- name: acme": '- name: acme\n  not_users: [{agent: "("}]'},
            'runtimes[0].not_users[0].agent: "(" is not a regular expression',
        ),
        (
            {"- name: acme": "- name: acme\n  kv_as_calibrated: {modelopt: newest}"},
            "runtimes[0].kv_as_calibrated.modelopt: not a version clause",
        ),
        (
            {"- name: acme": "- name: acme\n  missing: {requests_running: no gauge}"},
            "runtimes[0].missing.requests_running: the field has a row. Keep one of them.",
        ),
        ({"- name: acme": "- name: acme\n  page: json"}, "runtimes[0].page:"),
        (
            {"- name: acme": "- name: acme\n  no_tenant: [none, 0]"},
            "runtimes[0].no_tenant[1]: YAML reads this value as a number, not as text. Put it in double quotes.",
        ),
        (
            {"- name: acme": "- name: acme\n  unnamed: 0"},
            "runtimes[0].unnamed: YAML reads this value as a number, not as text. Put it in double quotes.",
        ),
    ],
)
def test_what_is_wrong_with_them_is_said_at_its_place(tmp_path: Path, changes: dict[str, str], expected: str) -> None:
    text = ACME
    for old, new in changes.items():
        text = text.replace(old, new, 1)
    (problem,) = problems_of(tmp_path, f"targets: ['http://a:1']\n{text}")
    assert problem.startswith(expected)


@check_rows("name", RUNTIMES)
def test_any_built_in_table_can_be_started_from(tmp_path: Path, name: str) -> None:
    text = f"targets: [{{url: 'http://a:1', runtime: fork}}]\nruntimes:\n- {{name: fork, based_on: {name}}}\n"
    config = load_text(tmp_path, text)
    assert config.runtimes[0].rows == RUNTIMES[name].rows
    json.dumps(effective(config))


# --- what the rest of the configuration makes of it ------------------------------------------------------------------


def test_targets_their_defaults_and_discovered_ones_may_name_it(tmp_path: Path) -> None:
    text = f"target_defaults: {{runtime: acme}}\ntargets: ['http://a:1', {{url: 'http://b:1', runtime: auto}}]\n{ACME}"
    assert [target.runtime for target in load_text(tmp_path, text).targets] == ["acme", None]
    (tmp_path / "sd.yml").write_text("- {targets: ['c:1'], labels: {runtime: acme}}\n")
    config = load_text(tmp_path, f"file_sd: [{{files: [sd.yml]}}]\n{ACME}")
    names = [*RUNTIMES, *(table.name for table in config.runtimes)]
    (found,) = SectionFiles(config.discovery[0], Host("pod-7", "pod-7")).read(names).sources
    assert [target.runtime for target in found.targets or ()] == ["acme"]
    (refused,) = SectionFiles(config.discovery[0], Host("pod-7", "pod-7")).read().sources
    assert '"acme" is not a runtime' in str(refused.problems[0])


def test_a_target_may_name_a_table_that_has_problems(tmp_path: Path) -> None:
    text = "targets: [{url: 'http://a:1', runtime: acme}]\nruntimes: [{name: acme, prefixes: [acme_], rows: [{field: x, samples: y}]}]\n"
    assert [problem.split(":")[0] for problem in problems_of(tmp_path, text)] == [
        "runtimes[0].prefixes",
        "runtimes[0].rows[0].field",
    ]


def test_the_effective_configuration_and_its_hash_cover_it(tmp_path: Path) -> None:
    text = f"targets: ['http://a:1']\n{ACME}"
    config = load_text(tmp_path, text)
    shown = json.loads(json.dumps(effective(config)))
    assert shown["runtimes"][0]["rows"][0]["samples"] == ["acme_tokens_total"]
    assert load_text(tmp_path, text).config_hash == config.config_hash
    assert load_text(tmp_path, text.replace("acme_running}", "acme_run}")).config_hash != config.config_hash
    fork = f"{text}- {{name: fork, based_on: vllm, fingerprints: fork_x}}\n"
    shown = effective(load_text(tmp_path, fork))["runtimes"][1]
    assert shown["endpoints"][0]["read"].isidentifier()
    assert load_text(tmp_path, fork).config_hash == load_text(tmp_path, fork).config_hash


@check_rows(
    ("text", "expected"),
    [
        (ACME, []),
        (
            ACME.replace("  - {field: requests_running, samples: acme_running}\n", ""),
            ["runtimes[0]: no row reads requests_running: batch utilisation and the limiter stay absent"],
        ),
        (
            "runtimes: [{name: acme, prefixes: [acme_], fingerprints: acme_a, rows: [{field: kv_cache_usage_ratio, samples: acme_kv}]}]",
            [
                "runtimes[0]: no row reads requests_running or decode_tokens_total or prefill_tokens_total or requests_waiting: "
                "nothing on its page counts as an engine"
            ],
        ),
        (  # an embedding server, say
            "runtimes: [{name: acme, prefixes: [acme_], fingerprints: acme_a, rows: [{field: requests_waiting, samples: acme_w}]}]",
            [
                "runtimes[0]: no row reads decode_tokens_total: decode throughput, the limiter and every rate of generated tokens "
                "stay absent",
                "runtimes[0]: no row reads requests_running: batch utilisation and the limiter stay absent",
            ],
        ),
        (
            ACME.replace("  fingerprints: acme_tokens_total\n", ""),
            ["runtimes[0]: not used: it has no fingerprints to be recognised by, and no target has runtime: acme"],
        ),
        (
            ACME.replace("fingerprints: acme_tokens_total", "fingerprints: [acme_a, 'vllm:generation_tokens']"),
            ["runtimes[0].fingerprints[1]: vLLM has it too: its pages will be read by this table"],
        ),
    ],
)
def test_what_is_odd_is_a_warning(tmp_path: Path, text: str, expected: list[str]) -> None:
    config = load_text(
        tmp_path, f"targets: ['http://a:1']\n{text}", runtimes={"vllm": RUNTIMES["vllm"], "tgi": RUNTIMES["tgi"]}
    )
    assert list(config.warnings) == [f"{tmp_path / 'config.yml'}: {warning}" for warning in expected]


def test_thresholds_are_held_against_the_buckets_of_the_runtimes_that_targets_have(tmp_path: Path) -> None:
    edges = ACME.replace("  fingerprints", "  title: ACME Serve\n  default_edges: {ttft: [1, 2]}\n  fingerprints")
    text = f"targets: ['http://a:1', {{url: 'http://b:1', runtime: acme}}]\nslo: {{ttft: 1500ms}}\n{edges}"
    between = (
        "slo.ttft: 1.5 s lies between the bucket edges {} of {}'s histogram: requests count as good up to 1 s (strict)"
    )
    assert load_text(tmp_path, text).warnings == (between.format("1 s and 2 s", "ACME Serve"),)
    both = text.replace("'http://a:1',", "{url: 'http://a:1', runtime: vllm},")
    assert load_text(tmp_path, both).warnings == (
        between.format("1 s and 2.5 s", "vLLM"),
        between.format("1 s and 2 s", "ACME Serve"),
    )
    unsaid = text.replace(", runtime: acme", "")
    assert load_text(tmp_path, unsaid).warnings == (between.format("1 s and 2.5 s", "vLLM"),)
    discovered = f"file_sd: [{{files: [sd.yml], defaults: {{runtime: acme}}}}]\nslo: {{ttft: 1500ms}}\n{edges}"
    assert load_text(tmp_path, discovered).warnings == (between.format("1 s and 2 s", "ACME Serve"),)


# --- pages -----------------------------------------------------------------------------------------------------------


def test_its_pages_are_recognised_and_read(tmp_path: Path) -> None:
    found = readings([{"/metrics": PAGE}], runtimes=tables(tmp_path, ACME))[0]
    assert (found.page.up, found.server.runtime) == (True, "acme")
    (engine,) = found.page.snapshot.engines
    assert (engine.decode_tokens_total, engine.requests_running, engine.requests_waiting) == (640.0, 3.0, None)
    assert readings([{"/metrics": PAGE}])[0].page.up is False


def test_a_class_of_statuses_is_renamed_where_a_status_is_not(tmp_path: Path) -> None:
    row = "  - {field: requests_finished_total, samples: acme_done, by: code, rename: {2xx: success, 4xx: '', '499': abort}}"
    codes = {"200": 1, "299": 2, "404": 4, "499": 8, "503": 16, "4xx": 32, "40": 64, "４04": 128}
    page_of = (
        PAGE + "# TYPE acme_done counter\n" + "".join(f'acme_done{{code="{code}"}} {n}\n' for code, n in codes.items())
    )
    found = readings([{"/metrics": page_of}], runtimes=tables(tmp_path, f"{ACME}{row}"))[0]
    finished = found.page.snapshot.engines[0].requests_finished_total
    assert finished == {"success": 3.0, "abort": 8.0, "503": 16.0, "40": 64.0, "４04": 128.0}


def test_a_series_that_fits_all_patterns_of_one_mapping_is_no_users(tmp_path: Path) -> None:
    text = ACME.replace("- name: acme", '- name: acme\n  not_users: [{agent: "probe/.*", route: /up}]')
    series = ('agent="probe/1",route="/up"', 'agent="probe/1",route="/chat"', 'agent="curl",route="/up"')
    counted = "".join(f"acme_tokens_total{{{labels}}} {10**place}\n" for place, labels in enumerate(series))
    page_of = f"# TYPE acme_tokens_total counter\n{counted}# TYPE acme_running gauge\nacme_running 3\n"
    found = readings([{"/metrics": page_of}], runtimes=tables(tmp_path, text))[0]
    assert found.page.snapshot.engines[0].decode_tokens_total == 110.0


def test_a_label_may_be_what_tells_it(tmp_path: Path) -> None:
    """Labels of samples that detection looks at are kept for the configuration's fingerprints too."""
    marked = ACME.replace("acme_tokens_total\n", "{all_of: [{name: acme_info, label: build}]}\n", 1)
    own = tables(tmp_path, marked)
    named = f'{PAGE}# TYPE acme_info gauge\nacme_info{{build="7"}} 1\n'
    assert readings([{"/metrics": named}], runtimes=own)[0].server.runtime == "acme"
    other = named.replace("build=", "version=")
    assert readings([{"/metrics": other}], runtimes=own)[0].page.up is False


def test_without_fingerprints_only_the_setting_makes_a_page_its(tmp_path: Path) -> None:
    own = tables(tmp_path, ACME.replace("  fingerprints: acme_tokens_total\n", ""))
    unread = readings([{"/metrics": PAGE}], runtimes=own)[0]
    assert unread.page.last.reason is FailureReason.UNKNOWN_RUNTIME
    assert readings([{"/metrics": PAGE}], runtimes=own, runtime="acme")[0].page.up is True


def test_a_fork_that_kept_its_engines_names_is_told_from_it(tmp_path: Path) -> None:
    (fork,) = tables(
        tmp_path,
        """
runtimes:
- name: fork
  based_on: vllm
  fingerprints: fork_build_info
  rows: [{field: kv_cache_usage_ratio, samples: fork_kv_used}]
""",
    )
    vllm = page("vllm-0.32", 60).decode()
    own = f"{vllm}# TYPE fork_build_info gauge\nfork_build_info 1\n# TYPE fork_kv_used gauge\nfork_kv_used 0.25\n"
    readings_of = [readings([{"/metrics": text}], runtimes=[fork])[0] for text in (vllm, own)]
    assert [found.server.runtime for found in readings_of] == ["vllm", "fork"]
    engines = [found.page.snapshot.engines[0] for found in readings_of if found.page.snapshot is not None]
    assert engines[1].decode_tokens_total == engines[0].decode_tokens_total
    assert engines[1].kv_cache_usage_ratio == 0.25


def test_a_fork_that_renamed_everything_needs_no_row(tmp_path: Path) -> None:
    text = (
        'runtimes:\n- {name: fork, based_on: vllm, fingerprints: fork_generation_tokens, respelt: {"vllm:": fork_}}\n'
    )
    own = tables(tmp_path, text)
    vllm = page("vllm-0.32", 60)
    found = readings([{"/metrics": vllm.replace(b"vllm:", b"fork_")}], runtimes=own)[0]
    plain = readings([{"/metrics": vllm}], runtimes=own)[0]
    assert (found.server.runtime, plain.server.runtime) == ("fork", "vllm")
    assert found.page.snapshot.engines == plain.page.snapshot.engines


def test_what_a_row_lacks_on_the_page_says_so(tmp_path: Path) -> None:
    found = readings([{"/metrics": PAGE.split("# TYPE acme_running")[0]}], runtimes=tables(tmp_path, ACME))[0]
    assert found.page.snapshot.absent["requests_running"] is Absence.NOT_EXPORTED


# --- anything --------------------------------------------------------------------------------------------------------

_words = st.sampled_from(
    [*RUNTIME_KEYS, *ROW_KEYS, "vllm", "acme", "histogram", "decode_tokens_total", "acme_x", 'acme{a="b"}', "", "slow"]
)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _words, st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_words, inner, max_size=6)),
    max_leaves=10,
)


@pytest.mark.hypothesis
def test_anything_is_tables_or_problems(tmp_path: Path) -> None:
    given_any = given(
        rows=st.lists(st.dictionaries(st.sampled_from(ROW_KEYS), _values, max_size=6), max_size=3),
        rest=st.dictionaries(_words, _values, max_size=6),
    )
    given_any(lambda rows, rest: read_anything(tmp_path, rows, rest))()


def read_anything(folder: Path, rows: object, rest: dict[str, object]) -> None:
    text = yaml.safe_dump({"targets": ["http://a:1"], "runtimes": [{**rest, "rows": rows}]})
    try:
        config = load_text(folder, text)
    except ConfigError as caught:
        problems = caught.problems
    else:
        problems = ()
        json.dumps(effective(config))
    # a problem has its place below the table, and what to do
    assert all(problem.path.startswith("runtimes[0]") and problem.what for problem in problems)


# --- docs/mapping.md: the example works as it is told there, and the tables have every key ---


DOCUMENT = (ROOT / "docs/mapping.md").read_text()
DOCUMENTED_PAGE, LATER = (dedent(block) for block in re.findall(r"```text\n(.*?)```", DOCUMENT, re.DOTALL))
CONFIG, BROKEN, FORK = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
CHECKED, ONCE, ERRORS = re.findall(r"```console\n(.*?)```", DOCUMENT, re.DOTALL)


def moved_on() -> str:
    """The page with its later lines in the places of those of the same series."""
    later = {line.rpartition(" ")[0]: line for line in LATER.splitlines()}
    lines = DOCUMENTED_PAGE.splitlines()
    assert later.keys() <= {line.rpartition(" ")[0] for line in lines}
    return "".join(f"{later.get(line.rpartition(' ')[0], line)}\n" for line in lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_config_says_what_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "exporter.yml").write_text(CONFIG)
    assert main(["check-config", "--config.file", "exporter.yml"]) == 0
    said = capsys.readouterr()
    assert said.out == CHECKED
    assert said.err == ""


def test_once_says_what_the_page_says(folder: Path) -> None:
    config = load_text(folder, CONFIG)
    with Replica() as server:
        steps = [{"/metrics": DOCUMENTED_PAGE}, {"/metrics": moved_on()}]
        found = readings(steps, seconds=5.0, runtimes=config.runtimes, replica=server)
        table = as_table(found[-1]).replace(server.url, config.targets[0].url)
    assert table.replace("replica-0:", f"{config.targets[0].name}:", 1).startswith(ONCE)


def test_the_figures_are_those_of_the_page(folder: Path) -> None:
    found = readings([{"/metrics": DOCUMENTED_PAGE}], runtimes=load_text(folder, CONFIG).runtimes)[0]
    (engine,) = found.page.snapshot.engines
    assert (engine.model_name, engine.engine) == ("tiny", "0")
    # 52,000 prompt tokens, 12,000 of them from the cache; 480 of 480 + 1,568 blocks of 16 tokens
    assert (engine.prompt_tokens_total, engine.prefill_tokens_total) == (52_000.0, 40_000.0)
    assert (engine.kv_cache_usage_ratio, engine.kv_cache_capacity_tokens) == (480 / 2048, 32_768.0)
    assert engine.requests_finished_total == {"success": 240.0, "abort": 3.0}
    assert engine.batch_limit_requests == 8.0
    histogram = engine.time_to_first_token_seconds
    assert (histogram.edges, histogram.sum) == ((0.1, 1.0, 2.5), 48.0)
    assert found.page.snapshot.process_start_unix_seconds == 1_795_140_000.0
    assert found.page.snapshot.unmapped_families == ()


def test_the_mistakes_are_those_of_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "exporter.yml").write_text(BROKEN)
    assert main(["check-config", "--config.file", "exporter.yml"]) == 2
    assert capsys.readouterr().err == ERRORS


def test_the_fork_loads(folder: Path) -> None:
    config = load_text(folder, f"targets: ['http://a:1']\n{FORK}")
    assert [table.name for table in config.runtimes] == ["vllm-house"]
    assert config.warnings == ()


def keys_of(section: str) -> set[str]:
    rows = re.findall(r"^\| (`[^|]+`) \|", DOCUMENT.split(f"## {section}\n")[1].split("\n## ")[0], re.MULTILINE)
    return {key.strip("`") for cell in rows for key in cell.split(", ")}


def test_the_page_has_every_key() -> None:
    assert keys_of("A runtime") == set(RUNTIME_KEYS)
    assert keys_of("A row") == set(ROW_KEYS)


def test_the_page_has_every_hook() -> None:
    (row,) = re.findall(r"^\| `hooks` \|(.*)\|$", DOCUMENT, re.MULTILINE)
    assert tuple(re.findall(r"`([a-z0-9-]+)`", row)) == tuple(HOOKS)


def test_the_page_has_every_field() -> None:
    fields = DOCUMENT.split("**Counters**")[1].split("\n\n")[0]
    listed = re.findall(r"`([a-z0-9_]+)`", fields)
    assert sorted(listed) == sorted(FIELDS)
    kinds = [set(re.findall(r"`([a-z0-9_]+)`", part)) for part in re.split(r"\*\*|METRICS.md", fields)]
    groups = [COUNTER_FIELDS, LABELLED_COUNTER_FIELDS, HISTOGRAM_FIELDS, GAUGE_FIELDS]
    assert [set(group) for group in groups] == [found for found in kinds if found][:4]


# --- tables that are based on a built-in one: what its rows and endpoints excuse ---


FORKED = "targets: ['http://a:1']\nruntimes:\n- name: fork\n  based_on: {}\n  fingerprints: fork_x\n  rows: [{}]\n"
GUARDED = "{field: preemptions_total, samples: fork_preempted, versions: '>=2', guarded: true}"


def test_a_row_may_wait_for_a_version_that_the_bases_endpoints_say(tmp_path: Path) -> None:
    (table,) = load_text(tmp_path, FORKED.format("vllm", GUARDED)).runtimes
    assert table.rows[0] == Row("preemptions_total", ("fork_preempted",), versions=">=2", guarded=True)
    assert RUNTIMES["nim"].endpoints == ()  # nobody would ever say it
    assert [problem.split(":")[0] for problem in problems_of(tmp_path, FORKED.format("nim", GUARDED))] == [
        "runtimes[0].rows[0].guarded"
    ]


def test_a_row_that_the_base_has_too_is_no_fault_of_either(tmp_path: Path) -> None:
    repeated = "{field: requests_waiting, samples: tgi_queue_size}"
    (table,) = load_text(tmp_path, FORKED.format("tgi", repeated)).runtimes
    assert table.rows == (Row("requests_waiting", ("tgi_queue_size",)), *RUNTIMES["tgi"].rows)
    # but one that the file has twice is
    assert [
        problem.split(":")[0] for problem in problems_of(tmp_path, FORKED.format("tgi", f"{repeated}, {repeated}"))
    ] == ["runtimes[0].rows[1]"]
