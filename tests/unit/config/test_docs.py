"""The page about the configuration and the example say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llm_serving_exporter.config.groups import LABELS
from llm_serving_exporter.config.options import OPTIONS, Option
from llm_serving_exporter.config.target import SETTING_KEYS
from llm_serving_exporter.model.target import Secret
from tests.support.builders.configuration import load_flags, load_text
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/configuration.md").read_text()
EXAMPLE = ROOT / "deploy/llm-serving-exporter.example.yml"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_page_has_the_row_of_every_option(option: Option) -> None:
    in_lists = {"target": "`targets`", "file-sd": "`file_sd`", "config.file": "–"}
    yaml = f"`{'.'.join(option.keys)}`" if option.in_file else in_lists[option.name]
    default = f"`{option.default}`" if option.default else "–"
    assert f"| `{option.flag}` | {yaml} | {default} | {option.help} |\n" in PAGE


def test_the_page_has_no_option_that_there_is_not() -> None:
    assert set(re.findall(r"^\| `(--[^`]+)`", PAGE, re.MULTILINE)) == {option.flag for option in OPTIONS}


def test_the_page_has_every_key_of_a_target_and_every_label() -> None:
    table = PAGE.split("## Targets")[1].split("**Names.**")[0]
    keys = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    assert {key.strip("`") for cell in keys for key in cell.split(", ")} == {"name", "url", *SETTING_KEYS}
    labels = PAGE.split("Labels with a meaning here:")[1].split("A label wins")[0]
    assert set(re.findall(r"`([^`]+)`", labels)) == LABELS


def test_the_yaml_of_the_page_loads(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    loaded = [
        load_text(tmp_path, block, "--target", "a:1")
        for block in blocks
        if block.startswith(("dcgm:", "file_sd:", "expected_replicas:", "runtimes:", "drill:"))
    ]
    found = [
        (
            config.dcgm is not None,
            len(config.runtimes),
            len(config.discovery),
            len(config.expected_replicas),
            config.drill_result_file,
        )
        for config in loaded
    ]
    assert found == [
        (True, 0, 0, 0, None),
        (False, 1, 0, 0, None),
        (False, 0, 1, 0, None),
        (False, 0, 0, 1, None),
        (False, 0, 0, 0, "/var/lib/llm-serving-exporter/drills.json"),
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
    assert block is not None
    config = load_text(tmp_path, re.sub("^# ", "", block[0], flags=re.MULTILINE), "--target", "a:1")
    assert config.dcgm is not None
    assert (config.dcgm.url, config.dcgm.interval_seconds) == ("http://localhost:9400", 30.0)
    assert config.dcgm.http.bearer_token == Secret(file=str(tmp_path / "token"))


def test_the_example_shows_every_key_of_the_process() -> None:
    text = EXAMPLE.read_text()
    for option in OPTIONS:
        if option.in_file and option.name != "state-file":
            assert re.search(rf"^ *(# +)?{option.keys[-1]}:", text, re.MULTILINE), option.name
