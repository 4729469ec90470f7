"""What engines call the sizes of a layout differs; a start command means one layout."""

from __future__ import annotations

import pytest

from llm_serving_exporter.commands.ceiling.launch import DIALECTS, Dialect, read_launch
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.facts.architectures import find_family
from llm_serving_exporter.model.hardware import Parallel
from tests.support.builders.ceilings import document, refused
from tests.support.rows import check_rows

R1 = "deepseek-ai/DeepSeek-R1"


@check_rows(
    ("command", "layout", "gpus"),
    [
        (f"vllm serve {R1} --tensor-parallel-size 8", Parallel(8), 8),
        (f"vllm serve {R1} -tp 1 -dp 8 --enable-expert-parallel", Parallel(1, 1, 8, 8), 8),
        # experts are shared with and without expert parallelism
        (f"vllm serve {R1} --tensor-parallel-size=2 --data-parallel-size=4", Parallel(2, 1, 4, 8), 8),
        (f"vllm serve {R1} -tp 8 -dcp 8 --max-model-len 8192", Parallel(8, context=8), 8),
        (f"VLLM_USE_DEEP_GEMM=1 vllm serve {R1} -tp 8 -pp 2 -ep", Parallel(8, 2, 1, 8), 16),
        (f"python3 -m vllm.entrypoints.openai.api_server --model {R1} --tensor_parallel_size 4", Parallel(4), 4),
        (
            f"python -m sglang.launch_server --model-path {R1} --tp 8 --dp 8 --enable-dp-attention",
            Parallel(1, 1, 8, 8),
            8,
        ),
        (
            f"python -m sglang.launch_server --model-path {R1} --tp 16 --dp 4 --enable-dp-attention",
            Parallel(4, 1, 4, 16),
            16,
        ),
        (f"python -m sglang.launch_server --model-path {R1} --tp-size 8 --ep-size 8", Parallel(8, 1, 1, 8), 8),
        ("sglang serve --model-path Qwen/Qwen3-32B --tp 2 --dp 4", Parallel(2, 1, 4), 8),
        (f"trtllm-serve {R1} --tp_size 8 --ep_size 8 --config x.yml", Parallel(8, 1, 1, 8), 8),
        (f"trtllm-serve {R1} --tp_size 8 enable_attention_dp: true", Parallel(1, 1, 8, 8), 8),
        (f"trtllm-serve serve {R1} --tp_size 8 --enable_attention_dp --pp_size 2", Parallel(1, 2, 8, 8), 16),
        (f"trtllm-serve {R1} --tp_size 8 enable_attention_dp: false", Parallel(8), 8),
        # argparse, which vLLM and SGLang read their flags with, takes a flag that is cut short (docs.python.org/3/library/argparse.html,
        # allow_abbrev)
        (f"vllm serve {R1} --tensor-parallel 8 --pipeline=2 --enable-expert", Parallel(8, 2, 1, 8), 16),
        (f"sglang serve --model-path {R1} --tensor 8 --data-parallel 8 --enable-dp", Parallel(1, 1, 8, 8), 8),
        # SGLang's decode context parallelism (srt/arg_groups/fields/parallel.py, dcp_size)
        (f"sglang serve --model-path {R1} --tp 8 --dcp-size 8", Parallel(8, context=8), 8),
        (f"vllm serve {R1} -tp 8 -pcp 1", Parallel(8), 8),
    ],
)
def test_a_start_command_is_one_layout(command: str, layout: Parallel, gpus: int) -> None:
    found = read_launch(command)
    assert found.layout == layout
    assert found.layout.gpus == gpus


@check_rows(
    ("command", "engine", "model"),
    [
        (f"vllm serve {R1} -tp 8", "vLLM", R1),
        (f"python -m sglang.launch_server --model-path={R1} --tp 8", "SGLang", R1),
        (f"trtllm-serve serve {R1}", "TensorRT-LLM", R1),
        ("vllm serve --tensor-parallel-size 2", "vLLM", None),
    ],
)
def test_a_start_command_names_engine_and_model(command: str, engine: str, model: str | None) -> None:
    found = read_launch(command)
    assert (found.engine, found.model) == (engine, model)


