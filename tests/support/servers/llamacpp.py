"""The recorded llama.cpp server, as routes of a replica."""

from typing import Any

from llm_serving_exporter.engines.hooks.llamacpp import read_slots
from llm_serving_exporter.model.reading import TargetReading
from tests.support.builders.recordings import recording
from tests.support.servers.replica import Answer, Routes

RUN = recording("llamacpp-b11434")
ANSWERS = recording("llamacpp-b11434-errors").members
BUSY, IDLE = RUN.pages[60].decode(), RUN.pages[0].decode()
PROPS, MODELS = RUN.members["json/props-0000.json"], RUN.members["json/models-0000.json"]


def recorded(name: str) -> Answer:
    """A recorded answer with its status and content type; HELP texts were cut after it was sent, so its length is counted anew."""
    head, _, body = ANSWERS[f"{name}.http"].replace(b"\r\n", b"\n").partition(b"\n\n")
    fields = dict(line.split(": ", 1) for line in head.decode().splitlines()[1:])
    return int(head.split()[1]), {k.lower(): v for k, v in fields.items()}["content-type"], body


def slots(number: int) -> Any:
    return RUN.json(f"json/slots-{number:04}.json")


def read(number: int) -> dict[str, float]:
    return {key.name: value for key, value in read_slots(slots(number))}


def routes(page: str | bytes | Answer, slots: Answer | None = None) -> Routes:
    found: dict[str, Answer] = {"/metrics": page, "/props": PROPS, "/v1/models": MODELS}
    return found if slots is None else {**found, "/slots": slots}


def rate_of(reading: TargetReading, phase: str) -> float | None:
    return reading.page.derived.engines[0].phase_tokens_per_second.get(phase) if reading.page.derived else None
