"""Files of models as they lie on disk: folders, Hugging Face caches, what is broken, and what must never be read."""

import json
import os
from pathlib import Path

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.models import ModelFiles
from llm_serving_exporter.model.target import ModelSettings, ServedModel
from tests.support.models.modelfolders import LLAMA, MODELOPT_FP8, REVISION, cached, folder, index, single
from tests.support.rows import check_rows

NOTHING = ModelSettings()


def _refused(path: str | Path) -> str:
    with pytest.raises(FactsError) as caught:
        loader.read_config(str(path))
    assert caught.value.reason == "model_unknown"
    return str(caught.value)


# a path that a person gives


def test_a_file_or_its_folder(tmp_path: Path) -> None:
    place = folder(tmp_path / "model", index=index(123_456), quantisation=json.dumps(MODELOPT_FP8).encode())
    for path in (place, place / "config.json"):
        found = loader.read_config(str(path))
        assert found == ModelFiles(str(place / "config.json"), LLAMA, MODELOPT_FP8, 123_456)


def test_a_file_of_another_name_has_no_companions(tmp_path: Path) -> None:
    place = folder(tmp_path, index=index(7))
    (place / "config.json").rename(place / "mine.json")
    assert loader.read_config(str(place / "mine.json")) == ModelFiles(str(place / "mine.json"), LLAMA)


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path, index=index(7))
    monkeypatch.chdir(tmp_path)
    assert loader.read_config("config.json").checkpoint_bytes == 7
    assert loader.read_config(".").checkpoint_bytes == 7


def test_links_of_a_mounted_config_map(tmp_path: Path) -> None:
    """Kubernetes: config.json -> ..data/config.json, ..data -> ..2026_11_21."""
    folder(tmp_path / "..2026_11_21")
    (tmp_path / "..data").symlink_to("..2026_11_21")
    (tmp_path / "config.json").symlink_to("..data/config.json")
    assert loader.read_config(str(tmp_path)).config == LLAMA


def test_a_link_that_a_person_names_is_followed(tmp_path: Path) -> None:
    place = folder(tmp_path / "model")
    (tmp_path / "config.json").symlink_to(place / "config.json")
    assert loader.read_config(str(tmp_path / "config.json")).config == LLAMA


def test_no_such_path(tmp_path: Path) -> None:
    assert f"{str(tmp_path / 'x')!r} cannot be read: No such file or directory; check" in _refused(tmp_path / "x")
    assert "holds no config.json; point at the folder" in _refused(tmp_path)
    assert "not a path" in _refused("a\0b")


@check_rows(
    ("content", "what"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b"[" * 200_000, "is nested too deeply"),
        (b"[1]", "is not a JSON object"),
        (b"7", "is not a JSON object"),
        (b'"' + b"x" * (loader.LARGEST_CONFIG_BYTES + 1), "is larger than 16 MiB"),
    ],
)
def test_broken_content_is_named_by_its_file(tmp_path: Path, content: bytes, what: str) -> None:
    for name in ("config.json", "hf_quant_config.json"):
        place = folder(tmp_path / name)
        (place / name).write_bytes(content)
        message = _refused(place)
        assert what in message
        assert str(place / name) in message


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert "is not a regular file" in _refused(tmp_path / "config.json")
    assert "holds no config.json" in _refused(tmp_path)
    assert loader.read_served(str(tmp_path)) is None


