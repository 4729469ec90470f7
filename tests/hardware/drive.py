"""Drive a running engine through phases of load and record, beside what its client counts, its page and the GPU's own counters.

    python -m tests.hardware.drive http://127.0.0.1:8000 h100-vllm --config /models/llama/config.json

FOLDER becomes a recording that scripts/pack_recordings.py packs and tests/support/builders/h100.py plays. The engine has one GPU to itself
and answers /v1/completions with prompts of tokens (vLLM, SGLang); it takes at most 256 requests at once, so that 400 make a queue.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import requests

from llm_serving_exporter.gpus.nvml import NvmlSource
from tests.hardware.witness import NoGpmError, NoGpuError, Witness

PAGE_SECONDS, WITNESS_SECONDS = 5.0, 1.0
# between a phase and the page that has all of it
SETTLED_SECONDS = 1.0
PATIENCE_SECONDS, PAGE_PATIENCE_SECONDS = 600.0, 10.0
# every vocabulary has these, and special tokens lie elsewhere
TOKENS = range(1000, 30_000)
SIDE_ENDPOINTS = {"version": "/version", "v1_models": "/v1/models", "server_info": "/server_info"}
HELP = re.compile(rb"^(# HELP \S+) .*$", re.MULTILINE)


@dataclass(frozen=True)
class PhasePlan:
    """Clients that ask one request after the other. Lengths are in tokens, a pair is its bounds."""

    name: str
    clients: int
    prompt: tuple[int, int]
    answer: tuple[int, int]
    # what all prompts begin with
    shared: int = 0
    seconds: float = 24.0
    # whether requests are broken off at its end, else they run out
    abort: bool = False


# as in the recordings that are committed
PLAN = (
    PhasePlan("decode1", 1, (128, 128), (900, 900)),
    PhasePlan("decode8", 8, (128, 128), (800, 800)),
    PhasePlan("decode64", 64, (256, 256), (600, 600)),
    PhasePlan("queue", 400, (256, 256), (200, 200)),
    PhasePlan("prefill", 32, (4096, 4096), (1, 1)),
    PhasePlan("mixed", 48, (1500, 2500), (100, 300)),
    PhasePlan("shared", 48, (200, 200), (150, 150), shared=4096),
    PhasePlan("sparse", 1, (64, 64), (8, 8)),
)


@dataclass
class Asked:
    """One request as its client saw it. Times are Unix seconds, lengths tokens; None: it did not come to that, or nobody said it."""

    phase: str
    sent: float
    prompt: int
    # of the first token and of the last one
    first: float | None = None
    last: float | None = None
    ended: float = 0.0
    # of the answer, as the engine says at its end
    out: int | None = None
    # of the prompt, that were found in the prefix cache
    cached: int | None = None
    # "length" or "stop" where all is well, else "aborted" or "error"
    end: str = "error"
    why: str = ""


@dataclass
class Engine:
    """A running engine by its address. `record` keeps what it is asked."""

    url: str
    model: str
    asked: list[Asked] = field(default_factory=list)

    def ask(self, phase: str, prompt: Sequence[int], answer: int, stop: threading.Event) -> Asked:
        """One request to its end; `stop` breaks it off at the next token. Never raises: what went wrong is in `why`."""
        one = Asked(phase, time.time(), len(prompt))
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": answer, "min_tokens": answer, "ignore_eos": True, "temperature": 1.0,
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        try:
            # a connection of its own: one that is kept may be closed by the server just when it is used again
            with requests.post(
                f"{self.url}/v1/completions", json=body, stream=True, timeout=PATIENCE_SECONDS
            ) as response:
                response.raise_for_status()
                for line in response.iter_lines():
                    if stop.is_set():
                        one.end = "aborted"
                        break
                    if line.startswith(b"data: {"):
                        _read_chunk(one, orjson.loads(line[6:]))
            if one.end != "aborted" and one.out is None:
                one.end, one.why = "error", "the answer ended without usage"
        except (requests.RequestException, ValueError, KeyError) as error:
            one.end, one.why = "error", str(error)
        one.ended = time.time()
        self.asked.append(one)
        return one


def _read_chunk(one: Asked, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        raise ValueError(str(chunk["error"]))
    for choice in chunk.get("choices") or ():
        one.last = time.time()
        one.first = one.first or one.last
        one.end = choice.get("finish_reason") or one.end
    if usage := chunk.get("usage"):
        one.prompt, one.out = usage["prompt_tokens"], usage["completion_tokens"]
        one.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")


def run_phase(engine: Engine, plan: PhasePlan) -> dict[str, Any]:
    """Plays a phase until its last request has ended; its row of phases.json."""
    # not seeded: an engine that has met these prompts before would find them in its cache
    head = Random().choices(TOKENS, k=plan.shared)
    begun, stop = time.time(), threading.Event()

    def work(_: int) -> None:
        random = Random()
        while time.time() < begun + plan.seconds:
            own = random.choices(TOKENS, k=random.randint(*plan.prompt))
            if engine.ask(plan.name, head + own, random.randint(*plan.answer), stop).end == "error":
                time.sleep(0.1)  # one that refuses is not asked thousands of times

    with ThreadPoolExecutor(plan.clients) as pool:
        done = [pool.submit(work, number) for number in range(plan.clients)]
        time.sleep(plan.seconds)
        load_end = time.time()
        if plan.abort:
            stop.set()
        for one in done:
            one.result()
    return {
        "phase": plan.name, "start": begun, "load_end": load_end, "end": time.time(), "concurrency": plan.clients,
    }  # fmt: skip


def count_truth(asked: Sequence[Asked]) -> dict[str, int | None]:
    """A phase's row of truth.json. `cached_tokens_ok` None: the engine tells no client (vLLM without --enable-prompt-tokens-details)."""
    well = [one for one in asked if one.end in ("length", "stop")]
    first = [one for one in asked if one.first is not None]
    cached = [one.cached for one in well if one.cached is not None]  # SGLang leaves a 0 out
    return {
        "sent": len(asked),
        "outcome_ok": len(well),
        "aborted": sum(one.end == "aborted" for one in asked),
        "errors": sum(one.end == "error" for one in asked),
        "prompt_tokens_ok": sum(one.prompt for one in well),
        "prompt_tokens_with_first_token": sum(one.prompt for one in first),
        "gen_tokens_received": sum(one.out or 0 for one in well),
        "cached_tokens_ok": sum(cached) if cached or not well else None,
        "requests_with_first_token": len(first),
    }


