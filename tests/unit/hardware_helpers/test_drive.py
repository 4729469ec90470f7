"""The client's counts are the server's, whatever happens to requests, and a recording of both is packed, played and held."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.replay import Recording
from scripts.pack_recordings import DEFAULT_MEMBERS, pack
from tests.hardware.drive import PLAN, Engine, PhasePlan, count_truth, main, record, run_phase
from tests.hardware.judge import judge
from tests.hardware.witness import Witness
from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders.h100 import find_run, list_stretches, open_run, read_lines
from tests.support.builders.recordings import page
from tests.support.servers.http_server import QuietHandler, serve
from tests.support.waiting import wait_until

# --- A server that answers /v1/completions token by token as vLLM does, and counts what it did on a recorded page of vLLM ---


MODEL = "meta-llama/Llama-3.1-8B-Instruct"
# whose prompts begin with this many tokens that it has met have found them in its cache
BLOCK = 16
TOKEN_SECONDS = 0.002


class StreamingEngine:
    """`faults`: what happens to a request by the length of its answer: "refuse", "cut" (amid it), "error" (within the stream), "mute" (no
    usage); "endless" never ends. `url`: its address. `root`: what it says that it has loaded."""

    def __init__(self, url: str = "") -> None:
        self.url, self.root = url, MODEL
        self.faults: dict[int, str] = {}
        self.answered: list[str] = []
        self._lock = threading.Lock()
        self._blocks: set[tuple[int, ...]] = set()
        self._counts = dict.fromkeys(
            ("prompt_tokens", "prompt_tokens_cached", "generation_tokens", "request_success"), 0
        )

    def make_page(self) -> bytes:
        text = page("h100-vllm-0.25.1", 0).decode()
        with self._lock:
            for name, count in self._counts.items():
                labels = r'finished_reason="length",' if name == "request_success" else ""
                text, found = re.subn(
                    rf'^(vllm:{name}_total{{engine="0",{labels}[^,]*}}) .*$', rf"\1 {count}", text, flags=re.MULTILINE
                )
                assert found == 1, name
        return text.replace("# HELP vllm:prompt_tokens_total .", "# HELP vllm:prompt_tokens_total Of prompts.").encode()

    def find_cached(self, prompt: list[int]) -> int:
        block = tuple(prompt[:BLOCK])
        with self._lock:
            known = block in self._blocks
            self._blocks.add(block)
        return BLOCK if known and len(prompt) > BLOCK else 0

    def count(self, **more: int) -> None:
        with self._lock:
            for name, value in more.items():
                self._counts[name] += value

    def stream(self, asked: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
        """The chunks of an answer; None: the connection breaks."""
        length, prompt = asked["max_tokens"], asked["prompt"]
        fault, cached = self.faults.get(length), self.find_cached(prompt)
        self.count(prompt_tokens=len(prompt), prompt_tokens_cached=cached)
        for number in range(1, length + 1):
            time.sleep(TOKEN_SECONDS)
            if fault == "cut" and number > 1:
                yield None
            if fault == "error" and number > 1:
                yield {"error": {"message": "out of blocks", "code": 500}}
                return
            self.count(generation_tokens=1)
            yield {"choices": [{"text": "x", "finish_reason": "length" if number == length else None}], "usage": None}
        self.count(request_success=1)
        if fault != "mute":
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": length,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            yield {"choices": [], "usage": usage}


@contextmanager
def streaming_engine() -> Iterator[StreamingEngine]:
    """One that runs."""
    engine = StreamingEngine()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/metrics":
                return self.answer(200, engine.make_page(), "text/plain; version=0.0.4")
            if self.path == "/v1/models":
                data = [{"id": MODEL, "object": "model", "owned_by": "vllm", "root": engine.root}]
                return self.answer(200, json.dumps({"object": "list", "data": data}).encode())
            if self.path == "/version":
                return self.answer(200, b'{"version":"0.25.1"}')
            return self.answer(404, b"{}")

        def do_POST(self) -> None:
            asked = json.loads(self.read_body())
            assert asked["stream"]
            assert asked["stream_options"] == {"include_usage": True}
            assert asked["model"] == MODEL
            if engine.faults.get(asked["max_tokens"]) == "refuse":
                return self.answer(503, b'{"error":"busy"}')
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            try:
                for chunk in engine.stream(asked):
                    if chunk is None:
                        return None
                    self._send(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self._send(b"data: [DONE]\n\n")
                self._send(b"")
            except OSError:
                engine.answered.append("client gone")
            return None

        def _send(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    with serve(Handler) as url:
        engine.url = url
        yield engine


NEVER = threading.Event()


@pytest.fixture
def server():
    with streaming_engine() as running:
        yield running


@pytest.fixture
def engine(server):
    return Engine(server.url, MODEL)


def test_a_request_that_goes_well_is_what_the_engine_says_at_its_end(engine):
    prompt = list(range(40))
    first, second = (engine.ask("decode", prompt, 5, NEVER) for _ in range(2))
    assert (first.end, first.prompt, first.out, first.cached, second.cached) == ("length", 40, 5, 0, BLOCK)
    assert first.sent < first.first < first.last <= first.ended <= second.sent
    assert engine.asked == [first, second]


@pytest.mark.parametrize(
    ("fault", "why", "begun"),
    [
        ("refuse", "503 Server Error", False),
        ("cut", "", True),
        ("error", "out of blocks", True),
        ("mute", "the answer ended without usage", True),
    ],
)
def test_a_request_that_goes_wrong_counts_as_an_error_with_its_reason(server, engine, fault, why, begun):
    server.faults = {3: fault}
    one = engine.ask("decode", [1, 2], 3, NEVER)
    assert one.end == "error"
    assert one.why
    assert why in one.why
    assert (one.first is not None) == begun
    truth = count_truth([one, engine.ask("decode", [1, 2], 2, NEVER)])
    assert truth == {
        "sent": 2, "outcome_ok": 1, "aborted": 0, "errors": 1, "prompt_tokens_ok": 2, "prompt_tokens_with_first_token": 4 if begun else 2,
        "gen_tokens_received": 2, "cached_tokens_ok": 0, "requests_with_first_token": 1 + begun,
    }  # fmt: skip


def test_without_a_server_there_is_an_error_too():
    assert "refused" in Engine("http://127.0.0.1:9", MODEL).ask("decode", [1], 1, NEVER).why


def test_a_phase_of_aborts_breaks_its_requests_off_at_its_end(server, engine):
    plan = PhasePlan("aborts", 3, (4, 4), (100_000, 100_000), seconds=0.2, abort=True)
    row = run_phase(engine, plan)
    assert (row["phase"], row["concurrency"]) == ("aborts", 3)
    assert 0.2 <= row["load_end"] - row["start"] <= row["end"] - row["start"]
    truth = count_truth(engine.asked)
    assert (truth["sent"], truth["aborted"], truth["outcome_ok"], truth["gen_tokens_received"]) == (3, 3, 0, 0)
    wait_until(lambda: len(server.answered) == 3, "every broken connection is seen by the server")


def test_prompts_of_a_phase_begin_with_what_they_share_and_no_two_phases_share(server, engine):
    for _ in range(2):
        run_phase(engine, PhasePlan("shared", 2, (8, 8), (2, 2), shared=20, seconds=0.05))
    assert sum(one.cached == 0 for one in engine.asked) == 2
    assert all(one.prompt == 28 for one in engine.asked)
    assert count_truth([replace(one, cached=None) for one in engine.asked])["cached_tokens_ok"] is None


def test_the_plan_is_that_of_the_recordings():
    """What they need of an engine: a limit below the queue's clients, and a context of 5,120 tokens."""
    assert [one.name for one in PLAN] == [
        "decode1", "decode8", "decode64", "queue", "prefill", "mixed", "shared", "sparse",
    ]  # fmt: skip
    assert max(one.shared + one.prompt[1] + one.answer[1] for one in PLAN) < 5120


