"""Archives of recorded runs: what is in them, and that packing is reproducible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llm_serving_simulator.replay import Recording
from tests.support.builders.recordings import names, page, recording
from tests.support.paths import ROOT
from tests.support.rows import check_rows

PACK = ROOT / "scripts" / "pack_recordings.py"


def test_the_main_recording_is_complete() -> None:
    run = recording("vllm-0.32")
    assert tuple(run.pages) == tuple(range(221))
    assert run.timestamps[0] == 1795147249.078
    assert run.failed == frozenset()
    assert run.json("endpoints/version.body") == {"version": "0.32.0"}
    assert {phase["phase"] for phase in run.json("client/phases.json")} > {"light", "saturated", "kv_pressure"}


def test_client_log_lies_apart() -> None:
    lines = recording("vllm-0.32-client").jsonl("client/client.jsonl")
    assert len(lines) == 802


def test_attempts_that_failed_are_known() -> None:
    run = recording("vllm-0.32-restart")
    assert run.failed == frozenset(range(23, 72))
    assert set(run.timestamps) == set(run.pages) | run.failed
    assert 23 not in run.pages


@check_rows("name", names)
def test_every_run_has_pages_of_whole_lines(name: str) -> None:
    run = recording(name)
    assert len(run.pages) >= 2
    numbers = list(run.pages)
    assert numbers == sorted(numbers)
    for number in (numbers[0], numbers[-1]):
        assert page(name, number).endswith(b"\n")


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(KeyError, match=r"no recording 'vllm-9'; there are dynamo-1\.6\.1-frontend, "):
        recording("vllm-9")
    with pytest.raises(KeyError):
        page("vllm-0.32", 221)


@pytest.mark.process
def test_text_timestamps_have_another_column_order(tmp_path: Path) -> None:
    source = tmp_path / "run"
    source.mkdir()
    (source / "0000.prom").write_text("a 1\n")
    (source / "timestamps.txt").write_text("0000 10.5 200 0.0020 4 text/plain\n0001 11.5 503 0.0010 4 text/plain\n")
    run = packed(tmp_path / "run.tar.xz", source)
    assert run.timestamps == {0: 10.5, 1: 11.5}
    assert run.failed == {1}


@pytest.mark.process
def test_packing_gives_the_same_bytes_whatever_the_files_age_and_order(tmp_path: Path) -> None:
    first, second = tmp_path / "one" / "run", tmp_path / "two" / "run"
    for folder, order in ((first, (2, 1, 0)), (second, (0, 1, 2))):
        folder.mkdir(parents=True)
        for number in order:
            (folder / f"{number:04}.prom").write_text(f"a_total {number}\n")
    (second / "0001.prom").chmod(0o600)
    packed(tmp_path / "one.tar.xz", first)
    packed(tmp_path / "two.tar.xz", second)
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()


@pytest.mark.process
def test_several_runs_become_folders_and_pages_are_thinned(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(10):
            (tmp_path / name / f"{number:04}.prom").write_text(f"a_total {number}\n")
    run = packed(tmp_path / "both.tar.xz", tmp_path / "a", tmp_path / "b", "--pages", "4")
    assert run.folders == ("a", "b")
    assert {number: bytes(run.open_folder("b").pages[number]) for number in run.open_folder("b").pages} == {
        0: b"a_total 0\n",
        3: b"a_total 3\n",
        6: b"a_total 6\n",
        9: b"a_total 9\n",
    }


@pytest.mark.process
def test_packing_nothing_is_refused(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, PACK, tmp_path, tmp_path / "x.tar.xz"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "nothing to pack" in result.stderr


def packed(out: Path, *arguments: Path | str) -> Recording:
    sources = [a for a in arguments if isinstance(a, Path)]
    options = [a for a in arguments if isinstance(a, str)]
    subprocess.run([sys.executable, PACK, *sources, out, *options], check=True, capture_output=True)
    return Recording.load(out)
