"""The page about the configuration and the example say what the code does."""

import re
from pathlib import Path

import pytest

from llm_serving_exporter.docgen.generate import configuration_md
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.target import Identity, Secret
from llm_serving_exporter.settings.keys import Key
from llm_serving_exporter.settings.sources import OPTIONS
from llm_serving_exporter.settings.target_keys import TARGET_KEYS, TargetSettings
from llm_serving_exporter.settings.targets import CARRIED, GROUP_LABELS
from tests.support.builders.configuration import load_flags, load_text
from tests.support.paths import ROOT
from tests.support.rows import check_rows

PAGE = (ROOT / "docs/configuration.md").read_text()
EXAMPLE = ROOT / "deploy/llm-serving-exporter.example.yml"


def test_the_tables_of_the_page_are_those_of_the_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert configuration_md() == PAGE
    assert set(re.findall(r"^\| `(--[^`]+)`", PAGE, re.MULTILINE)) == {option.flag for option in OPTIONS}
    keys = {key.name for key in TARGET_KEYS.values()}
    assert (
        set(re.findall(r"^\| `([a-z_]+)` \|", PAGE.split("## Targets")[1].split("**Names.**")[0], re.MULTILINE)) == keys
    )
    assert all(f"`{label}`" in PAGE.split("## Discovery by file")[1] for label in GROUP_LABELS)


def test_a_page_without_a_mark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/configuration.md").write_text(PAGE.replace("<!-- end of options -->", ""))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="<!-- end of options --> must be there once"):
        configuration_md()


@check_rows("key", [*OPTIONS, *TARGET_KEYS.values()], ids=lambda key: key.name)
def test_every_key_says_what_it_means(key: Key) -> None:
    assert re.match(r".{10,}[.]$", key.help)


def test_every_setting_of_a_target_ends_up_in_it() -> None:
    """What is not carried over as it is, `build_target`, the target's identity and the reader of targets take by name."""
    taken = {"address", "name", "node", "nodes", "timeout_seconds", "max_body_bytes", "auth", "headers", "tls"}
    identity = {*name_fields(Identity)} - {"pod_uid"}
    assert {*name_fields(TargetSettings)} == CARRIED | taken | identity


def test_the_yaml_of_the_page_loads(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    loaded = [
        load_text(tmp_path, block, "--target", "a:1")
        for block in blocks
        if block.startswith(("dcgm:", "file_sd:", "http_sd:", "expected_replicas:", "drill:", "target_labels:"))
    ]
    found = [
        (
            config.dcgm is not None, len(config.runtimes), len(config.discovery), len(config.expected_replicas),
            config.drill_result_file, config.target_labels,
        )
        for config in loaded
    ]  # fmt: skip
    assert found == [
        (False, 0, 0, 0, None, ("namespace", "team")),
        (True, 0, 0, 0, None, ()),
        (False, 0, 1, 0, None, ()),
        (False, 0, 1, 0, None, ()),
        (False, 0, 0, 2, None, ()),
        (False, 0, 0, 0, "/var/lib/llm-serving-exporter/drills.json", ()),
    ]


def test_the_example_loads_and_sets_what_it_shows() -> None:
    config = load_flags("--config.file", str(EXAMPLE))
    assert [target.name for target in config.targets] == ["pod-7:8000", "chat-decode-0"]
    assert config.targets[1].http.bearer_token.file == "/etc/llm-serving-exporter/token"
    assert config.discovery[0].files[0] == str(EXAMPLE.parent / "targets.d/*.yml")
    assert config.expected_replicas[0].replicas == 2
    assert all("cannot be read (yet)" in warning for warning in config.warnings)


def test_the_example_of_dcgm_loads_without_its_comment_marks(tmp_path: Path) -> None:
    block = re.search(r"^# dcgm:\n(#   .*\n)+", EXAMPLE.read_text(), re.MULTILINE)
    config = load_text(tmp_path, re.sub("^# ", "", block[0], flags=re.MULTILINE), "--target", "a:1")
    assert (config.dcgm.url, config.dcgm.interval_seconds) == ("http://localhost:9400", 30.0)
    assert config.dcgm.http.bearer_token == Secret(file=str(tmp_path / "token"))
