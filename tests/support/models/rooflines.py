"""Published measurements with every input of their bytes per step: the rows of facts model-math F that are exact tests.

Everything comes through the code that ships: shapes from the model catalogue, formats by `quantisation`, peaks from the
GPU catalogue. Where the table left something out or counted otherwise, the row names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from llm_serving_exporter.derive.roof import Ceiling, decode_ceiling
from llm_serving_exporter.derive.traffic import add_flops
from llm_serving_exporter.derive.work import (
    Roof,
    compute_seconds,
    kv_read_bytes,
    prefill_flops,
    token_flops,
    weight_read_bytes,
)
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.loader import gpu_catalogue, model_catalogue
from llm_serving_exporter.facts.peaks import peaks_of_spec
from llm_serving_exporter.facts.quantisation import assign, uniform, weigh
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.shape import ModelFacts, Precision, WeightFormat

BF16, FP16, FP8, NVFP4 = formats.BF16, formats.FP16, formats.FP8, formats.NVFP4
INT8_ALL = formats.INT8_WEIGHT_ONLY


@cache
def catalogued(name: str) -> Mapping[str, Any]:
    """The catalogue's config.json of a model, without the quantisation of its own checkpoint."""
    config = model_catalogue().find(name).entry.config
    return {key: value for key, value in config.items() if key != "quantization_config"}


@dataclass(frozen=True)
class Published:
    """One measurement. `tokens_per_second` of one replica of `tensor` GPUs, decoding `batch` sequences of mean `context` tokens.

    `prompt` and `output`: mean tokens of a request, where prefill shares the step; 0 where the measurement is of decode alone.
    `everything`: the format holds for lm_head and routers too, else for what engines quantise. `modelopt`: what an NVFP4 checkpoint's
    hf_quant_config.json excludes, instead of a format. `whole_lm_head`: every rank keeps it. `told_*`: the table's figures; bytes of the
    step over all GPUs in GB, shares in percent as printed. `own_gb_per_second`: bandwidth that the measuring program itself
    printed, per GPU. `table_leaves_out_state`, `table_samples_prompts`: where the table's arithmetic differs from ours.
    """

    row: str
    source: str
    model: str
    gpu: str
    tokens_per_second: float
    told_gb: float
    told_mbu: str
    told_mfu: str = ""
    weights: WeightFormat = BF16
    everything: bool = False
    modelopt: tuple[str, ...] = ()
    kv_bytes: float = 2.0
    tensor: int = 1
    batch: float = 1.0
    context: float = 0.0
    prompt: float = 0.0
    output: float = 0.0
    stated: Precision = Precision.BF16
    whole_lm_head: bool = False
    own_gb_per_second: float | None = None
    table_leaves_out_state: bool = False
    table_samples_prompts: bool = False

    def __str__(self) -> str:
        return f"row {self.row}, {self.source}: {self.model} on {self.tensor} x {self.gpu}, batch {self.batch:.0f}"

    @property
    def facts(self) -> ModelFacts:
        config = catalogued(self.model)
        shape = geometry(config)
        if self.modelopt:
            quantization = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": list(self.modelopt)}
            made = assign(config, {"producer": {"name": "modelopt"}, "quantization": quantization}, shape)
        elif self.everything:
            made = uniform(shape, self.weights)
        else:
            made = assign(config, None, shape, override=self.weights)
        return ModelFacts(self.model, self.source, shape, weigh(shape, made), self.kv_bytes, "test")

    @property
    def roof(self) -> Roof:
        facts = self.facts
        replicated = sum(group.lm_head_bytes for group in facts.groups) if self.whole_lm_head else 0.0
        return Roof(facts, peaks_of_spec(find(self.gpu, gpu_catalogue())), Parallel(self.tensor), replicated)

    @property
    def ceiling(self) -> Ceiling:
        found = decode_ceiling(self.roof, self.batch, self.context)
        assert found is not None
        return found

    @property
    def step_bytes(self) -> float:
        """All GPUs together."""
        roof = self.roof
        kv = self.batch * kv_read_bytes(roof, self.context)
        return weight_read_bytes(roof, self.batch).expected + kv

    @property
    def state_bytes(self) -> float:
        """Recurrent state, which a step reads and writes."""
        return 2 * self.batch * self.facts.state_bytes_per_sequence()

    @property
    def bandwidth_share(self) -> float:
        return self.tokens_per_second / self.ceiling.bandwidth_tokens_per_second

    def flops_per_second(self, *, sample_prompts: bool = False) -> dict[Precision, float]:
        """Decode, and the prefill that goes with it; `sample_prompts`: logits for each prompt token, not only for a prompt's last."""
        roof = self.roof
        decode = token_flops(roof, self.context)
        rates = {precision: flops * self.tokens_per_second for precision, flops in decode.items()}
        if not self.prompt:
            return rates
        sampled = self.prompt if sample_prompts else 1.0
        prompts = self.tokens_per_second / self.output
        one = prefill_flops(roof, self.prompt, 0.0, sampled)
        return add_flops(rates, {precision: flops * prompts for precision, flops in one.items()})

    def compute_share_of_stated_rate(self, *, sample_prompts: bool = False) -> float:
        """As the table has it: all FLOPs at the dense rate of the stated precision."""
        rate = self.roof.peaks.flops[self.stated] * self.tensor
        return sum(self.flops_per_second(sample_prompts=sample_prompts).values()) / rate

    @property
    def compute_share(self) -> float:
        """As the product has it: attention at BF16's rate, matrices at their format's."""
        seconds = compute_seconds(self.roof, self.flops_per_second())
        assert seconds is not None
        return seconds