def record(
    url: str,
    folder: Path,
    witness: Witness,
    plan: Sequence[PhasePlan] = PLAN,
    *,
    config: Path | None = None,
    page_seconds: float = PAGE_SECONDS,
    witness_seconds: float = WITNESS_SECONDS,
    settled_seconds: float = SETTLED_SECONDS,
    said: Callable[[str], None] = print,
) -> None:
    """Drives the engine through the plan and fills a new folder; between two phases a page is taken while nothing runs.

    `config`: of its model; None: what it says that it has loaded, where that is a folder here. Raises requests.RequestException where the
    engine cannot be asked what it serves.
    """
    url = url.rstrip("/")
    for part in ("client", "endpoints"):
        (folder / part).mkdir(parents=True)
    served = requests.get(f"{url}/v1/models", timeout=PATIENCE_SECONDS)
    served.raise_for_status()
    model = served.json()["data"][0]
    if config is None and model.get("root"):
        config = Path(model["root"], "config.json")
    if config is not None and config.is_file():
        shutil.copy(config, folder / "config.json")
    for name, path in SIDE_ENDPOINTS.items():
        answer = requests.get(url + path, timeout=PATIENCE_SECONDS)
        if answer.ok:
            (folder / "endpoints" / f"{name}.body").write_bytes(answer.content)
    _write(folder / "card.json", witness.card)
    engine, stop = Engine(url, model["id"]), threading.Event()
    phases: list[dict[str, Any]] = []
    taken: list[float] = []
    counted: dict[str, Any] = {}
    with ThreadPoolExecutor(2) as pool:
        beside = [
            pool.submit(_record_pages, url, folder, witness.uuid, page_seconds, stop, taken),
            pool.submit(_record_witness, folder / "witness.jsonl", witness, witness_seconds, stop),
        ]
        try:
            _wait_for_page(taken, 0.0, beside)
            for one in plan:
                phases.append(run_phase(engine, one))
                counted[one.name] = count_truth([each for each in engine.asked if each.phase == one.name])
                said(f"{one.name}: {counted[one.name]}")
                _wait_for_page(taken, time.time() + settled_seconds, beside)
        finally:
            stop.set()
            _write(folder / "client" / "phases.json", phases)
            _write(folder / "client" / "truth.json", counted)
            lines = (json.dumps(vars(one)) + "\n" for one in engine.asked)
            (folder / "client" / "requests.jsonl").write_text("".join(lines))
    for each in beside:
        each.result()


def _wait_for_page(taken: list[float], after: float, beside: Sequence[Future[None]]) -> None:
    """Until one that was asked for after a moment has come, or something beside the phases has failed."""
    while not (taken and taken[-1] > after) and not any(one.done() for one in beside):
        time.sleep(0.02)


def _record_pages(url: str, folder: Path, uuid: str, seconds: float, stop: threading.Event, taken: list[float]) -> None:
    """The engine's page, and what the product reads of the GPU in the same moment; into `taken` goes when it was asked for."""
    begun, number, source = time.time(), 0, NvmlSource()
    with (folder / "timestamps.tsv").open("w") as times, (folder / "product.jsonl").open("w") as product:
        times.write("index\tunix_time\tscrape_s\tstatus\tbytes\terror\n")
        try:
            while not stop.wait(max(0.0, begun + seconds * number - time.time())):
                at, status, page, error = time.time(), 0, b"", ""
                try:
                    answer = requests.get(f"{url}/metrics", timeout=PAGE_PATIENCE_SECONDS)
                    status, page = answer.status_code, HELP.sub(rb"\1 .", answer.content)
                except requests.RequestException as failure:
                    error = type(failure).__name__
                if status == requests.codes.ok:
                    (folder / f"{number:04}.prom").write_bytes(page)
                times.write(f"{number}\t{at:.3f}\t{time.time() - at:.3f}\t{status}\t{len(page)}\t{error}\n")
                gpus = {gpu.identity.uuid: gpu for gpu in source.read().gpus}
                if uuid in gpus and (ratio := gpus[uuid].dram_bandwidth_ratio) is not None:
                    product.write(json.dumps({"t": round(at, 3), "dram_bandwidth_ratio": ratio}) + "\n")
                taken.append(at)
                number += 1
        finally:
            source.close()


def _record_witness(path: Path, witness: Witness, seconds: float, stop: threading.Event) -> None:
    with path.open("w") as lines:
        while not stop.wait(seconds):
            lines.write(json.dumps(witness.read()) + "\n")


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Record; the exit status is 1 where that cannot be, with the reason on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", metavar="URL", help="of the engine")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new one")
    parser.add_argument("--gpu", type=int, default=0, metavar="INDEX", help="the engine's GPU as NVML counts (0)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="config.json of its model")
    options = parser.parse_args(arguments)
    try:
        with closing(Witness(options.gpu)) as witness:
            record(options.url, options.folder, witness, config=options.config)
    except (NoGpuError, NoGpmError, OSError) as error:  # those of requests are OSErrors
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
