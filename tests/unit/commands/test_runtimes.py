"""Command `runtimes`: what it prints can be used, as it stands and with a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from tests.support.builders.configuration import load_text
from tests.support.builders.recordings import page
from tests.support.servers.replica import readings

Said = pytest.CaptureFixture[str]
TARGETS = "targets: ['http://a:1']\n"


def show(name: str, capsys: Said) -> str:
    assert main(["runtimes", "--show", name]) == 0
    return capsys.readouterr().out


def running_of(found: TargetReading) -> float | None:
    assert found.page.snapshot is not None
    (engine,) = found.page.snapshot.engines
    return engine.requests_running


@pytest.mark.parametrize("name", RUNTIMES)
def test_what_is_printed_reads_as_the_built_in_table_does(name: str, tmp_path: Path, capsys: Said) -> None:
    (table,) = load_text(tmp_path, f"{TARGETS}{show(name, capsys)}").runtimes
    assert table == replace(RUNTIMES[name], name=f"own-{name}")


def test_a_changed_line_is_used(tmp_path: Path, capsys: Said) -> None:
    """A vLLM whose gauge of running requests has another name, over HTTP."""
    renamed = page("vllm-0.32", 60).replace(b"vllm:num_requests_running", b"vllm:requests_in_batch")
    printed = show("vllm", capsys)
    changed = printed.replace("samples: vllm:num_requests_running\n", "samples: vllm:requests_in_batch\n")
    assert changed != printed
    own = load_text(tmp_path, TARGETS + changed).runtimes
    built_in, found = (readings([{"/metrics": renamed}], runtimes=tables)[0] for tables in ((), own))
    as_it_was = readings([{"/metrics": page("vllm-0.32", 60)}])[0]
    assert (built_in.server.runtime, found.server.runtime) == ("vllm", "own-vllm")
    assert running_of(built_in) is None
    assert running_of(found) == running_of(as_it_was) is not None
    assert found.page.snapshot is not None
    assert as_it_was.page.snapshot is not None
    assert found.page.snapshot.engines == as_it_was.page.snapshot.engines


def test_the_list_has_every_table(capsys: Said) -> None:
    assert main(["runtimes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RUNTIMES)
    assert lines[0].split() == ["vllm", "vLLM", RUNTIMES["vllm"].versions]


def test_a_name_that_is_none_gets_the_nearest(capsys: Said) -> None:
    assert main(["runtimes", "--show", "vlm"]) == 2
    assert capsys.readouterr().err == 'error: flag --show: there is no table "vlm". Did you mean vllm?\n'
