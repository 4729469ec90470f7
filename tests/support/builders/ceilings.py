"""Asks the `ceiling` command as its users do: real arguments in, exit status, standard output and error out."""

import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_serving_exporter.cli import main

# whole memory and one decode step of as good as no context: the seeds' arithmetic
BARE = ("--context", "1", "--memory-utilization", "1")


@dataclass(frozen=True)
class Asked:
    """What a run of the command left."""

    status: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The refusals, one a line."""
        return [line.removeprefix("error: ") for line in self.err.splitlines()]


def asked(*words: str) -> Asked:
    """Runs the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(["ceiling", *words])
        except SystemExit as end:  # argparse, for words it does not know
            status = int(end.code or 0)
    return Asked(status, out.getvalue(), err.getvalue())


def document(*words: str) -> dict[str, Any]:
    """The JSON of an answer, read strictly: NaN and Infinity are no JSON."""
    found = asked(*words, "--json")
    assert (found.status, found.err) == (0, ""), found.err

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    read: dict[str, Any] = json.loads(found.out, parse_constant=refuse)
    return read


def answered(model: str, gpu: str = "H100 SXM", *words: str) -> dict[str, Any]:
    """The JSON for a model on a GPU."""
    return document("--model", model, "--gpu", gpu, *words)


def line(found: dict[str, Any], batch: int) -> dict[str, Any]:
    """One batch of an answer."""
    (it,) = [each for each in found["batches"] if each["batch"] == batch]
    return dict(it)


def table(*words: str) -> dict[str, str]:
    """The table's rows by label."""
    found = asked(*words)
    assert (found.status, found.err) == (0, ""), found.err
    rows = (line.partition("  ") for line in found.out.split("\n\n")[0].splitlines())
    return {label: text.strip() for label, _, text in rows}


def refused(*words: str) -> list[str]:
    """The refusals of words that are refused; nothing may stand on standard output then."""
    found = asked(*words)
    assert (found.status, found.out) == (2, "")
    return found.errors


def config(place: Path, fields: Mapping[str, Any]) -> str:
    """A config.json in a folder of its own; its path."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / "config.json"
    path.write_text(json.dumps(fields))
    return str(path)


def of_parameters(billions: int) -> dict[str, Any]:
    """A Llama of which a decode step reads exactly 35 or 70 billion parameters: 8000 x (L (8000 + 1600 + 8000 + 3 x 10000 + 2) + V + 1).

    Seeds speak of "70 GB" and of "70 billion"; no published model is exactly that.
    """
    layers = {35: 80, 70: 160}[billions]
    rows = billions * 10**9 // 8000 - layers * 47_602 - 1
    return {
        "model_type": "llama", "hidden_size": 8000, "num_hidden_layers": layers, "num_attention_heads": 80, "num_key_value_heads": 8,
        "head_dim": 100, "intermediate_size": 10000, "vocab_size": rows, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