def test_eight_gpus_and_not_sixty_four() -> None:
    flags = ("--gpu", "H200", "--kv-dtype", "fp8")
    sglang = document("--launch", f"sglang --model-path {R1} --tp 8 --dp 8 --enable-dp-attention", *flags)
    assert sglang["gpu"]["count"] == 8
    assert sglang == document("--model", R1, "--tp", "1", "--dp", "8", "--ep", "8", *flags)
    trtllm = document("--launch", f"trtllm-serve {R1} --tp_size 8 enable_attention_dp: true", *flags)
    assert trtllm == sglang


def test_dense_data_parallelism_is_whole_copies() -> None:
    flags = ("--gpu", "H100", "--batches", "64")
    copies = document("--launch", "vllm serve meta-llama/Llama-3.1-70B -tp 4 -dp 2 -ep", *flags)
    assert copies["gpu"]["expert_parallel_size"] == 1
    one = document("--model", "Llama-3.1-70B", "--tp", "4", "--gpu", "H100", "--batches", "32")
    assert copies["batches"][0]["tokens_per_second"] == pytest.approx(2 * one["batches"][0]["tokens_per_second"])
    assert copies["fit"]["max_batch"] == 2 * one["fit"]["max_batch"]


@check_rows(
    ("words", "told"),
    [
        (("--launch", "ollama run llama3"), "flag --launch: no word of it names an engine that is known here: vLLM, SGLang, TensorRT-LLM,"),
        (("--launch", "vllm serve x -tp many"), "flag --launch: -tp has 'many', which is no size."),
        (("--launch", "vllm serve x -tp"), "flag --launch: -tp has no size behind it."),
        (("--launch", "vllm serve x -tp -pp 2"), "flag --launch: -tp has no size behind it."),
        (("--launch", "sglang --model-path --tp 2"), "flag --launch: --model-path has no name behind it."),
        (("--launch", "vllm serve x --tp"), "flag --launch: --tp is a flag of SGLang; vLLM has --tensor-parallel-size or -tp."),
        (("--launch", "trtllm-serve x --dp=2"), "flag --launch: --dp is a flag of SGLang."),
        (("--launch", "vllm serve x --quantization"), "flag --launch: --quantization has no format behind it."),
        (("--launch", "vllm serve x --gpu-memory-utilization 90"), "flag --launch: --gpu-memory-utilization has '90', which is no share"),
        (("--launch", "vllm serve 'x"), "flag --launch: No closing quotation."),
        (("--launch", "vllm serve x --speculative-config {num_speculative_tokens:3}"),
         "flag --launch: --speculative-config has '{num_speculative_tokens:3}', which is no JSON of settings: quote it."),
        # each rank more of prefill context parallelism is as many GPUs more (vLLM config/parallel.py, world_size)
        (("--launch", "vllm serve x -tp 8 --prefill-context-parallel-size=2"),
         "flag --launch: how --prefill-context-parallel-size 2 spreads memory and work is not known here. Leave it away"),
        (("--launch", "sglang serve --model-path x --tp 8 --attn-cp-size 8"), "flag --launch: how --attn-cp-size 8 spreads"),
        (("--launch", "sglang serve --model-path x --speculative 2"), "flag --launch: --speculative may be "),
        (("--launch", "sglang --tp 8 --dp 3 --enable-dp-attention"), "flag --launch: data-parallel attention of 3 does not divide"),
        (("--launch", "vllm serve x", "--tp", "2"), "flag --launch: it says the layout, and so does --tp. Leave --tp away."),
    ],
)  # fmt: skip
def test_a_start_command_that_cannot_be_read(words: tuple[str, ...], told: str) -> None:
    assert refused("--model", "Llama-3.1-8B", "--gpu", "H100", *words)[0].startswith(told)