def _little(tokens_per_second: float, seconds_per_token: float, replicas: int) -> dict[str, float]:
    """Batch and rate of one replica by Little's law."""
    each = tokens_per_second / replicas
    return {"tokens_per_second": each, "batch": each * seconds_per_token}


def _latency(batch: int, output: int, seconds: float) -> dict[str, float]:
    """vLLM's latency benchmark: `batch` answers of `output` tokens in so many seconds, the prefill of 32 tokens each among them."""
    return {"tokens_per_second": batch * output / seconds, "batch": batch, "context": 32 + output / 2}


_A100, _H100, _H200, _B200, _MI300X = "A100-SXM4-80GB", "H100 SXM", "H200", "B200", "MI300X"
# context of about 100 tokens
_GPT_FAST: dict[str, Any] = {"source": "gpt-fast README", "gpu": _A100, "context": 100}
_MIXTRAL: dict[str, Any] = {**_GPT_FAST, "source": "gpt-fast mixtral-moe", "model": "Mixtral-8x7B"}
_TRT_LLM: dict[str, Any] = {"source": "TensorRT-LLM 0.5", "output": 128, "prompt": 128, "context": 128 + 128 / 2}
_LLAMA_13B: dict[str, Any] = {
    **_TRT_LLM, "model": "Llama-2-13B", "gpu": _H200, "weights": FP8, "kv_bytes": 1.0, "stated": Precision.FP8,
}  # fmt: skip
# prompts of the data set 294 tokens in the mean (an assumption of the table), answers 290.3 by the logs
_LLAMA_70B: dict[str, Any] = {
    "source": "MLPerf v4.1 llama2-70b Server", "model": "Llama-2-70B", "weights": FP8, "kv_bytes": 1.0, "stated": Precision.FP8,
    "prompt": 294, "output": 290.3, "context": 294 + 290.3 / 2,
}  # fmt: skip
_LLAMA_405B: dict[str, Any] = {
    "model": "Llama-3.1-405B", "gpu": _B200, "weights": NVFP4, "kv_bytes": 1.0, "stated": Precision.FP4, "tensor": 4,
    "prompt": 9400, "output": 652, "context": 9400 + 652 / 2,
}  # fmt: skip

