"""`shard`: how it is written, and which one a pod of a StatefulSet has."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.model.target import Shard, find_shard
from llm_serving_exporter.settings.config import effective
from tests.support.builders.configuration import load_flags, load_text, problems_of, problems_of_flags
from tests.support.rows import check_rows

TARGET = ("--target", "a:1")


def test_the_second_of_four() -> None:
    assert load_flags(*TARGET).shard is None
    assert load_flags(*TARGET, "--shard", "2/4").shard == Shard(2, 4)
    assert load_flags(*TARGET, "--shard", "1/1").shard == Shard(1, 1)
    assert load_flags(*TARGET, "--shard", "256/256").shard == Shard(256, 256)


@check_rows(
    ("written", "expected"),
    [
        ("0/4", "there is no shard 0 of 4. Shards count from 1: write 1/4 to 4/4."),
        ("5/4", "there is no shard 5 of 4. Shards count from 1: write 1/4 to 4/4."),
        ("1/0", "0 shards are out of range. Write 1 to 256 shards."),
        ("1/257", "257 shards are out of range. Write 1 to 256 shards."),
        *(
            (
                text,
                f'"{text}" is not a shard. Write 2/4 for the second of four, or ordinal/4 in the pods of a StatefulSet with 4 replicas.',
            )
            for text in ("2", "2/", "/4", "-1/4", "2/4/8", "two/4", "2 / 4", "٢/٤", "2.0/4", "ordinal", "99999999/4")
        ),
    ],
)
def test_nonsense_is_refused(written: str, expected: str) -> None:
    assert problems_of_flags(*TARGET, f"--shard={written}") == [f"flag --shard: {expected}"]


@pytest.mark.parametrize("ordinal", [0, 1, 3])
def test_a_pod_of_a_statefulset_has_the_shard_of_its_ordinal(ordinal: int, tmp_path: Path) -> None:
    by_name = load_flags(*TARGET, "--shard=ordinal/4", host_name=f"exporter-eu-1-{ordinal}")
    assert by_name.shard == Shard(ordinal + 1, 4)
    # with hostNetwork the host name is the node's
    environ = {"POD_NAME": f"exporter-{ordinal}"}
    assert load_flags(*TARGET, "--shard=ordinal/4", environ=environ, host_name="node-9").shard == Shard(ordinal + 1, 4)
    assert load_text(tmp_path, "shard: ordinal/4\ntargets: [a:1]\n", environ=environ).shard == Shard(ordinal + 1, 4)


def test_a_pod_beyond_the_last_shard_does_not_start() -> None:
    # it would read what another one reads
    assert problems_of_flags(*TARGET, "--shard=ordinal/4", environ={"POD_NAME": "exporter-4"}) == [
        'flag --shard: the pod "exporter-4" has the ordinal 4, but the ordinals of 4 shards end at 3. '
        "Give the StatefulSet as many replicas as there are shards, starting at 0."
    ]


@check_rows("name", ["exporter-7d9f8b6c5-x2x4z", "exporter", "-", "exporter-1a", "exporter-12345678901"])
def test_a_pod_without_an_ordinal_does_not_start(name: str) -> None:
    (problem,) = problems_of_flags(*TARGET, "--shard=ordinal/4", environ={"POD_NAME": name})
    assert problem.startswith(f'flag --shard: the pod\'s name "{name}" does not end in an ordinal')


def test_the_bound_on_configured_targets_is_that_of_the_shard(tmp_path: Path) -> None:
    text = "targets:\n" + "".join(f"- a{number}:1\n" for number in range(3000))
    assert len(load_text(tmp_path, text, "--shard", "1/2").targets) == 3000
    (problem,) = problems_of(tmp_path, text)
    assert "3000 targets are more than 2000. Share them among several exporters" in problem


def test_shards_of_one_fleet_have_one_hash() -> None:
    # a hash that differs is how a person finds the replica that still has the configuration of before
    first, second = (load_flags(*TARGET, "--shard", f"{number}/2") for number in (1, 2))
    assert first.config_hash == second.config_hash
    assert effective(second)["shard"] == {"number": 2, "count": 2}
    assert find_shard("a:1", 2) in (1, 2)