@check_rows(
    ("launched", "own"),
    [
        # flags of vLLM 0.10 (engine/arg_utils.py), SGLang 0.5 (server_args.py) and trtllm-serve (commands/serve.py), and ours for the same
        ("vllm serve Qwen/Qwen3-32B -tp 2 --quantization fp8 --kv-cache-dtype fp8_e4m3 --gpu-memory-utilization 0.95",
         ("--dtype", "fp8", "--kv-dtype", "fp8_e4m3", "--memory-utilization", "0.95")),
        ("vllm serve Qwen/Qwen3-32B -tp 2 --dtype half --kv_cache_dtype=auto -q none", ("--dtype", "fp16")),
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2 --kv-cache-dtype fp8_e5m2 --mem-fraction-static 0.8",
         ("--kv-dtype", "fp8_e5m2", "--memory-utilization", "0.8")),
        ("trtllm-serve Qwen/Qwen3-32B --tp_size 2 --kv_cache_dtype fp8", ("--kv-dtype", "fp8")),
        # a checkpoint says more of itself than the word of the flag
        ("vllm serve Qwen/Qwen3-32B-FP8 -tp 2 --quantization fp8 --dtype bfloat16", ("--model", "Qwen3-32B-FP8")),
    ],
)  # fmt: skip
def test_formats_and_memory_share_of_a_start_command_count(launched: str, own: tuple[str, ...]) -> None:
    flags = ("--gpu", "H200", "--batches", "1,64")
    model = () if "--model" in own else ("--model", "Qwen3-32B")
    found, expected = document("--launch", launched, *flags), document(*model, *own, "--tp", "2", *flags)
    assert found["model"].pop("origin")
    assert expected["model"].pop("origin")
    assert found == expected


@pytest.mark.parametrize("engine", ["vllm serve", "sglang serve --model-path"])
def test_fp8_of_deepseek_v4_is_its_own_layout(engine: str) -> None:
    # vLLM's models/deepseek_v4/attention.py, SGLang's deepseek_v4_memory_pool.py; without the flag it is the same
    name, flags = "deepseek-ai/DeepSeek-V4-Flash", ("--gpu", "H200", "--batches", "64")
    said = document("--launch", f"{engine} {name} --kv-cache-dtype fp8_e4m3", *flags)
    assert said["fit"] == document("--launch", f"{engine} {name}", *flags)["fit"]
    assert said["model"]["kv_format"] == "fp8_ds_mla"


def test_what_the_command_line_itself_says_goes_before_the_start_command() -> None:
    launched = "vllm serve Qwen/Qwen3-32B --kv-cache-dtype fp8 --gpu-memory-utilization 0.95"
    own = ("--kv-dtype", "bf16", "--memory-utilization", "0.5", "--gpu", "H200")
    assert document("--launch", launched, *own)["fit"] == document("--model", "Qwen3-32B", *own)["fit"]


def test_a_kv_dtype_that_is_none_says_which_flag_to_write() -> None:
    (told,) = refused("--launch", "vllm serve Qwen/Qwen3-32B --kv-cache-dtype $KV", "--gpu", "H200")
    assert told.startswith("flag --model: the start command's KV cache dtype '$KV' is not known")
    assert told.endswith("Say it with --kv-dtype.")


@check_rows(
    ("flags", "own"),
    [
        ("vllm serve MODEL --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 3}'", 3),
        ("vllm serve MODEL --speculative-config.method=eagle3", None),
        ("vllm serve MODEL --speculative-config.method mtp --speculative-config.num_speculative_tokens 2", 2),
        ("vllm serve MODEL --spec-method ngram --spec-tokens 5", 5),
        # 0.6 to 0.8
        ("vllm serve MODEL --speculative-model x --num-speculative-tokens 4", 4),
        # a chain of n steps is n + 1 tokens to check, the one that is none of them included (SGLang's docs, advanced_features)
        ("sglang --model-path MODEL --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
         "--speculative-num-draft-tokens 4", 3),
        ("sglang --model-path MODEL --speculative-algorithm NEXTN --speculative-num-steps 2", 2),
        ("sglang --model-path MODEL --speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-eagle-topk 8 "
         "--speculative-num-draft-tokens 64", 63),
        # the sizes of a tree are SGLang's own choice where they are not said
        ("sglang --model-path MODEL --speculative-algorithm EAGLE", None),
        ("sglang --model-path MODEL --speculative-algorithm none --speculative-num-steps 3", 0),
        ("sglang --model-path MODEL --speculative-num-steps 3", 0),
    ],
)  # fmt: skip
def test_drafts_of_a_start_command_count(flags: str, own: int | None) -> None:
    command = flags.replace("MODEL", "Qwen/Qwen3-32B")
    asked = ("--gpu", "H200", "--batches", "1,64")
    if own is None:
        (told,) = refused("--launch", command, *asked)
        assert told == "flag --launch: it does not say how many tokens a step drafts. Say it with --spec."
        own = 7
        found = document("--launch", command, *asked, "--spec", "7")
    else:
        found = document("--launch", command, *asked)
    expected = document("--model", "Qwen3-32B", *asked, *(("--spec", str(own)) if own else ()))
    assert found["batches"] == expected["batches"]
    # nothing real is above "at best": without the drafts of the command it would be
    without = document("--model", "Qwen3-32B", *asked)["batches"][0]["tokens_per_second_upper"]
    assert (found["batches"][0]["tokens_per_second_upper"] > without) is (own > 0)


