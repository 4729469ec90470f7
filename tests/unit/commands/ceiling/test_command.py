"""`ceiling` as a command: what it refuses and how it says so, its table, its help, the pages about it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from llm_serving_exporter.facts import loader
from tests.support.builders.ceilings import answered, asked, config, document, refused, table
from tests.support.models.modelfolders import LLAMA, folder
from tests.support.paths import ROOT
from tests.support.rows import check_rows

MODEL = ("--model", "Llama-3.1-8B")
GPU = ("--gpu", "H100")
BOTH = (*MODEL, *GPU)


# --- refusals ---------------------------------------------------------------------------------------------------------

REFUSALS = [
    (GPU, "flag --model: it is missing. Write a name such as Llama-3.1-8B, or the path of a config.json."),
    ((*GPU, "--model", " "), "flag --model: it is missing. Write a name such as Llama-3.1-8B, or the path of a config.json."),
    (MODEL, 'flag --gpu: it is missing. Write a name such as "H100 SXM", or "this one" to ask NVML.'),
    (
        (*GPU, "--model", "Llama-3.1-8B-exl2"),
        "flag --model: the name of Llama-3.1-8B says 'exl2', which does not tell how its weights are stored. "
        "Say the format with --dtype, or give --model the path of its config.json.",
    ),
    (
        (*GPU, "--model", "/nowhere/config.json"),
        "flag --model: '/nowhere/config.json' cannot be read: No such file or directory; check the path and that this process may read it.",
    ),
    ((*BOTH, "--dtype", "fp9"), 'flag --dtype: "fp9" is not a weight format. Did you mean fp8?'),
    (
        (*BOTH, "--dtype", "tiny"),
        'flag --dtype: "tiny" is not a weight format. Write one such as bf16, fp8, int8, int4, awq, gptq, nvfp4, mxfp4 or q4_k_m.',
    ),
    ((*BOTH, "--kv-dtype", "fp7"), 'flag --kv-dtype: "fp7" is not a KV cache dtype. Did you mean fp8?'),
    (
        (*BOTH, "--state-dtype", "int4"),
        'flag --state-dtype: "int4" is not a dtype of recurrent state. Write one such as fp32 or bf16.',
    ),
    (
        (*BOTH, "--hf-cache", "/nowhere"),
        'flag --hf-cache: "/nowhere" is not a folder. Give the one that holds models--… folders.',
    ),
    (
        (*BOTH, "--gpus", "8", "--tp", "4"),
        "flag --gpus: tensor 4 x pipeline 1 is one replica of 4 GPUs, not 8. "
        "Leave --gpus away: 2 replicas do that many times what one does.",
    ),
    (
        (*BOTH, "--gpus", "7", "--pp", "2"),
        "flag --gpus: 7 GPUs are no whole number of replicas of tensor 1 x pipeline 2. "
        "Leave --gpus away: one replica is worked out, of tp x pp x dp GPUs.",
    ),
    ((*BOTH, "--pp", "33"), "flag --pp: Llama-3.1-8B has 32 layers. Write no more stages than that."),
    ((*BOTH, "--tp", "0"), "flag --tp: 0 is out of range. Write a whole number from 1 to 4096."),
    ((*BOTH, "--tp", "1000000000"), "flag --tp: 1000000000 is out of range. Write a whole number from 1 to 4096."),
    ((*BOTH, "--gpus", "two"), 'flag --gpus: "two" is not a whole number. Write one from 1 to 4096.'),
    ((*BOTH, "--context", "0"), "flag --context: 0 is out of range. Write a whole number from 1 to 1000000000."),
    ((*BOTH, "--context", "4k"), 'flag --context: "4k" is not a whole number. Write one from 1 to 1000000000.'),
    ((*BOTH, "--prompt", "-5"), "flag --prompt: -5 is out of range. Write a whole number from 1 to 1000000000."),
    ((*BOTH, "--batches", "8,0"), 'flag --batches: "0" is not a batch from 1 to 10000000. Write whole numbers, as in 1,8,32.'),
    ((*BOTH, "--batches", "1,,8"), 'flag --batches: "" is not a batch from 1 to 10000000. Write whole numbers, as in 1,8,32.'),
    ((*BOTH, "--batches", "²"), 'flag --batches: "²" is not a batch from 1 to 10000000. Write whole numbers, as in 1,8,32.'),
    (
        (*BOTH, "--batches", "10000001"),
        'flag --batches: "10000001" is not a batch from 1 to 10000000. Write whole numbers, as in 1,8,32.',
    ),
    (
        (*BOTH, "--batches", ",".join(map(str, range(1, 1002)))),
        "flag --batches: these are 1001 batches. Write at most 1000.",
    ),
    ((*BOTH, "--price", "-1"), 'flag --price: "-1" is not a price of 0 or more. Write one such as 2.99.'),
    ((*BOTH, "--price", "$3"), 'flag --price: "$3" is not a price of 0 or more. Write one such as 2.99.'),
    ((*BOTH, "--price", "nan"), 'flag --price: "nan" is not a price of 0 or more. Write one such as 2.99.'),
    ((*BOTH, "--price", "inf"), 'flag --price: "inf" is not a price of 0 or more. Write one such as 2.99.'),
    ((*BOTH, "--memory", "80"), 'flag --memory: "80" is not a size of memory. Write one as in 80GB (10^9) or 80GiB (2^30).'),
    ((*BOTH, "--memory", "80G"), 'flag --memory: "80G" is not a size of memory. Write one as in 80GB (10^9) or 80GiB (2^30).'),
    ((*BOTH, "--memory", "0"), "flag --memory: a GPU without memory holds no model. Write one as in 80GB."),
    ((*BOTH, "--memory", "9000TB"), 'flag --memory: "9000TB" is more than a GPU has. Write the memory of one GPU, as in 80GB.'),
    ((*BOTH, "--overhead", "80GB"), "flag --overhead: it takes all memory that the engine may use. Write less."),
    (
        (*BOTH, "--memory-utilization", "0"),
        'flag --memory-utilization: "0" is not a share above 0 and up to 1. Write one such as 0.9.',
    ),
    (
        (*BOTH, "--memory-utilization", "90"),
        'flag --memory-utilization: "90" is not a share above 0 and up to 1. Write one such as 0.9.',
    ),
    ((*BOTH, "--efficiency", "1.01"), 'flag --efficiency: "1.01" is not a share above 0 and up to 1. Write one such as 0.9.'),
    ((*BOTH, "--redundancy", "0"), 'flag --redundancy: "0" is not a factor from 1 to 1000. Write one such as 1.3.'),
    (
        (*BOTH, "--requests-per-second", "1", "--input-tokens", "0", "--output-tokens", "1"),
        'flag --input-tokens: "0" is not a number of at least 1. Write one such as 500.',
    ),
    (
        ("--model", "bge-m3", *GPU, "--requests-per-second", "1", "--input-tokens", "9", "--output-tokens", "1"),
        "flag --output-tokens: an encoder puts out none. Leave it away.",
    ),
]  # fmt: skip


@check_rows(("words", "message"), REFUSALS, ids=lambda value: " ".join(value)[-60:] if isinstance(value, tuple) else "")
def test_a_refusal_names_the_flag_what_is_wrong_and_what_to_do(words: tuple[str, ...], message: str) -> None:
    assert refused(*words) == [message]
    assert refused(*words, "--json") == [message]
    assert "targets[]" not in message


def test_names_that_nothing_has_name_the_nearest_and_what_to_do() -> None:
    (model,) = refused(*GPU, "--model", "Llama-3.1-9B")
    assert model.startswith("flag --model: model 'Llama-3.1-9B' is not in the built-in catalogue (nearest: ")
    assert "Llama-3.1-8B" in model
    assert model.endswith(
        "). Give --model the path of its config.json, or the catalogue's name of a model of the same sizes."
    )
    (gpu,) = refused(*MODEL, "--gpu", "H1000")
    assert gpu.startswith("flag --gpu: GPU 'H1000' is not in the catalogue; nearest: H100 SXM 80GB, ")
    assert gpu.endswith(
        ". Write one of the catalogue's names, without a number of GPUs and without a MIG profile, or describe the card "
        "(docs/ceiling-command.md, Your own card)."
    )


def test_every_problem_is_said_at_once() -> None:
    words = "--dtype tiny --kv-dtype x --state-dtype y --hf-cache /nowhere --gpus 4 --tp 3 --memory 80 --overhead x --context 0 --prompt 0"
    words += " --batches 0 --price x --memory-utilization 2 --requests-per-second x --target-utilization 0 --redundancy 0 --efficiency 0"
    flags = [line.split(" ")[1].rstrip(":") for line in refused(*words.split())]
    missing = {"--model", "--gpu", "--input-tokens", "--output-tokens"}
    assert set(flags) == missing | {word for word in words.split() if word.startswith("--")} - {"--tp"}
    assert len(flags) == len(set(flags))


def test_a_load_needs_all_of_its_three_figures() -> None:
    assert refused(*BOTH, "--requests-per-second", "5") == [
        "flag --input-tokens: it is missing. Give it: a load needs its rate, its input and its output tokens.",
        "flag --output-tokens: it is missing. Give it: a load needs its rate, its input and its output tokens.",
    ]
    assert refused("--model", "bge-m3", *GPU, "--input-tokens", "5") == [
        "flag --requests-per-second: it is missing. Give it: a load needs its rate, its input and its output tokens."
    ]


@pytest.mark.parametrize("words", [("--modle", "x"), ("--model",), ("Llama",)])
def test_words_that_it_does_not_know_are_usage(words: tuple[str, ...]) -> None:
    found = asked(*words)
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("usage: llm-serving-exporter ceiling --model MODEL --gpu GPU [OPTIONS]\n")


BAD_CONFIGS = {
    "no JSON": ("{", "is not valid JSON"),
    "a list": ("[]", "is not a JSON object"),
    "nothing": ("{}", "it has no model_type, by which a formula is chosen; copy the config.json"),
    "another architecture": ('{"model_type": "hyena"}', "model_type is 'hyena', which no formula here covers"),
    "a field missing": ('{"model_type": "llama", "hidden_size": 8}', "(llama): num_hidden_layers is missing"),
    "a field of another kind": (json.dumps({**LLAMA, "hidden_size": "256"}), "hidden_size is '256', not a whole number"),
    "layers without end": (json.dumps({**LLAMA, "num_hidden_layers": 10**9}), "num_hidden_layers is 1000000000, more than 4096"),
    "another quantisation": (json.dumps({**LLAMA, "quantization_config": {"quant_method": "magic"}}), "'magic'"),
}  # fmt: skip


@check_rows("name", BAD_CONFIGS)
def test_a_config_json_that_does_not_do_says_where(tmp_path: Path, name: str) -> None:
    text, said = BAD_CONFIGS[name]
    (tmp_path / "config.json").write_text(text)
    (message,) = refused("--model", str(tmp_path), *GPU)
    assert message.startswith("flag --model: ")
    assert str(tmp_path) in message
    assert said in message


@check_rows("path", ["/dev/zero", "/dev/null", "/etc", "/etc/hostname", "\0.json", "x" * 5000 + ".json"])
def test_paths_that_are_no_model_are_refused(path: str) -> None:
    (message,) = refused("--model", path, *GPU)
    assert message.startswith("flag --model: ")
    assert len(message) < 4400


def test_a_folder_without_a_config_json_says_what_to_point_at(tmp_path: Path) -> None:
    assert refused("--model", str(tmp_path), *GPU) == [
        f"flag --model: '{tmp_path}' holds no config.json; point at the folder that a server loads the model from, or at its config.json."
    ]


def test_control_characters_are_not_printed() -> None:
    found = asked("--model", "a\x1b[31m", "--gpu", "h\x1b[31m", "--dtype", "\x1b", "--batches", "\x1b")
    assert found.status == 2
    assert "\x1b" not in found.err
    assert len(found.errors) == 4


# --- what people read -------------------------------------------------------------------------------------------------


def test_the_table_of_a_dense_model() -> None:
    """Whole: 70.55 GB of weights a step and 1.342 GB of KV a sequence over 13.4 TB/s."""
    words = (
        "--model",
        "Llama-3.1-70B",
        "--gpu",
        "H100 SXM",
        "--tp",
        "4",
        "--dtype",
        "fp8",
        "--price",
        "2.99",
        "--batches",
        "1,64,256",
    )
    assert (
        asked(*words).out
        == """\
