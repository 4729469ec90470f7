"""What ends a batch beside the memory: the sequences that an engine is told to run at once, and the recurrent state of as many."""

from __future__ import annotations

import shlex

import pytest

from llm_serving_exporter.commands.ceiling.launch import DIALECTS, SEQUENCES, UNREAD, Dialect, read_launch
from llm_serving_exporter.engines.registry import RUNTIMES
from tests.support.builders.ceilings import answered, asked, document, line, refused, table
from tests.support.rows import check_rows

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
# a command of each engine
COMMANDS = {
    "vLLM": "vllm serve MODEL", "SGLang": "python -m sglang.launch_server --model-path MODEL", "TensorRT-LLM": "trtllm-serve MODEL",
    "Hugging Face TGI": "text-generation-launcher --model-id MODEL", "llama.cpp": "llama-server -hf MODEL",
    "LMDeploy": "lmdeploy serve api_server MODEL", "LightLLM": "python -m lightllm.server.api_server --model_dir MODEL",
    "mistral.rs": "mistralrs-server run -m MODEL",
    "Hugging Face Text Embeddings Inference": "text-embeddings-router --model-id MODEL",
}  # fmt: skip
LOAD = ("--requests-per-second", "50", "--input-tokens", "500", "--output-tokens", "200")
FLAGS = [(dialect, flag) for dialect in DIALECTS for flag, meaning in dialect.flags.items() if meaning == SEQUENCES]


def test_every_engine_whose_table_has_such_a_flag_has_a_start_command() -> None:
    # a page of TensorRT-LLM's own, and Dynamo's worker, whose command names the engine that it runs
    others = {"trtllm-json", "dynamo-worker"}
    tables = {it.title: it.flags for it in RUNTIMES.values() if it.flags is not None and it.name not in others}
    assert tables.keys() == {dialect.name for dialect in DIALECTS} == COMMANDS.keys()
    for dialect in DIALECTS:
        read = {flag for flag, meaning in dialect.flags.items() if meaning == SEQUENCES}
        assert read == {*tables[dialect.name].batch_limit, *tables[dialect.name].bounds}


@check_rows(("dialect", "flag"), FLAGS, ids=lambda one: getattr(one, "name", one))
def test_batches_and_replicas_end_at_it(dialect: Dialect, flag: str) -> None:
    command = COMMANDS[dialect.name].replace("MODEL", LLAMA)
    flags = ("--gpu", "H100 SXM", "--batches", "8,9,64", *LOAD)
    for written in (f"{flag} 8", f"{flag}=8", f"{flag.replace('-', '_').replace('__', '--', 1)} 8"):
        found = document(*flags, "--launch", f"{command} {written}")
        assert (found["fit"]["batch_limit"], found["fit"]["max_batch"]) == (8, 8)
        assert [one["beyond_limit"] for one in found["batches"]] == [False, True, True]
        assert [one["fits"] for one in found["batches"]] == [True, False, False]
        # 10,000 tokens/s of output, 8 sequences of 600 tokens at 0.6 of the ceiling, used to 0.7: and the prompts beside
        most = line(document("--gpu", "H100 SXM", "--model", LLAMA, "--batches", "8", "--context", "600"), 8)
        assert found["replicas"] >= 10_000 / (most["tokens_per_second"] * 0.6 * 0.7)
    # what a flag of another engine says, and what says nothing
    assert document(*flags, "--launch", command)["fit"]["batch_limit"] is None


def test_the_field_s_case() -> None:
    launch = ("--launch", f"vllm serve {LLAMA} --max-num-seqs 8")
    flags = ("--gpu", "H100 SXM", "--batches", "8,64", *LOAD)
    found = document(*flags, *launch)
    ceiling = line(document("--gpu", "H100 SXM", *launch, "--batches", "8", "--context", "600"), 8)
    assert ceiling["tokens_per_second"] == pytest.approx(1714, abs=1)
    assert found["replicas"] >= 14
    out = asked(*flags, *launch).out
    (marked,) = [row for row in out.splitlines() if row.endswith("beyond the engine's limit")]
    assert marked.split()[0] == "64"
    assert "at most 8 sequences of 4096 tokens by --max-num-seqs 8, while 113 fit" in out
    # more fit than vLLM takes by itself, which the command does not say
    (note,) = document(*flags, "--launch", f"vllm serve {LLAMA}")["notes"]
    assert note.startswith(
        "the start command does not say --max-num-seqs: vLLM's own limit, 256 or more by version and GPU"
    )


