"""Prometheus file_sd files: real files in a real folder, written, broken, repaired and removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.discovery import section as listed
from llm_serving_exporter.discovery.prometheus_sd import SectionFiles
from llm_serving_exporter.discovery.section import MOST_KNOWN_TARGETS, SectionReading, Source
from llm_serving_exporter.discovery.sections import merge_targets
from llm_serving_exporter.model.target import Identity, Role, Target
from llm_serving_exporter.settings.discovery import FileDiscovery
from llm_serving_exporter.settings.document import LARGEST_FILE_BYTES
from llm_serving_exporter.settings.options import Host
from tests.support.builders.configuration import load_text, problems_of
from tests.support.quick import keep_quick
from tests.support.rows import check_rows


def discovery(folder: Path, *patterns: str, defaults: str = "{}") -> FileDiscovery:
    patterns = patterns or ("sd/*.yml", "sd/*.json")
    (folder / "sd").mkdir(exist_ok=True)
    text = f"file_sd: [{{files: {json.dumps(patterns)}, defaults: {defaults}}}]\n"
    return load_text(folder, text).discovery[0]


def files_of(found: FileDiscovery) -> SectionFiles:
    return SectionFiles(found, Host("pod-7", "gpu-node-3"))


def read(found: FileDiscovery) -> SectionReading:
    return files_of(found).read()


def read_file(folder: Path, text: str, defaults: str = "{}") -> Source:
    """What sd/a.yml says, which has this text."""
    setup = discovery(folder, "sd/a.yml", defaults=defaults)
    (folder / "sd/a.yml").write_text(text)
    (file,) = read(setup).sources
    return file


def urls(found: SectionReading) -> list[str]:
    return [target.url for file in found.sources for target in file.targets or ()]


def messages(found: SectionReading) -> list[str]:
    return [str(problem) for file in found.sources for problem in file.problems]


def test_a_label_may_hold_the_query_of_a_metrics_path(tmp_path: Path) -> None:
    file = read_file(tmp_path, '- {targets: ["gpu-1:8080"], labels: {__metrics_path__: "/metrics?model=m"}}\n')
    assert [target.metrics_path for target in file.targets or ()] == ["/metrics?model=m&autoload=false"]


def test_labels_of_a_layout(tmp_path: Path) -> None:
    """Ranks with pages of their own: the size of their replica, and that they share experts."""
    file = read_file(
        tmp_path,
        """
- targets: ["rank-0:8000", "rank-1:8000"]
  labels: {group: r1-0, tensor_parallel_size: "1", data_parallel_size: "16", experts_shared: "true", decode_context_parallel_size: "2"}
- targets: ["copy-0:8000"]
  labels: {data_parallel_size: "2", experts_shared: "false"}
""",
    )
    assert file.problems == ()
    told = [
        (one.group, one.data_parallel_size, one.experts_shared, one.decode_context_parallel_size)
        for one in file.targets or ()
    ]
    assert told == [("r1-0", 16, True, 2), ("r1-0", 16, True, 2), ("", 2, False, None)]


def test_a_group_with_every_label(tmp_path: Path) -> None:
    labels = """
- targets: ["gpu-1:8443"]
  labels: {__scheme__: https, __metrics_path__: /m, __meta_kubernetes_pod_name: x, name: chat-0, runtime: vllm, model_name: m, role: decode,
    group: "7", node: gpu-1, gpu_count: "8", batch_limit_requests: 256, context_limit_tokens: "4096"}
