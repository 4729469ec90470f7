"""docs/discovery.md: its commands run as they stand, and print what it says."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PREFIX
from llm_serving_exporter.discovery.sections import HANDOVER_SECONDS, LONGEST_WAIT_SECONDS
from llm_serving_exporter.model.target import Shard
from tests.support.builders.configuration import load_flags
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

PAGE = (ROOT / "docs/discovery.md").read_text()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.e2e
def test_its_commands_print_what_it_shows(tmp_path: Path) -> None:
    examples = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 3
    (tmp_path / "bin").mkdir()
    for name, words in (("python3", ""), ("llm-serving-exporter", "-m llm_serving_exporter")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    for script, expected in examples:
        done = subprocess.run(
            ["bash", "-ec", script.replace("8099", str(free_port()))],
            env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_statefulset_gives_each_pod_its_shard() -> None:
    (block,) = re.findall(r"```yaml\n(apiVersion.*?)```", PAGE, re.DOTALL)
    spec = load_yaml(block)["spec"]
    flags = [word for word in spec["template"]["spec"]["containers"][0]["args"] if word.startswith("--shard")]
    pods = [f"exporter-{ordinal}" for ordinal in range(spec["replicas"])]
    found = [load_flags("--target", "a:1", *flags, host_name=pod).shard for pod in pods]
    assert found == [Shard(number, 4) for number in (1, 2, 3, 4)]


def test_its_numbers_and_series_are_those_of_the_code() -> None:
    assert f"wait up to {LONGEST_WAIT_SECONDS:g} seconds" in PAGE
    assert f"old part for {HANDOVER_SECONDS:g} seconds" in PAGE
    series = set(re.findall(rf"\b{PREFIX}(\w+)", PAGE))
    assert series == {"exporter_discovery_failures_total", "exporter_targets", "exporter_shard_held"}
    assert series <= set(BY_NAME)