@check_rows(
    ("command", "limit"),
    [
        # each rank of vLLM has a scheduler (docs/serving/data_parallel_deployment.md)
        ("vllm serve MODEL -tp 2 -dp 4 --max-num-seqs 32", 128),
        ("vllm serve MODEL --max-num-s 32 --max-num-batched-tokens 2k", 32), ("vllm serve MODEL --max-num-batched-tokens 64", 64),
        ("python -m dynamo.vllm --model MODEL --max-num-seqs=16", 16),
        # divided among the ranks of attention, whole for each copy (tp_worker.py)
        ("sglang serve --model-path MODEL --tp 8 --dp 8 --enable-dp-attention --max-running-requests 100", 96),
        ("sglang serve --model-path MODEL --tp 2 --dp 4 --max-running-requests 100", 400),
        ("sglang serve --model-path MODEL --tp 2 --pp-size 2 --max-running 100", 100),
        # of each rank and stage (py_executor.py)
        ("trtllm-serve MODEL --tp_size 8 --max_batch_size 16 enable_attention_dp: true", 128),
        ("trtllm-serve MODEL --tp_size 4 --pp_size 2 --max_batch_size 16", 32),
        ("trtllm-serve MODEL --tp_size 4 max_batch_size: 16 --max_num_tokens 8", 8),
        # requests beyond the lower of the two are not taken
        ("text-generation-launcher --model-id MODEL --max-concurrent-requests 64 --max-batch-size 32", 32),
        ("text-generation-launcher --model-id MODEL --max-concurrent-requests 16 --max-batch-size 32", 16),
        ("MAX_CONCURRENT_REQUESTS=16 text-generation-launcher --model-id MODEL", 16),
        ("docker run -e MAX_BATCH_SIZE=8 ghcr.io/huggingface/text-generation-inference:3.3 --model-id MODEL", 8),
        ("MAX_NUM_SEQS=8 vllm serve MODEL", None),
        # the engine's own choice
        ("llama-server -m MODEL -np -1", None), ("trtllm-serve MODEL --max_batch_size auto", None),
        # the first word that names an engine does
        ("python -m sglang.launch_server --model-path acme/vllm-tuned --max-running-requests 8", 8),
    ],
)  # fmt: skip
def test_a_limit_is_of_the_whole_replica(command: str, limit: int | None) -> None:
    assert read_launch(command.replace("MODEL", LLAMA)).limits.most == limit


def test_our_own_flag_says_the_same_and_goes_before_the_start_command() -> None:
    flags = ("--gpu", "H100", "--batches", "8,64", *LOAD)
    own = document("--model", LLAMA, "--batch-limit", "8", *flags)
    assert own == document("--launch", f"vllm serve {LLAMA} --max-num-seqs 8", *flags)
    assert own == document("--launch", f"vllm serve {LLAMA} --max-num-seqs 64", "--batch-limit", "8", *flags)
    assert refused("--model", LLAMA, "--gpu", "H100", "--batch-limit", "0")[0].startswith("flag --batch-limit: ")


@check_rows(
    ("command", "told"),
    [
        ("vllm serve MODEL --max-num-seqs", "--max-num-seqs has no size behind it"),
        ("vllm serve MODEL --max-num-seqs many", "--max-num-seqs has 'many', which is no number of its kind"),
        ("vllm serve MODEL --max-batch-size 8", "--max-batch-size is a flag of TensorRT-LLM; vLLM has --max-num-seqs"),
        ("trtllm-serve MODEL --max-num-seqs 8", "--max-num-seqs is a flag of vLLM; TensorRT-LLM has --max-batch-size"),
        ("sglang serve --model-path MODEL --tp 8 --dp 8 --enable-dp-attention --max-running-requests 4",
         "--max-running-requests 4 is not one for each rank of data-parallel attention"),
    ],
)  # fmt: skip
def test_a_limit_that_the_engine_would_not_take(command: str, told: str) -> None:
    (error,) = refused("--gpu", "H100", "--launch", command.replace("MODEL", LLAMA))
    assert error.startswith(f"flag --launch: {told}")


