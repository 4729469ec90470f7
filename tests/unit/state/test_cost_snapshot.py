"""A snapshot of cost in its file: whole, or not believed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from llm_serving_exporter.errors import CostSnapshotError
from llm_serving_exporter.model.cost import CostSnapshot, EngineCost, EngineTotals, KeptCost
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity
from llm_serving_exporter.state.cost_folder import (
    LARGEST_SNAPSHOT_BYTES,
    NAME,
    CostFolder,
    FolderTakenError,
    decode_snapshot,
    encode_snapshot,
    read_boot_id,
)
from tests.support.rows import check_rows

TOTALS = EngineTotals(
    gpu_seconds={("busy", "owned"): 12.5, ("idle", ""): 3.0},
    usd={("prefill", "owned", "0"): 1.25},
    pending_usd={"owned": 0.5},
    pending_seconds=2.0,
    savings_usd=None,
    energy_joules=9.0,
    energy_usd=0.0,
    carbon_grams=None,
)
KEPT = KeptCost(
    "chat",
    Identity(namespace="llm", pod="chat-0", pod_uid="u-1", container="vllm"),
    ("address", "server"),
    ("GPU-1", "GPU-2"),
    TargetGpus(2, "H100", 1.0),
    41.5,
    {"GPU-1": 7.0},
    (EngineCost("m\u20ac", "0", "unified", TOTALS),),
    1,
)
SNAPSHOT = CostSnapshot("boot-1", 42.0, 1.79e9, (KEPT,))


def sealed(body: bytes, version: str = "1") -> bytes:
    """A file whose checksum is right, whatever is in it."""
    return f"llm-serving-exporter-cost {version} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def changed(path: tuple[str | int, ...], value: object) -> bytes:
    """The file of SNAPSHOT with one value changed."""
    document = json.loads(encode_snapshot(SNAPSHOT).partition(b"\n")[2])
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return sealed(json.dumps(document).encode())


def test_what_is_written_is_read_again() -> None:
    assert decode_snapshot(encode_snapshot(SNAPSHOT)) == SNAPSHOT


def test_the_life_of_a_counting_is_of_its_process_alone() -> None:
    assert encode_snapshot(replace(SNAPSHOT, targets=(replace(KEPT, life=7),))) == encode_snapshot(SNAPSHOT)


def test_a_file_that_ends_early_at_any_byte_is_refused() -> None:
    whole = encode_snapshot(SNAPSHOT)
    for length in range(len(whole)):
        with pytest.raises(CostSnapshotError):
            decode_snapshot(whole[:length])


def test_a_file_with_any_byte_changed_is_refused() -> None:
    whole = bytearray(encode_snapshot(SNAPSHOT))
    for place in range(len(whole)):
        whole[place] ^= 1
        with pytest.raises(CostSnapshotError):
            decode_snapshot(bytes(whole))
        whole[place] ^= 1


TARGET = ("targets", 0)
ENGINE = (*TARGET, "engines", 0)


@check_rows(
    ("path", "value"),
    [
        (("boot_seconds",), -1),
        (("boot_seconds",), None),
        (("unix_seconds",), True),
        (("unix_seconds",), float("inf")),
        (("targets",), {}),
        ((*TARGET, "name"), 5),
        ((*TARGET, "name"), "x" * 5000),
        ((*TARGET, "identity"), {}),
        ((*TARGET, "server"), ["only one"]),
        ((*TARGET, "gpus"), [-1, "H100", 1.0]),
        ((*TARGET, "gpus"), [2]),
        ((*TARGET, "counted_seconds"), float("nan")),
        ((*TARGET, "joules"), [["GPU-1", 7.0]]),
        ((*TARGET, "joules"), {"GPU-1": -7.0}),
        ((*TARGET, "current"), 1.5),
        (ENGINE, ["m", "0", "unified"]),
        ((*ENGINE, 3, "usd"), [[["prefill", "owned"], 1.0]]),
        ((*ENGINE, 3, "usd"), [[["prefill", "owned", "0"], -1.0]]),
        ((*ENGINE, 3, "gpu_seconds"), [[["busy", "owned"], 1e300]]),
        ((*ENGINE, 3, "pending_seconds"), "2"),
    ],
)
def test_what_cannot_be_true_is_refused_whatever_its_checksum(path: tuple[str | int, ...], value: object) -> None:
    with pytest.raises(CostSnapshotError, match="cannot be true"):
        decode_snapshot(changed(path, value))


@check_rows(
    "content", [b"[]\n", b"null\n", b"{}\n", b"\xff\n", b"[" * 200_000], ids=["list", "null", "empty", "bytes", "deep"]
)
def test_another_content_is_refused_whatever_its_checksum(content: bytes) -> None:
    with pytest.raises(CostSnapshotError, match="cannot be true"):
        decode_snapshot(sealed(content))


def test_another_version_is_named() -> None:
    with pytest.raises(CostSnapshotError, match="of version '2', and this exporter reads 1"):
        decode_snapshot(sealed(encode_snapshot(SNAPSHOT).partition(b"\n")[2], "2"))


def test_a_counter_without_a_value_is_not_written() -> None:
    broken = replace(KEPT, engines=(EngineCost("m", "0", "unified", EngineTotals(pending_seconds=float("nan"))),))
    with pytest.raises(CostSnapshotError, match="cannot be written"):
        encode_snapshot(replace(SNAPSHOT, targets=(broken,)))


def test_the_folder_keeps_the_newest_and_nothing_else(tmp_path: Path) -> None:
    folder = CostFolder(str(tmp_path))
    assert folder.read() is None
    folder.write(SNAPSHOT)
    folder.write(replace(SNAPSHOT, boot_seconds=43.0))
    folder.sync()
    found = folder.read()
    assert found is not None
    assert found.boot_seconds == 43.0
    assert os.listdir(tmp_path) == [NAME]
    folder.remove()
    folder.remove()
    assert os.listdir(tmp_path) == []
    folder.close()


def hold_folder(path: str, holding: object, done: object) -> None:
    CostFolder(path)
    holding.set()
    done.wait()


def test_a_folder_is_one_process_own_until_it_ends_however_it_ends(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    holding, done = context.Event(), context.Event()
    other = context.Process(target=hold_folder, args=(str(tmp_path), holding, done), daemon=True)
    other.start()
    assert holding.wait(60)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FolderTakenError, match="another exporter has the folder"):
        CostFolder(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
    other.kill()
    other.join()
    CostFolder(str(tmp_path)).close()


def test_a_folder_that_was_replaced_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    folder = CostFolder(str(path))
    assert folder.is_current
    path.rename(tmp_path / "old")
    assert not folder.is_current
    path.mkdir()
    assert not folder.is_current
    with pytest.raises(OSError, match="removed or replaced"):
        folder.write(SNAPSHOT)
    assert os.listdir(path) == []
    folder.close()


def test_something_else_under_the_name_is_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    folder = CostFolder(str(tmp_path))
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(CostSnapshotError, match="no file"):
        folder.read()
    (tmp_path / NAME).unlink()
    (tmp_path / "elsewhere").write_bytes(encode_snapshot(SNAPSHOT))
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        folder.read()
    (tmp_path / NAME).unlink()
    with (tmp_path / NAME).open("wb") as file:
        file.truncate(LARGEST_SNAPSHOT_BYTES + 1)
    with pytest.raises(CostSnapshotError, match="too large"):
        folder.read()
    folder.close()


def test_the_boot_is_not_known_where_the_system_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("0f3c-1\n")
    assert read_boot_id(tmp_path / "boot_id") == "0f3c-1"
    assert read_boot_id(tmp_path / "none") == ""
    (tmp_path / "boot_id").write_bytes(b"\xff")
    assert read_boot_id(tmp_path / "boot_id") == ""