@check_rows(
    ("flags", "told"),
    [
        ("vllm serve Qwen/Qwen3-32B --config vllm.yaml", "vllm.yaml, which --config names, is not read: what it says of layout, formats"),
        ("trtllm-serve Qwen/Qwen3-32B --extra_llm_api_options x.yml", "x.yml, which --extra_llm_api_options names, is not read"),
        ("vllm serve Qwen/Qwen3-32B --cpu-offload-gb 40", "--cpu-offload-gb of the start command keeps weights in the host's memory"),
        ("vllm serve Qwen/Qwen3-32B --kv-cache-memory-bytes=20G", "--kv-cache-memory-bytes of the start command says how much memory"),
        ("trtllm-serve Qwen/Qwen3-32B --kv_cache_free_gpu_memory_fraction 0.5", "--kv_cache_free_gpu_memory_fraction of the"),
        ("sglang --model-path Qwen/Qwen3-32B --ep-num-redundant-experts 32", "--ep-num-redundant-experts of the start command keeps"),
    ],
)  # fmt: skip
def test_what_a_start_command_says_beyond_the_answer_is_said(flags: str, told: str) -> None:
    notes = document("--launch", flags, "--gpu", "H200")["notes"]
    assert any(note.startswith(told) for note in notes)
    assert not document("--launch", "vllm serve Qwen/Qwen3-32B --cpu-offload-gb 0", "--gpu", "H200")["notes"]


def test_a_start_command_that_is_refused_is_one_fault() -> None:
    assert len(refused("--launch", "vllm serve Qwen/Qwen3-32B -tp many", "--gpu", "H200")) == 1


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_own_layouts_are_those_of_the_engines_table(dialect: Dialect) -> None:
    (runtime,) = (one for one in RUNTIMES.values() if one.title == dialect.name)
    assert dialect.own_layouts == {name for name in runtime.kv_as_calibrated if find_family(name) is not None}


@check_rows(
    "command",
    [
        "vllm serve MODEL --runner pooling", "vllm serve MODEL --task embed",
        "vllm serve MODEL --convert=classify", "vllm serve MODEL --task score",
        "sglang serve --model-path MODEL --is-embedding", "llama-server -hf MODEL --embeddings --rerank",
    ],
)  # fmt: skip
def test_a_server_that_pools_has_a_ceiling_of_prompt_tokens(command: str) -> None:
    flags = ("--gpu", "H100", "--prompt", "512")
    for name, bare in (
        ("Qwen/Qwen3-0.6B", "jina-embeddings-v5-text-small"),
        ("meta-llama/Llama-3.1-8B", "llama-embed-nemotron-8b"),
    ):
        found = document("--launch", command.replace("MODEL", name), *flags)
        expected = document("--model", bare, *flags)
        assert found["embedding"] == expected["embedding"]
        assert found["model"]["weight_bytes"] == expected["model"]["weight_bytes"]
        assert (found["batches"], found["fit"]["kv_bytes_per_sequence"]) == ([], 0)
    assert document("--launch", "vllm serve Qwen/Qwen3-0.6B --runner generate", *flags)["embedding"] is None