@check_rows(
    ("dialect", "flag"),
    [
        *((dialect, flag) for dialect in DIALECTS for flag, meaning in dialect.flags.items() if meaning == UNREAD),
        # of no engine that is known here
        *((dialect, flag) for dialect in DIALECTS for flag in ("--sequence-parallel-size", "--moe-xcp-size", "--vision-tp-size")),
    ],
    ids=lambda one: getattr(one, "name", one),
)  # fmt: skip
def test_a_parallel_size_that_is_not_read_has_no_answer(dialect: Dialect, flag: str) -> None:
    command = COMMANDS[dialect.name].replace("MODEL", LLAMA)
    (error,) = refused("--gpu", "H100", "--launch", f"{command} {flag} 2")
    assert error.startswith(f"flag --launch: how {flag} 2 spreads memory and work is not known here. Leave it away")
    found = document("--gpu", "H100", "--launch", f"{command} {flag} 1")
    assert found == document("--gpu", "H100", "--launch", command)


@pytest.mark.parametrize(
    "flags",
    ["--data-parallel-size-local 1", "--max-parallel-loading-workers 2", "--api-server-count 4", "--block-size 32"],
)
def test_numbers_that_are_no_size_of_a_layout_change_nothing(flags: str) -> None:
    command = f"vllm serve {LLAMA}"
    assert document("--gpu", "H100", "--launch", f"{command} {flags}") == document("--gpu", "H100", "--launch", command)


def _hybrid(command: str, memory: str, *flags: str) -> dict[str, object]:
    fit = document(
        "--gpu", "H100", "--memory", memory, "--batches", "8", "--context", "1024", *flags, "--launch", command
    )["fit"]
    return dict(fit)


def test_vllm_starts_with_a_block_of_state_for_each_sequence() -> None:
    """Qwen3.5-9B has 24 layers of gated DeltaNet and 8 of attention: a block is the state of 8 layers, 8.4 MiB in bf16. A vLLM 0.27 with
    0.88 GiB for the cache had 108 of them: "max_num_seqs (256) exceeds available Mamba cache blocks (108)"."""
    weights = document("--gpu", "H100", "--model", "Qwen3.5-9B")["model"]["weight_bytes"]
    memory = f"{(weights + 108.5 * 8.375 * 2**20) / 0.9 / 1e6:.0f}MB"
    over = _hybrid("vllm serve Qwen/Qwen3.5-9B --max-num-seqs 109", memory)
    assert over["fits"] is False
    assert "write 108 or less" in str(over["refusals"])
    within = _hybrid("vllm serve Qwen/Qwen3.5-9B --max-num-seqs 108", memory)
    assert (within["fits"], within["refusals"]) == (True, [])
    # each sequence has the state of all 24 layers: of those that it starts with not all run at once
    assert 0 < int(str(within["max_batch"])) < 36
    # what the command leaves to the engine is 256 or more
    notes = document("--gpu", "H100", "--memory", memory, "--launch", "vllm serve Qwen/Qwen3.5-9B")["notes"]
    (note,) = [one for one in notes if "recurrent" in one]
    assert note.startswith("vLLM refuses to start with vLLM's own limit, 256 or more by version and GPU")
    assert note.endswith("write 108 or less, with --max-num-seqs")


@check_rows("engine", ["TensorRT-LLM", "llama.cpp", "LMDeploy", "LightLLM"])
def test_state_that_is_taken_at_the_start_is_not_there_for_the_cache(engine: str) -> None:
    dialect = next(one for one in DIALECTS if one.name == engine)
    (flag, *_) = [flag for flag, meaning in dialect.flags.items() if meaning == SEQUENCES]
    command = COMMANDS[engine].replace("MODEL", "Qwen/Qwen3.5-9B")
    state = document("--gpu", "H100", "--model", "Qwen3.5-9B")["model"]["state_bytes_per_sequence"]
    one, many = (_hybrid(f"{command} {flag} {count}", "40GB") for count in (1, 101))
    assert int(str(one["free_kv_bytes"])) - int(str(many["free_kv_bytes"])) == pytest.approx(100 * state, abs=2)
    none = _hybrid(f"{command} {flag} 1000", "40GB")
    assert none["fits"] is False
    assert f"{engine} refuses to start with {flag} 1000: it takes the recurrent state of each" in str(none["refusals"])
    # a model without such state is not concerned
    assert _hybrid(f"{COMMANDS[engine].replace('MODEL', LLAMA)} {flag} 1000", "40GB")["refusals"] == []


