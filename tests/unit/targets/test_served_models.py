"""The book of models: looked up once, kept within bounds, never an exception."""

import gc
import json
import logging
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import ModelSettings, ServedModel
from llm_serving_exporter.targets.server import MOST_KEPT, ModelBook
from tests.support.models.modelfolders import LLAMA, cached, folder

SERVED = ServedModel("small")


def layers(found: ModelFacts | FactsError) -> int:
    assert isinstance(found, ModelFacts), found
    return found.geometry.layers


def test_a_model_is_looked_up_once(tmp_path: Path) -> None:
    book, settings = ModelBook(None), ModelSettings(config=str(folder(tmp_path)))
    first = book.find(settings, SERVED)
    (tmp_path / "config.json").unlink()
    assert book.find(settings, SERVED) is first
    assert layers(first) == 8
    # another word of the server is another question
    assert isinstance(book.find(settings, ServedModel("small", dtype="bfloat16")), FactsError)


def test_what_is_not_known_is_an_answer_with_its_reason(tmp_path: Path) -> None:
    book = ModelBook(None)
    unknown = book.find(ModelSettings(), ServedModel("acme/secret-sauce"))
    assert isinstance(unknown, FactsError)
    assert unknown.reason == Absence.MODEL_UNKNOWN
    assert "set targets[].model.config" in str(unknown)
    assert unknown.what + "; " + unknown.fix == str(unknown)
    other = book.find(ModelSettings(config=str(folder(tmp_path, {"model_type": "hyena"}))), SERVED)
    assert isinstance(other, FactsError)
    assert other.reason == Absence.ARCHITECTURE_UNKNOWN


def test_the_cache_is_looked_into_before_the_catalogue(tmp_path: Path) -> None:
    cached(tmp_path, "meta-llama/Llama-3.1-8B")
    served = ServedModel("meta-llama/Llama-3.1-8B")
    assert layers(ModelBook(str(tmp_path)).find(ModelSettings(), served)) == 8
    assert layers(ModelBook(None).find(ModelSettings(), served)) == 32
    assert layers(ModelBook(str(tmp_path / "nowhere")).find(ModelSettings(), served)) == 32


def test_a_server_that_says_ever_new_names_fills_nothing(tmp_path: Path) -> None:
    book, settings = ModelBook(None), ModelSettings(config=str(folder(tmp_path)))
    assert layers(book.find(settings, SERVED)) == 8
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 3}))
    for number in range(MOST_KEPT):
        assert layers(book.find(settings, SERVED if number == 0 else ServedModel(f"name-{number}"))) == (
            3 if number else 8
        )
    # the first went for the last: it is read anew
    book.find(settings, ServedModel("one more"))
    assert layers(book.find(settings, SERVED)) == 3


def test_a_refusal_holds_nothing_but_its_words(tmp_path: Path) -> None:
    """It is kept: the error that was raised would keep the frames that read the file, and the decoder's error the whole text of it."""
    place = folder(tmp_path)
    (place / "config.json").write_text('{"model_type": "llama", ' + " " * (4 << 20))
    book, settings = ModelBook(None), ModelSettings(config=str(place))
    tracemalloc.start()
    try:
        found = book.find(settings, SERVED)
        gc.collect()
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(found, FactsError)
    assert "is not valid JSON" in str(found)
    assert most > 4 << 20  # it was read
    assert kept < 1 << 20


def test_a_fault_of_ours_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    book = ModelBook(cast(Any, 7))  # no folder at all
    with caplog.at_level(logging.ERROR):
        found = book.find(ModelSettings(), ServedModel("acme/m"))
        again = book.find(ModelSettings(), ServedModel("acme/m"))
    assert isinstance(found, FactsError)
    assert (found.reason, str(found)) == ("model_unknown", "looking it up failed (TypeError), see the log")
    assert again is found
    assert len(caplog.records) == 1