"""
    file = read_file(tmp_path, labels, defaults="{group: blue, interval: 10s, headers: {X-A: a}}")
    assert (file.problems, file.warnings) == ((), ())
    (target,) = file.targets
    assert target.http.headers == (("X-A", "a"),)
    assert target == Target(
        "chat-0", "https://gpu-1:8443", metrics_path="/m", runtime="vllm", model_name="m", role=Role.DECODE, group="7", nodes=("gpu-1",),
        gpu_count=8, batch_limit_requests=256, context_limit_tokens=4096, interval_seconds=10.0, http=target.http,
    )  # fmt: skip


def test_json_and_yaml_and_several_groups(tmp_path: Path) -> None:
    setup = discovery(tmp_path)
    (tmp_path / "sd/a.json").write_text(
        '[{"targets": ["a:1", "b:2"]}, {"targets": ["[::1]:3"], "labels": {"role": "prefill"}}]'
    )
    (tmp_path / "sd/b.yml").write_text("- targets: [c, 'd:4']\n- targets: []\n")
    found = read(setup)
    assert sorted(urls(found)) == ["http://[::1]:3", "http://a:1", "http://b:2", "http://c:80", "http://d:4"]
    local = next(target for file in found.sources for target in file.targets if target.url == "http://[::1]:3")
    assert (local.name, local.nodes, local.role) == ("pod-7:3", ("gpu-node-3",), "prefill")


def test_defaults_hold_where_a_label_is_missing_or_empty(tmp_path: Path) -> None:
    defaults = "{runtime: vllm, model_name: m, role: decode, node: n, gpu_count: 4}"
    (target,) = read_file(tmp_path, "- targets: ['a:1']\n  labels: {role: '', model_name: ''}\n", defaults).targets
    assert (target.runtime, target.model_name, target.role, target.nodes, target.gpu_count) == (
        "vllm", "m", "decode", ("n",), 4,
    )  # fmt: skip
    (target,) = read_file(tmp_path, "- targets: ['a:1']\n  labels: {runtime: auto}\n", defaults).targets
    assert target.runtime is None


def test_every_label_of_a_group_takes_effect(tmp_path: Path) -> None:
    labels = """
- targets: ["10.0.0.7:8000"]
  labels: {namespace: chat, pod: chat-0, container: vllm, node: n1, workload: chat, workload_kind: Deployment, provider_id: i-0,
    instance_type: p5, team: search, env: prod, empty: "", __meta_kubernetes_pod_uid: x}