@contextmanager
def witnessed(nvml_library, folder):
    state = StubState(folder / "state.txt")
    with loaded_stub(nvml_library, state.path), closing(Witness()) as witness:
        yield witness


PHASES = (
    PhasePlan("decode", 3, (30, 40), (3, 9), seconds=0.4),
    PhasePlan("aborts", 2, (8, 8), (100_000, 100_000), seconds=0.2, abort=True),
    PhasePlan("errors", 2, (8, 8), (2, 2), seconds=0.3),
    PhasePlan("shared", 2, (8, 8), (4, 4), shared=32, seconds=0.4),
)


def test_a_recording_holds_what_both_sides_count(server, nvml_library, tmp_path):
    server.faults = {2: "refuse"}
    config = find_run("h100-vllm-0.25.1").recording.members["config.json"]
    (tmp_path / "config.json").write_bytes(config)
    server.root = str(tmp_path)
    said = []
    with witnessed(nvml_library, tmp_path) as witness:
        record(
            server.url + "/", tmp_path / "run", witness, PHASES, page_seconds=0.1, witness_seconds=0.15, settled_seconds=0.4,
            said=said.append,
        )  # fmt: skip
    pack([tmp_path / "run"], tmp_path / "run.tar.xz", DEFAULT_MEMBERS, None)
    run = open_run(Recording.load(tmp_path / "run.tar.xz"))
    members, truth = run.recording.members, run.recording.json("client/truth.json")
    assert [line.partition(":")[0] for line in said] == [one.name for one in PHASES] == list(truth)
    assert [str(one).partition(" ")[2] for one in list_stretches(run)] == ["decode", "errors", "shared"]
    for stretch in list_stretches(run):
        assert stretch.count_of_page() == stretch.count_of_clients()
    assert truth["decode"]["sent"] == truth["decode"]["outcome_ok"] > 3
    assert (truth["errors"]["outcome_ok"], truth["errors"]["errors"]) == (0, truth["errors"]["sent"])
    assert truth["aborts"]["aborted"] == 2
    assert truth["shared"]["cached_tokens_ok"] == BLOCK * (truth["shared"]["sent"] - 1)
    assert len(run.recording.jsonl("client/requests.jsonl")) == sum(one["sent"] for one in truth.values())
    # pages as they are served, but for other projects' prose
    assert b"\n# HELP vllm:prompt_tokens_total .\n" in run.recording.pages[0]
    assert not run.recording.failed
    assert len(run.recording.timestamps) == len(run.recording.pages) >= 5
    assert {"endpoints/version.body", "endpoints/v1_models.body"} <= set(members)
    assert members["config.json"] == config
    assert "endpoints/server_info.body" not in members
    # half a second shows no bandwidth; all else holds
    assert judge(run).faults == (
        "run aborts: no request ended well",
        "run errors: no request ended well",
        "run: no phase has bandwidth by arithmetic and two pages amid it",
    )
    # the product's own reading of the GPU and the witness's, of the peak that the card has
    assert {line["dram_bandwidth_ratio"] for line in read_lines(run, "product.jsonl")} == {0.625}
    assert {line["dram"] for line in read_lines(run, "witness.jsonl")} == {62.5}
    assert run.witness_peak_bytes_per_second == run.peaks.bandwidth_bytes_per_second == 3352.32e9


