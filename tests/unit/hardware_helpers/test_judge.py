"""What holds of the committed recordings holds of a fresh one, and what does not hold is named."""

from __future__ import annotations

import json

import pytest

from llm_serving_simulator.replay import Recording
from scripts.pack_recordings import DEFAULT_MEMBERS, pack
from tests.hardware.judge import judge
from tests.support.builders.h100 import H100, RUNS, find_run, open_run

RUN = "h100-sglang-0.5.17"


@pytest.mark.parametrize("name", RUNS)
def test_the_committed_recordings_hold(name):
    found = judge(find_run(name))
    assert not found.faults
    assert any("prefill" in line or "shared4k" in line for line in found.lines)


def unpack(folder, **changed):
    """The recording's files in a folder with card.json, some of them changed, packed again."""
    members = dict(find_run(RUN).recording.members)
    for name, content in {**members, "card.json": json.dumps(H100).encode(), **changed}.items():
        path = folder / RUN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    pack([folder / RUN], folder / f"{RUN}.tar.xz", DEFAULT_MEMBERS, None)
    return open_run(Recording.load(folder / f"{RUN}.tar.xz"))


def test_a_recording_of_another_truth_does_not_hold(tmp_path):
    recording = find_run(RUN).recording
    phases = {one["phase"]: one for one in recording.json("client/phases.json")}
    truth, lines = recording.json("client/truth.json"), recording.jsonl("witness.jsonl")
    truth["mixed"]["gen_tokens_received"] += 1

    def change(line):
        within = {name for name, one in phases.items() if one["start"] <= line["t"] <= one["end"]}
        factors = {"dram": 1.25 if "decode64" in within else 1.0, "tensor": 1.5 if "prefill" in within else 1.0}
        factors["tensor"] *= 0.8 if "mixed" in within else 1.0
        return {**line, **{name: line[name] * factor for name, factor in factors.items()}}

    product = [
        {"t": at, "dram_bandwidth_ratio": 0.646}
        for number, at in recording.timestamps.items()
        if number in recording.pages
    ]
    changed = {
        "client/truth.json": json.dumps(truth).encode(),
        "witness.jsonl": b"".join(json.dumps(change(line)).encode() + b"\n" for line in lines),
        "product.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in product),
    }
    found = judge(unpack(tmp_path, **changed))
    said = "\n".join(found.faults)
    assert "decode64, 10 s: GPM 0.80" in said
    for phase, why in {
        "decode64": "-17.",  # above 15 % off, and so is the mean of all phases
        "prefill": "off what tensor cores did for prompts",
        "mixed": "off what tensor cores did",
    }.items():
        assert any(phase in line and why in line for line in found.faults), (phase, said)
    # what the product reads is its own: 0.646 everywhere is right in no phase but the one that was changed
    assert sum("the product's own reading of GPM differs" in line for line in found.faults) == 5 - 1
    assert any("mixed: page" in line for line in found.faults)
    assert any("(rms)" in line for line in found.faults)
