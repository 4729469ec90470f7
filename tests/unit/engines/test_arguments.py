"""What an engine's command line says of its batch limit."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.engines.arguments import find_batch_limit, read_arguments
from llm_serving_exporter.engines.registry import RUNTIMES
from tests.support.rows import check_rows


def limit(runtime: str, words: Sequence[str]) -> int | None:
    return find_batch_limit(RUNTIMES[runtime], read_arguments(words, RUNTIMES.values()))


@check_rows(
    ("runtime", "line", "expected"),
    [
        ("vllm", "vllm serve m --max-num-seqs 256 --port 8000", 256), ("vllm", "vllm serve m --max-num-seqs=256", 256),
        ("vllm", "vllm serve m --max_num_seqs 64", 64), ("vllm", "vllm serve m --max-num-seqs 8 --max-num-seqs 16", 16),
        ("vllm", "vllm serve m", None), ("vllm", "vllm serve m --max-num-seqs", None), ("vllm", "vllm serve m --max-num-seqs 0", None),
        ("vllm", "vllm serve m --max-num-seqs $(SEQS)", None), ("vllm", "vllm serve m --max-num-seqs auto", None),
        ("vllm", "vllm serve m --max-num-seqs -1", None), ("vllm", "vllm serve m --max-running-requests 9", None),
        ("sglang", "python -m sglang.launch_server --max-running-requests 128 --tp 2", 128),
        ("sglang", "python -m sglang.launch_server --max-running-requests 128 --dp-size 2 --enable-dp-attention", None),
        ("sglang", "python -m sglang.launch_server --max-num-seqs 128", None),
        ("trtllm", "trtllm-serve m --max_batch_size 512 --tp_size 4", 512), ("trtllm-json", "trtllm-serve m --max_batch_size 512", 512),
        ("trtllm", "trtllm-serve m --max_batch_size 512 --pp_size 2", None),
        ("llamacpp", "llama-server -m m.gguf -np 4", 4), ("llamacpp", "llama-server --parallel 8 -m m.gguf", 8),
        ("llamacpp", "llama-server -np 4 --parallel 8", None),
        ("lmdeploy", "lmdeploy serve api_server m --max-batch-size 128", 128), ("tgi", "text-generation-router --max-batch-size 32", 32),
        ("tei", "text-embeddings-router --max-batch-requests 4", 4), ("mistralrs", "mistralrs-server --max-seqs 16 plain", 16),
        ("lightllm", "python -m lightllm.server.api_server --running_max_req_size 1000", 1000),
        ("dynamo-worker", "python -m dynamo.vllm --model m --max-num-seqs 48", 48), ("ray-vllm", "ray start --max-num-seqs 48", None),
        ("ollama", "ollama serve --max-num-seqs 48", None),
    ],
)  # fmt: skip
def test_flags_of_each_engine(runtime: str, line: str, expected: int | None) -> None:
    assert limit(runtime, line.split()) == expected


@check_rows(
    ("script", "expected"),
    [
        ("exec vllm serve m --max-num-seqs 96 --port 8000", 96), ("vllm serve m --max-num-seqs='96'; sleep 9", 96),
        ("(vllm serve a --max-num-seqs 8 --port 1 &) ; vllm serve b --max-num-seqs 16", None),
        ("(vllm serve a --max-num-seqs 16 --port 1 &) ; vllm serve b --max-num-seqs 16", 16),
        ("vllm serve m \\\n  --max-num-seqs 96\\\n  --port 8000", 96), ("vllm serve m --max-num-seqs ${SEQS:-256}", None),
    ],
)  # fmt: skip
def test_inside_the_text_of_a_shell(script: str, expected: int | None) -> None:
    assert limit("vllm", ["/bin/sh", "-c", script]) == expected


def test_nothing_but_known_flags_and_numbers_is_taken_out_of_a_command_line() -> None:
    words = [
        "vllm",
        "serve",
        "m",
        "--api-key",
        "s3cret",
        "--max-num-seqs",
        "256",
        "--hf-token=s3cret",
        "--max-batch-size",
        "s3cret",
    ]
    assert read_arguments(words, RUNTIMES.values()) == (("--max-batch-size", ""), ("--max-num-seqs", "256"))


def test_a_command_line_without_an_end_costs_no_more_than_a_long_one() -> None:
    assert limit("vllm", ["x"] * 100_000 + ["--max-num-seqs", "8"]) is None