model         Llama-3.1-70B (built-in catalogue: Llama-3.1-70B; weights bf16, fp8 as configured; KV cache bf16 as the model)
parameters    70.6B, 69.5B read by a decode step of one sequence
weights       67.7 GiB in bf16 + fp8
KV cache      320 KiB a token in bf16
GPUs          4 x H100 SXM 80GB, tensor 4, pipeline 1
peaks of one  3.35 TB/s by catalogue; fp32 67 TFLOP/s, bf16 990 TFLOP/s, fp8 1979 TFLOP/s, int8 1979 TFLOP/s
price         $11.96 an hour
fits          yes: 219 GiB free for KV, at most 175 sequences of 4096 tokens (90 % of 79.6 GiB a GPU)
ridge batch   none: reading 4096 tokens of KV takes longer than computing with them; for the weights alone 296
first token   76.4 ms at these peaks, for a prompt of 4096 tokens alone

batch  tokens/s  at best  per sequence  ms/step      bound  $/M tokens
    1     186.4    186.4         186.4     5.37  bandwidth       17.83
   64   5,481.5  5,481.5          85.6    11.68  bandwidth      0.6061
  256   8,282.9  8,282.9          32.4    30.91  bandwidth      0.4011  does not fit
"""
    )


def test_mixture_of_experts_and_price_in_thousands() -> None:
    words = ("--model", "Mixtral-8x7B", "--gpu", "H100", "--price", "12345", "--batches", "1")
    rows = table(*words)
    assert (rows["experts"], rows["price"]) == ("2 of 8 a token and layer", "$12,345.00 an hour")
    assert asked(*words).out.count("e+0") == 0


PAGES = ("docs/ceiling.md", "docs/ceiling-command.md")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_is_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of `$ llm-serving-exporter ceiling …` with its output behind it; `…` on a line of its own leaves some out."""
    monkeypatch.chdir(folder(tmp_path))
    text = (ROOT / page).read_text()
    shown = [
        (command.replace("\\\n", " "), output)
        for block in re.findall(r"```(?:text|console)\n(.*?)```", text, re.DOTALL)
        for command, output in re.findall(
            r"\$ llm-serving-exporter (ceiling .*?[^\\])\n(.*?)(?=\n?\$ |\Z)", block, re.DOTALL
        )
    ]
    assert shown, page
    for command, output in shown:
        done = asked(*shlex.split(command)[1:])
        printed = done.out + done.err
        at = 0
        for part in re.split(r"^…$\n?", output, flags=re.MULTILINE):
            found = printed.find(part, at)
            assert found >= 0, f"{command} does not print\n{part}\nbut\n{printed}"
            at = found + len(part)