- targets: ["10.0.0.8:8000"]
"""
    file = read_file(tmp_path, labels, "{namespace: prod, region: eu, labels: {team: ops, tier: gold}}")
    first, second = file.targets
    assert (first.name, first.nodes) == ("chat/chat-0:8000", ("n1",))
    own = (("env", "prod"), ("team", "search"), ("tier", "gold"))
    assert first.identity == Identity("chat", "chat-0", "", "vllm", "chat", "Deployment", "i-0", "eu", "p5", labels=own)
    assert second.name == "10.0.0.8:8000"
    assert second.identity == Identity("prod", region="eu", labels=(("team", "ops"), ("tier", "gold")))
    assert (file.problems, file.warnings) == ((), ())


def test_labels_that_a_target_cannot_have_are_left_out_and_named_once(tmp_path: Path) -> None:
    path = tmp_path / "sd/a.yml"
    labels = {"team": "x", "job": "vllm", "phase": "p", "app.kubernetes.io/name": "n", "long": "v" * 201, "__tmp": "t"}
    file = read_file(tmp_path, json.dumps([{"targets": [host], "labels": labels} for host in ("a:1", "b:1")]))
    assert [target.identity.labels for target in file.targets] == [(("team", "x"),)] * 2
    assert file.warnings == tuple(
        f"{path}: the label {name} is left out: {why}"
        for name, why in (
            ('"__tmp"', "labels that begin with __ are Prometheus' own. Choose another name."),
            (
                '"app.kubernetes.io/name"',
                "this is not the name of a label. Write at most 100 letters, digits and _, no digit first.",
            ),
            ('"job"', "Prometheus gives this label a meaning of its own. Choose another name."),
            ('"long"', "the label value has 201 characters. At most 200 are allowed."),
            ('"phase"', "series of the exporter have a label of that name. Choose another name."),
        )
    )


def test_a_target_has_at_most_32_labels_and_a_file_at_most_20_warnings(tmp_path: Path) -> None:
    many = {f"label_{number:03}": "x" for number in range(40)}
    file = read_file(tmp_path, json.dumps([{"targets": ["a:1"], "labels": many}]))
    assert [name for name, _ in file.targets[0].identity.labels] == sorted(many)[:32]
    assert file.warnings == (f"{file.name}: 8 labels are left out: a target has at most 32 of its own.",)
    wrong = {f"__{number:03}": "x" for number in range(40)}
    assert len(read_file(tmp_path, json.dumps([{"targets": ["a:1"], "labels": wrong}])).warnings) == 20


def test_a_local_target_of_a_file_is_in_the_sidecars_pod(tmp_path: Path) -> None:
    setup = discovery(tmp_path)
    (tmp_path / "sd/a.yml").write_text("- targets: ['localhost:8000', 'b:1']\n")
    host = Host("pod-7", "n1", "prod", "chat-0", "uid-1", "vllm")
    local, other = SectionFiles(setup, host).read().sources[0].targets
    assert (local.name, local.identity) == ("prod/chat-0:8000", Identity("prod", "chat-0", "uid-1", "vllm"))
    assert (other.name, other.identity) == ("b:1", Identity())


BROKEN = [
    ("", "the file is empty. Write [] if there are no targets."),
    ("targets: ['a:1']\n", "the file must be a list of {targets: […], labels: {…}}. Start each group with a dash."),
    ("- a:1\n", "[0]: must be a mapping {targets: […], labels: {…}}. Write targets: and labels:."),
    ("- labels: {role: decode}\n", '[0]: targets is missing. Write targets: ["host:8000"], or [] for none.'),
    ("- {targets: ['a:1'], label: {}}\n", "[0].label: this key is not known. Did you mean labels?"),
    (
        "- targets: a:1\n",
        "[0].targets: must be a list of addresses such as host:8000, not text. Start each element with a dash.",
    ),
    (
        "- targets: ['http://a:1']\n",
        '[0].targets[0]: "http://a:1" is not host:port. '
        "Set the scheme and the path by the labels __scheme__ and __metrics_path__.",
    ),
    (
        "- targets: ['http://u:hunter2@a:1']\n",
        "[0].targets[0]: this is not host:port. Set the scheme and the path by the labels __scheme__ and __metrics_path__.",
    ),
    ("- targets: ['a:0']\n", '[0].targets[0]: "http://a:0" has the port 0. Write one such as http://localhost:8000.'),
    ("- targets: [8000]\n", "[0].targets[0]: YAML reads this value as a number, not as text. Put it in double quotes."),
    (
        "- {targets: ['a:1', 'b:1'], labels: {name: x}}\n",
        "[0].labels.name: the group has several targets. A name is for a group of one target.",
    ),
    (
        "- {targets: ['a:1'], labels: {__param_x: y}}\n",
        "[0].labels.__param_x: query parameters are part of the path. Write __metrics_path__: /metrics?NAME=VALUE.",
    ),
    (
        "- {targets: ['a:1'], labels: {role: both}}\n",
        '[0].labels.role: "both" is not a role. Write unified, prefill, decode or frontend.',
    ),
    (
        "- {targets: ['a:1'], labels: {__scheme__: ftp}}\n",
        '[0].labels.__scheme__: "ftp" is not a scheme. Write http or https.',
    ),
    ("- {targets: ['a:1'], labels: {env: [x]}}\n", "[0].labels.env: must be a text. A label has a single value."),
    (
        "- {targets: ['a:1'], labels: x}\n",
        "[0].labels: must be a mapping (key: value), not text. Known here: model_name.",
    ),
    (
        "- {targets: ['a:1'], labels: {gpu_count: '0'}}\n",
        "[0].labels.gpu_count: 0 is out of range. Write a whole number from 1 to 65536.",
    ),
    ("[" * 100_000, "line 1 is nested more than 32 levels deep. No setting is that deep."),
]


@check_rows(("text", "expected"), BROKEN)
def test_a_broken_file_says_why_and_keeps_its_last_good_targets(tmp_path: Path, text: str, expected: str) -> None:
    setup = discovery(tmp_path)
    path = tmp_path / "sd/a.yml"
    path.write_text("- targets: ['good:1']\n")
    files = files_of(setup)
    assert urls(files.read()) == ["http://good:1"]
    path.write_text(text)
    for _ in range(2):
        kept = files.read()
        assert messages(kept) == [f"{path}: {expected}"]
        assert urls(kept) == ["http://good:1"]
    path.write_text("- targets: ['new:1']\n")
    repaired = files.read()
    assert urls(repaired) == ["http://new:1"]
    assert messages(repaired) == []


def test_a_file_that_is_broken_from_the_start_has_no_targets(tmp_path: Path) -> None:
    broken = read_file(tmp_path, "{")
    assert broken.targets is None
    assert len(broken.problems) == 1


def test_the_targets_of_a_removed_file_are_gone(tmp_path: Path) -> None:
    setup = discovery(tmp_path)
    path = tmp_path / "sd/a.yml"
    path.write_text("- targets: ['good:1']\n")
    files = files_of(setup)
    assert urls(files.read()) == ["http://good:1"]
    path.unlink()
    assert files.have_changed()
    assert urls(files.read()) == []


def test_a_named_file_that_is_missing_is_reported_a_glob_without_files_is_not(tmp_path: Path) -> None:
    named = read(discovery(tmp_path, "sd/a.yml"))
    assert [str(problem) for problem in named.problems] == [
        f"{tmp_path}/sd/a.yml: the file does not exist (yet). Check file_sd, or write the file."
    ]
    assert read(discovery(tmp_path, "sd/*.yml", "nowhere/*.yml")).problems == ()


def test_the_files_have_changed_when_one_of_them_did_and_only_then(tmp_path: Path) -> None:
    path, other = tmp_path / "sd/a.yml", tmp_path / "other"
    files = files_of(discovery(tmp_path))
    assert files.have_changed()

    def changed() -> bool:
        """Whether they have; then they are read."""
        found = files.have_changed()
        files.read()
        assert not files.have_changed()
        return found

    files.read()
    path.write_text("- targets: ['a:1']\n")
    assert changed()
    path.write_text("- targets: ['a:1', 'b:1']\n")
    assert changed()
    # another file of the same size and time under the same name, as an atomic rename makes it
    status = path.stat()
    other.write_text("- targets: ['a:1', 'c:1']\n")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)
    assert changed()
    path.chmod(0o600)  # a file that could not be read may be readable now
    assert changed()
    # a ConfigMap is swapped by a link
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    assert changed()


def test_a_glob_takes_files_of_one_folder_in_order_without_hidden_ones(tmp_path: Path) -> None:
    setup = discovery(tmp_path, "sd/*.yml", "sd/b.yml")
    for number, name in enumerate(("b.yml", "a.yml", ".c.yml", "d.txt", "e.yaml")):
        (tmp_path / "sd" / name).write_text(f"- targets: ['h{number}:1']\n")
    (tmp_path / "sd/sub").mkdir()
    (tmp_path / "sd/sub/f.yml").write_text("- targets: ['sub:1']\n")
    assert urls(read(setup)) == ["http://h1:1", "http://h0:1"]


def test_a_folder_that_looks_like_a_file_is_a_problem(tmp_path: Path) -> None:
    setup = discovery(tmp_path)
    (tmp_path / "sd/a.yml").mkdir()
    assert messages(read(setup)) == [f"{tmp_path}/sd/a.yml: this is a folder. Give the path of a file."]


def test_merging_keeps_the_first_of_each_server_and_name(tmp_path: Path) -> None:
    setup = discovery(tmp_path)
    configured = load_text(tmp_path, "targets: ['http://a:1', {name: x, url: 'http://b:1'}]\n").targets
    (tmp_path / "sd/a.yml").write_text("- targets: ['a:1', 'c:1']\n- {targets: ['d:1'], labels: {name: x}}\n")
    (tmp_path / "sd/b.yml").write_text("- targets: ['c:1', 'e:1']\n")
    targets, problems = merge_targets(configured, [read(setup)])
    assert [target.name for target in targets] == ["a:1", "x", "c:1", "e:1"]
    assert [str(problem) for problem in problems] == [
        f"{tmp_path}/sd/a.yml: http://a:1 is already a target, the later one is left out. Remove one of them.",
        f'{tmp_path}/sd/a.yml: the name "x" is already taken by http://b:1, http://d:1 is left out. Give each target a name of its own.',
        f"{tmp_path}/sd/b.yml: http://c:1 is already a target, the later one is left out. Remove one of them.",
    ]


def test_one_pod_on_two_nodes_is_said(tmp_path: Path) -> None:
    setup = discovery(tmp_path)
    for number in (1, 2):
        labels = {"namespace": "prod", "pod": "chat-0", "node": f"n{number}"}
        (tmp_path / f"sd/{number}.json").write_text(
            json.dumps([{"targets": [f"10.0.0.{number}:80"], "labels": labels}])
        )
    targets, problems = merge_targets((), [read(setup)])
    assert [target.nodes for target in targets] == [("n1",)]
    assert [problem.what for problem in problems] == [
        'the name "prod/chat-0:80" is already taken by http://10.0.0.1:80 on n1, http://10.0.0.2:80 on n2 is left out'
    ]


def test_a_file_with_more_targets_than_one_exporter_reads_is_not_refused(tmp_path: Path) -> None:
    file = read_file(tmp_path, json.dumps([{"targets": [f"c{number}:1" for number in range(2001)]}]))
    assert (len(file.targets), file.problems) == (2001, ())


@pytest.mark.parametrize("most", keep_quick([1000, MOST_KNOWN_TARGETS], lambda most: most == 1000))
def test_a_file_with_more_targets_than_can_be_known_keeps_the_first_ones(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "MOST_KNOWN_TARGETS", most)
    setup = discovery(tmp_path)
    hosts = [f"h{number}" for number in range(most + 5)]
    text = json.dumps([{"targets": hosts}], separators=(",", ":"))
    assert len(text) < LARGEST_FILE_BYTES
    (tmp_path / "sd/a.json").write_text(text)
    found = read(setup)
    assert len(urls(found)) == most
    assert messages(found) == [f"{tmp_path}/sd/a.json: 5 targets beyond {most:,} are left out. Split the fleet."]


def test_no_more_than_1000_files(tmp_path: Path) -> None:
    setup = discovery(tmp_path)
    for number in range(1001):
        (tmp_path / f"sd/{number:04}.json").write_text("[]")
    found = read(setup)
    assert len(found.sources) == 1000
    assert [problem.what for problem in found.problems] == [
        "file_sd matches more than 1000 files, the rest is not read"
    ]


def test_patterns_are_checked_before_they_are_used(tmp_path: Path) -> None:
    assert len(problems_of(tmp_path, "file_sd: [{files: ['a/b', '*/b.yml', 'x.toml', 5]}]\n")) == 4


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["a:1", "decode", "https"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["targets", "labels", "role", "name", "node", "__scheme__", "__metrics_path__", "\ud800"]
                )
                | st.text(max_size=3),
                inner,
                max_size=3,
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_is_targets_or_problems(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(content))
    defaults = Target(name="", url="")
    (file,) = SectionFiles(FileDiscovery((str(path),), defaults), Host("pod-7", "pod-7")).read().sources
    assert (file.targets is None) == bool(file.problems)
    "".join(map(str, (*file.problems, *file.warnings))).encode()
    for target in file.targets or ():
        repr(target).encode()