def test_a_page_that_cannot_be_had_is_a_line_with_its_reason(server, nvml_library, tmp_path):
    with witnessed(nvml_library, tmp_path) as witness:
        server.make_page = lambda: 1 / 0  # the connection breaks
        plan = (PhasePlan("decode", 1, (8, 8), (2, 2), seconds=0.05),)
        record(server.url, tmp_path / "run", witness, plan, page_seconds=0.1, settled_seconds=0.1, said=str)
    lines = (tmp_path / "run" / "timestamps.tsv").read_text().splitlines()
    assert lines[0] == "index\tunix_time\tscrape_s\tstatus\tbytes\terror"
    assert lines[1].split("\t")[3:] == ["0", "0", "ConnectionError"]
    assert not list((tmp_path / "run").glob("*.prom"))


def test_the_command_says_why_it_cannot_record(nvml_library, tmp_path, capsys):
    state = StubState(tmp_path / "state.txt")
    with loaded_stub(nvml_library, state.path):
        assert main(["http://127.0.0.1:9", str(tmp_path / "run"), "--gpu", "1"]) == 1
        assert "GPU 1: Invalid Argument" in capsys.readouterr().err
        assert main(["http://127.0.0.1:9", str(tmp_path / "run")]) == 1
        assert "/v1/models" in capsys.readouterr().err
        assert main(["http://127.0.0.1:9", str(tmp_path / "run")]) == 1  # what is there is not written over
        assert "exists" in capsys.readouterr().err