def test_a_device_is_not_read() -> None:
    assert "is not a regular file" in _refused("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    place = folder(tmp_path)
    (place / "config.json").chmod(0)
    assert "Permission denied; check the path and that this process may read it" in _refused(place)


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("config.json")
    assert "cannot be read" in _refused(tmp_path / "config.json")


# sizes


@check_rows(
    ("content", "expected"),
    [
        (index(16_060_522_496), 16_060_522_496),
        (index(16_060_522_496.0), 16_060_522_496),
        (b'{"weight_map": {"a": "b"}, "metadata": {"total_size":5}}', 5),
        (b'{"weight_map": {"total_size": "b"}, "metadata": {}}', None),
        (b'{"weight_map": {"a": "b"}}', None),
        (index(0), None),
        (index("7"), None),
        (b"\xff not json", None),
        (b"", None),
    ],
)
def test_total_size_of_an_index(tmp_path: Path, content: bytes, expected: int | None) -> None:
    assert loader.read_config(str(folder(tmp_path, index=content))).checkpoint_bytes == expected


@check_rows("before", range((1 << 16) - 40, (1 << 16) + 4, 3))
def test_total_size_at_a_border_between_reads(tmp_path: Path, before: int) -> None:
    content = b" " * before + b'"total_size": 1234567890123}'
    assert loader.read_config(str(folder(tmp_path, index=content))).checkpoint_bytes == 1_234_567_890_123


def test_an_index_that_is_none(tmp_path: Path) -> None:
    place = folder(tmp_path, index=b"")
    os.truncate(place / "model.safetensors.index.json", loader.LARGEST_INDEX_BYTES + 1)
    assert "is larger than 64 MiB" in _refused(place)


def test_tensors_of_a_single_file(tmp_path: Path) -> None:
    assert loader.read_config(str(folder(tmp_path, single=single(4321)))).checkpoint_bytes == 4321


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x00"])
def test_a_single_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    assert loader.read_config(str(folder(tmp_path, single=content))).checkpoint_bytes is None


# Hugging Face caches


def test_a_model_in_the_cache(tmp_path: Path) -> None:
    place = cached(tmp_path, "acme/Small-Llama", index=index(99), quantisation=json.dumps(MODELOPT_FP8).encode())
    expected = ModelFiles(str(place / "snapshots" / REVISION / "config.json"), LLAMA, MODELOPT_FP8, 99)
    assert loader.read_cached(str(tmp_path), "acme/Small-Llama") == expected
    assert loader.read_config(str(place)) == expected
    assert loader.read_config(str(place / "snapshots" / REVISION)) == expected
    assert loader.read_served(str(place / "snapshots" / REVISION)) == expected


def test_refs_main_picks_the_revision(tmp_path: Path) -> None:
    cached(tmp_path, "gpt2", {**LLAMA, "vocab_size": 1}, revision="a" * 40, main=None)
    cached(tmp_path, "gpt2", {**LLAMA, "vocab_size": 2}, revision="b" * 40, main="b" * 40 + "\n")
    found = loader.read_cached(str(tmp_path), "gpt2")
    assert found.config["vocab_size"] == 2
    found = loader.read_cached(str(tmp_path), "gpt2", "a" * 40)
    assert found.config["vocab_size"] == 1


def test_without_refs_main_the_only_revision_counts(tmp_path: Path) -> None:
    place = cached(tmp_path, "a/b", main=None)
    assert loader.read_config(str(place)).config == LLAMA
    cached(tmp_path, "a/b", revision="c" * 40, main=None)
    assert "holds 2 revisions and no refs/main" in _refused(place)


@check_rows("content", ["../../../elsewhere", "", ".", "..", "/etc", "a/b", "\xe9", "x" * 200])
def test_refs_main_that_names_no_revision(tmp_path: Path, content: str) -> None:
    folder(tmp_path / "elsewhere")
    place = cached(tmp_path, "a/b")
    (place / "refs" / "main").write_text(content)
    assert "refs/main holds no revision" in _refused(place)


def test_a_model_that_is_not_whole_is_not_there(tmp_path: Path) -> None:
    place = cached(tmp_path, "a/b", index=index(5))
    next((place / "blobs").glob("*config.json")).unlink()
    assert loader.read_cached(str(tmp_path), "a/b") is None
    assert loader.read_cached(str(tmp_path), "a/c") is None
    assert loader.read_cached(str(tmp_path / "none"), "a/b") is None


@check_rows(
    "repository",
    [
        "..", "../x", "a/../b", "a/b/c", "/a/b", "a//b", "", ".", "a/", "/b", "a/.b", "a--b/c", "a/b\n", "a\0/b", "a/b" + "c" * 100,
        "~/a", "a b/c", "a\\b", "à/b", "-a/b",
    ],
)  # fmt: skip
def test_only_ids_of_the_hub_are_looked_up(tmp_path: Path, repository: str) -> None:
    """Names come from servers: everything that could leave the cache is no id, even where a folder of that name is there."""
    hub = tmp_path / "hub"
    hub.mkdir()
    folder(tmp_path / "x")
    for place in ("b", "c", "x"):
        cached(tmp_path, place)
    assert loader.read_cached(str(hub), repository) is None


def test_links_out_of_the_cache_are_not_followed(tmp_path: Path) -> None:
    outside = folder(tmp_path / "outside")
    place = cached(tmp_path / "hub", "a/b")
    (place / "snapshots" / REVISION / "config.json").unlink()
    (place / "snapshots" / REVISION / "config.json").symlink_to(outside / "config.json")
    with pytest.raises(FactsError, match="is a link out of its folder"):
        loader.read_cached(str(tmp_path / "hub"), "a/b")
    other = cached(tmp_path / "hub", "a/c", revision="d" * 40)
    (other / "snapshots" / REVISION).symlink_to(outside)
    with pytest.raises(FactsError, match="is a link out of its folder"):
        loader.read_cached(str(tmp_path / "hub"), "a/c", REVISION)
    refs = cached(tmp_path / "hub", "a/d")
    (tmp_path / "secret").write_text("hunter2")
    (refs / "refs" / "main").unlink()
    (refs / "refs" / "main").symlink_to(tmp_path / "secret")
    with pytest.raises(FactsError, match="is a link out of its folder") as caught:
        loader.read_cached(str(tmp_path / "hub"), "a/d")
    assert "hunter2" not in str(caught.value)


# paths that a server says


@check_rows("name", ["config.json", "hf_quant_config.json", "model.safetensors.index.json", "model.safetensors"])
def test_links_out_of_a_served_folder_are_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text('{"password": "hunter2"}')
    place = folder(tmp_path / "model")
    (place / name).unlink(missing_ok=True)
    (place / name).symlink_to(tmp_path / "secret")
    with pytest.raises(FactsError, match="is a link out of its folder") as caught:
        loader.read_served(str(place))
    assert "hunter2" not in str(caught.value)


def test_what_stands_in_a_file_is_never_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("root:hunter2:0:0")
    with pytest.raises(FactsError) as caught:
        loader.read_served(str(tmp_path))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in str(caught.value.__cause__)


def test_served_paths_that_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    there = str(tmp_path / "model")
    assert loader.read_served(there) is not None
    assert loader.read_served(there + "/") is not None
    for path in (
        "model",
        "./model",
        there + "/config.json",
        there + "\0",
        "",
        str(tmp_path),
        "/" + "a" * 5000,
        "~/model",
    ):
        assert loader.read_served(path) is None


# where to look


def test_the_configured_path_goes_first_and_must_be_right(tmp_path: Path) -> None:
    served = ServedModel("a/b", root=str(folder(tmp_path / "served")))
    configured = folder(tmp_path / "configured")
    found, notes = loader.find_files(ModelSettings(config=str(configured)), served, None)
    assert found.path == str(configured / "config.json")
    assert notes == ()
    with pytest.raises(FactsError, match="No such file"):
        loader.find_files(ModelSettings(config=str(tmp_path / "none")), served, None)


def test_then_the_served_path_then_the_cache(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    root, name = cached(hub, "org/loaded"), cached(hub, "org/served")
    place = folder(tmp_path / "model")
    for served, expected in (
        (ServedModel("org/served", root=str(place)), place),
        (ServedModel("org/served", root="org/loaded"), root),
        (ServedModel("org/served", root="org/none"), name),
        (ServedModel("org/served"), name),
    ):
        found, _ = loader.find_files(NOTHING, served, str(hub))
        assert found.path.startswith(str(expected) + "/")
    assert loader.find_files(NOTHING, ServedModel("org/served"), None) == (None, ())
    assert loader.find_files(NOTHING, None, str(hub)) == (None, ())


def test_a_configured_name_is_looked_up_instead_of_what_is_served(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    place = cached(hub, "org/base")
    served = ServedModel("org/served", root=str(folder(tmp_path / "model")))
    found, _ = loader.find_files(ModelSettings(name="org/base"), served, str(hub))
    assert found.path.startswith(str(place))
    assert loader.find_files(ModelSettings(name="other"), served, str(hub)) == (None, ())


def test_what_is_there_and_broken_is_noted_and_the_next_place_counts(tmp_path: Path) -> None:
    broken = folder(tmp_path / "model")
    (broken / "config.json").write_text("{")
    place = cached(tmp_path / "hub", "org/served")
    found, notes = loader.find_files(NOTHING, ServedModel("org/served", root=str(broken)), str(tmp_path / "hub"))
    assert found.path.startswith(str(place))
    (note,) = notes
    assert "is not valid JSON" in note


@check_rows(
    ("environment", "expected"),
    [
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, "/c"),
        ({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/u"}, "/x/huggingface/hub"),
        ({"HOME": "/u", "HF_HOME": ""}, "/u/.cache/huggingface/hub"),
        ({}, None),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], expected: str | None) -> None:
    assert loader.hub_cache(environment) == expected


def test_what_a_person_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    for path in ("/x", "./x", "../x", "x.json", "there", "there/"):
        assert loader.given(path) == ModelSettings(config=path)
    assert loader.given("~/x") == ModelSettings(config="/home/somebody/x")
    for name in ("llama3.1:8b", "meta-llama/Llama-3.1-8B", "not-there", "a\0b", ""):
        assert loader.given(name) == ModelSettings(name=name)
    # what a file of weights is called may be known
    for file in ("/m/Llama-3.1-8B-Instruct-Q4_K_M.gguf", "./x.safetensors"):
        assert loader.given(file) == ModelSettings(name=file)


def test_the_gpu_catalogue() -> None:
    assert loader.gpu_catalogue() is loader.gpu_catalogue()
    assert "H100 SXM 80GB" in {spec.name for spec in loader.gpu_catalogue()}
