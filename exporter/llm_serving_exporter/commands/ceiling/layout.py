"""Flags of `ceiling` that say how one replica is spread over GPUs, and how it speculates."""

from __future__ import annotations

from llm_serving_exporter.commands.ceiling.arguments import COUNT, DRAFTS, MOST_DRAFTS, MOST_GPUS, PROBABILITY
from llm_serving_exporter.commands.ceiling.launch import Launch, read_launch
from llm_serving_exporter.derive.planning import Speculation
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.flags import FlagReader

_SIZES = ("--gpus", "--tp", "--pp", "--dp", "--ep", "--dcp")


def read_start_command(flags: FlagReader) -> Launch | None:
    """What --launch says; None without it, and after a refusal."""
    command = flags.text("--launch")
    if command is None:
        return None
    both = [name for name in _SIZES if flags.text(name) is not None]
    if both:
        flags.refuse("--launch", f"it says the layout, and so does {both[0]}", f"Leave {' and '.join(both)} away.")
        return None
    try:
        return read_launch(command)
    except ValueError as error:
        what, *fixes = map(str, error.args)
        flags.refuse("--launch", what, *fixes or ["Quote the whole command, as in --launch 'vllm serve MODEL -tp 4'."])
        return None


def read_layout(flags: FlagReader, model: ModelFacts | None, launch: Launch | None = None) -> Parallel | None:
    """--tp 8 alone implies eight GPUs, --gpus 8 alone tensor parallelism over all of them. None after a refusal.

    `launch`: what an engine's start command says instead.
    """
    before = len(flags.problems)
    if launch is not None:
        # engines take the flags of expert parallelism for a dense model too, and do nothing
        experts = launch.layout.expert if model is None or model.geometry.experts else 1
        layout = replace(launch.layout, expert=experts)
        _check(flags, layout, model)
        return layout if len(flags.problems) == before else None
    gpus, tensor, pipeline, data, expert, context = (flags.value(name, COUNT) for name in _SIZES)
    if len(flags.problems) > before:
        return None
    ranks = data or 1
    stages = pipeline or 1
    whole = f"tensor {tensor or 1} x pipeline {stages}" + (f" x data {ranks}" if ranks > 1 else "")
    if gpus is not None and gpus % (stages * ranks * (tensor or 1)):
        what = f"{count_nouns(gpus, 'GPU is', 'GPUs are')} no whole number of replicas of {whole}"
        flags.refuse("--gpus", what, "Leave --gpus away: one replica is worked out, of tp x pp x dp GPUs.")
        return None
    tensor = tensor or (gpus // (stages * ranks) if gpus is not None else 1)
    layout = Parallel(tensor, stages, ranks, expert or 1, context or 1)
    if gpus is not None and layout.gpus != gpus:
        what = f"{whole} is one replica of {count_nouns(layout.gpus, 'GPU')}, not {gpus}"
        fix = f"Leave --gpus away: {gpus // layout.gpus} replicas do that many times what one does."
        flags.refuse("--gpus", what, fix)
    _check(flags, layout, model)
    return layout if len(flags.problems) == before else None


def _check(flags: FlagReader, layout: Parallel, model: ModelFacts | None) -> None:
    if layout.gpus > MOST_GPUS:
        flags.refuse("--dp", f"that makes {layout.gpus} GPUs", f"A replica has at most {MOST_GPUS} here.")
    sharing = layout.tensor * layout.data
    if sharing % layout.expert:
        what = f"{layout.expert} does not divide tensor {layout.tensor} x data {layout.data}"
        flags.refuse("--ep", what, f"Write a divisor of {sharing}: experts are spread over whole GPUs of a stage.")
    if layout.tensor % layout.context:
        what = f"{layout.context} does not divide tensor {layout.tensor}"
        flags.refuse("--dcp", what, "It cuts KV among the GPUs of --tp and adds none: write a divisor of --tp.")
    if model is None:
        return
    if layout.pipeline > model.geometry.layers:
        flags.refuse("--pp", f"{model.name} has {model.geometry.layers} layers", "Write no more stages than that.")
    if layout.expert > 1 and not model.geometry.experts:
        flags.refuse("--ep", f"{model.name} has no routed experts", "Leave it away.")
    if layout.context > 1 and not model.kv_bytes_per_token:
        flags.refuse("--dcp", f"{model.name} keeps no KV", "Leave it away.")


def read_speculation(flags: FlagReader, launch: Launch | None = None) -> Speculation:
    """None of its flags: no speculation, unless `launch`, an engine's start command, has some."""
    drafts = flags.value("--spec", DRAFTS) or 0
    if launch is not None and flags.text("--spec") is None:
        if launch.drafts is None:
            flags.refuse("--launch", "it does not say how many tokens a step drafts", "Say it with --spec.")
        elif launch.drafts > MOST_DRAFTS:
            most = f"A step has at most {MOST_DRAFTS} drafts here."
            flags.refuse("--launch", f"it drafts {launch.drafts} tokens a step", most)
        drafts = launch.drafts or 0
    acceptance = flags.value("--acceptance", PROBABILITY)
    if (
        acceptance is not None
        and not drafts
        and flags.text("--spec") is None
        and (launch is None or launch.drafts == 0)
    ):
        flags.refuse("--acceptance", "there are no drafts to accept", "Write --spec with the tokens drafted a step.")
    return Speculation(drafts, acceptance)