ROWS = (
    Published("1", model="Llama-2-7B", tokens_per_second=104.9, told_gb=13.3, told_mbu="68.5", own_gb_per_second=1397, **_GPT_FAST),
    Published("2", model="Llama-3.1-8B", tokens_per_second=93.89, told_gb=15.01, told_mbu="69.2", own_gb_per_second=1410.8, **_GPT_FAST),
    # gpt-fast's int8 quantises every Linear, lm_head included
    Published("3", model="Llama-3.1-8B", tokens_per_second=137.64, told_gb=7.49, told_mbu="50.6", own_gb_per_second=1030.9,
        weights=INT8_ALL, everything=True, **_GPT_FAST),
    Published("5", model="Llama-3.1-70B", tokens_per_second=18.04, told_gb=69.50, told_mbu="61.5", own_gb_per_second=1253.8,
        weights=INT8_ALL, everything=True, **_GPT_FAST),
    # gpt-fast does not shard lm_head; the table's bytes are per GPU
    Published("6", model="Llama-3.1-70B", tokens_per_second=37.45, told_gb=4 * 36.33, told_mbu="66.7", own_gb_per_second=1360.5,
        tensor=4, whole_lm_head=True, **_GPT_FAST),
    Published("6", model="Llama-3.1-70B", tokens_per_second=58.78, told_gb=8 * 19.22, told_mbu="55.4", own_gb_per_second=1129.6,
        tensor=8, whole_lm_head=True, **_GPT_FAST),
    # two of eight experts at batch 1
    Published("9", tokens_per_second=97.92, told_gb=12.75, told_mbu="61", weights=INT8_ALL, everything=True, **_MIXTRAL),
    Published("9", tokens_per_second=96.67, told_gb=25.5, told_mbu="60", tensor=2, **_MIXTRAL),
    Published("9", tokens_per_second=155.35, told_gb=25.5, told_mbu="49", tensor=4, **_MIXTRAL),
    Published("9", tokens_per_second=227.82, told_gb=25.5, told_mbu="36", tensor=8, **_MIXTRAL),
    # TensorRT-LLM's FP8 checkpoints keep lm_head in bf16 and the KV cache in FP8
    Published("16", "NVIDIA NIM 1.5.0, 5000/500", "Llama-3.3-70B", _H100, 1 / 0.01994, 71.4, "53.5", weights=FP8, kv_bytes=1.0, tensor=2,
        context=5000 + 500 / 2),
    Published("17", "vLLM CI 9515", "Llama-3.1-8B", _H200, told_gb=15.11, told_mbu="48", **_latency(8, 128, 0.8334)),
    Published("18", "vLLM CI 9515", "Llama-3-70B", _H200, told_gb=139.3, told_mbu="45", tensor=4, **_latency(8, 128, 2.0775)),
    # the row does not state the context: 262 kB a token, 0.4 % of the bytes at 1,000 tokens
    Published("20", "vLLM issue 18725", "QwQ-32B", _H200, 1 / 0.00643, 64.0, "26", tensor=8),
    # every parameter in one byte, as the table counts; the published checkpoint keeps some layers in bf16
    Published("22", "Vultr cookbook, 2048/512", "Nemotron-3-Nano-30B-A3B", _B200, 1 / 0.00291, 3.2, "6.9", weights=FP8, everything=True,
        kv_bytes=1.0, tensor=2, context=2048 + 512 / 2, table_leaves_out_state=True),
    Published("23", model="GPT-J-6B", gpu=_A100, tokens_per_second=111, told_gb=11.7, told_mbu="64", weights=FP16, **_TRT_LLM),
    Published("23", model="GPT-J-6B", gpu=_A100, tokens_per_second=3679, told_gb=17.3, told_mbu="49", told_mfu="28", weights=FP16, batch=64,
        table_samples_prompts=True, **_TRT_LLM),
    Published("25", tokens_per_second=4750, told_gb=73.4, told_mbu="57", told_mfu="7", batch=128,
        **{**_LLAMA_13B, "output": 2048, "context": 128 + 2048 / 2}),
    Published("25", tokens_per_second=11819, told_gb=93.6, told_mbu="22.5", told_mfu="31", batch=1024, **_LLAMA_13B),
    Published("26", gpu=_H100, told_gb=129, told_mbu="12", told_mfu="38", tensor=2, **_little(21605.8, 0.1550, 4), **_LLAMA_70B),
    Published("27", gpu=_H200, told_gb=101, told_mbu="17", told_mfu="51", **_little(29228, 0.1233, 8), **_LLAMA_70B),
    Published("28", gpu=_MI300X, told_gb=96, told_mbu="13", told_mfu="28", **_little(21028, 0.1431, 8), **_LLAMA_70B),
    Published("31", "MLPerf v5.1 llama3.1-405b Interactive", told_gb=289, told_mbu="14.5", told_mfu="14",
        **_little(751.4, 0.0623, 2), **_LLAMA_405B),
    Published("31", "MLPerf v5.1 llama3.1-405b Server", told_gb=388, told_mbu="12", told_mfu="22",
        **_little(1240.4, 0.1013, 2), **_LLAMA_405B),
    # the row does not state the context: eight ranks with a copy of the latent each read 0.6 MB a token, 1.5 % at 1,000 tokens
    Published("34", "TensorRT-LLM tech blog 1", "DeepSeek-R1", _B200, 111, 38.5, "6.7", modelopt=("lm_head", "*self_attn*"), tensor=8),
)  # fmt: skip


def rows(*numbers: str) -> tuple[Published, ...]:
    """The measurements of these rows of the table."""
    return tuple(row for row in ROWS if row.row in numbers)