def test_sglang_runs_fewer_where_the_state_of_all_does_not_fit() -> None:
    found = _hybrid("sglang serve --model-path Qwen/Qwen3.5-9B --max-running-requests 4096", "40GB")
    assert found["refusals"] == []
    assert 0 < int(str(found["max_batch"])) < 4096


@check_rows(
    ("command", "flags", "told"),
    [
        ("vllm serve MODEL --max-num-seqs 256 --max-num-batched-tokens 64", (),
         "vLLM refuses to start: --max-num-batched-tokens 64 is below --max-num-seqs 256"),
        ("vllm serve MODEL --max-model-len 128k", ("--memory", "24GB"), "vLLM refuses to start: a sequence of --max-model-len 128k keeps"),
        ("vllm serve MODEL --max-model-len 2048", ("--context", "4096"), "vLLM refuses 4096 tokens of context: --max-model-len 2048 of"),
        ("sglang serve --model-path MODEL --context-length 2048", ("--prompt", "4096"), "SGLang refuses 4096 tokens of context:"),
        ("trtllm-serve MODEL --max_seq_len 512", LOAD, "TensorRT-LLM refuses 700 tokens of context: --max_seq_len 512 of"),
    ],
)  # fmt: skip
def test_what_engines_refuse_of_their_limits(command: str, flags: tuple[str, ...], told: str) -> None:
    found = document("--gpu", "H100", "--batches", "1", *flags, "--launch", command.replace("MODEL", LLAMA))
    assert found["fit"]["fits"] is False
    assert any(note.startswith(told) for note in found["fit"]["refusals"])
    assert found["batches"][0]["fits"] is False


def test_a_shorter_context_of_the_engine_is_the_usual_one() -> None:
    command = f"vllm serve {LLAMA} --max-model-len 2048"
    assert document("--gpu", "H100", "--launch", command)["context_tokens"] == 2048
    assert "sequences of 2048 tokens" in table("--gpu", "H100", "--launch", command)["fits"]


def test_the_dtype_of_state_that_a_start_command_says_counts() -> None:
    def state(flags: str) -> float:
        found = document("--gpu", "H100", "--launch", f"vllm serve nvidia/Nemotron-H-8B-Base-8K {flags}")
        return float(found["model"]["state_bytes_per_sequence"])

    assert answered("Nemotron-H-8B")["model"]["state_bytes_per_sequence"] == state("--mamba-ssm-cache-dtype float32")
    assert state("--mamba_ssm_cache_dtype=float32") > 1.9 * state("")


@check_rows(
    ("command", "told"),
    [
        (
            "vllm serve MODEL --disable-hybrid-kv-cache-manager",
            "--disable-hybrid-kv-cache-manager of the start command has layers",
        ),
        ("llama-server -hf MODEL -c 8192 -np 4", "-c of the start command says how much memory the KV cache has"),
        ("llama-server -hf MODEL -np 4 --cpu-moe", "--cpu-moe of the start command keeps weights in the host's memory"),
        (
            "text-generation-launcher --model-id MODEL --quantize eetq",
            "--quantize of the start command changes how weights are kept",
        ),
        (
            "lmdeploy serve api_server MODEL --quant-policy 8",
            "--quant-policy of the start command changes how the KV cache is kept",
        ),
        (
            "sglang serve --model-path MODEL --moe-dense-tp-size 1",
            "--moe-dense-tp-size of the start command has each GPU keep",
        ),
    ],
)
def test_what_is_not_read_is_said(command: str, told: str) -> None:
    assert shlex.split(command)
    notes = document("--gpu", "H100", "--launch", command.replace("MODEL", LLAMA))["notes"]
    assert any(note.startswith(told) for note in notes)