def test_the_page_names_every_flag_and_every_key() -> None:
    text = (ROOT / "docs/ceiling-command.md").read_text()
    flags = set(re.findall(r"^  (--[a-z-]+)", asked("--help").out, re.MULTILINE)) - {"--version"}
    assert len(flags) == 42
    assert {flag for flag in flags if f"`{flag}" not in text and f"{flag}`" not in text} == set()
    found = document("--model", "bge-m3", *GPU)
    keys = {
        *found,
        *found["model"],
        *found["gpu"],
        *found["fit"],
        *found["embedding"],
        *found["speculation"],
        *answered("Llama-3.1-8B")["batches"][0],
    }
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_the_catalogues_are_read_by_nothing_but_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal for want of a model and a GPU parses neither file."""
    loader.gpu_catalogue.cache_clear()
    monkeypatch.setattr(loader, "model_catalogue", None)
    refused("--price", "x")
    assert loader.gpu_catalogue.cache_info().currsize == 0


def test_a_home_without_a_cache_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert answered("meta-llama/Llama-3.1-8B")["model"]["parameters_total"] == 8_030_261_248
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert answered("meta-llama/Llama-3.1-8B")["model"]["parameters_total"] == 8_030_261_248
    assert answered(config(tmp_path, LLAMA))["model"]["parameters_total"] > 0
