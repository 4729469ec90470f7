"""Each remedy names the place where this very target can be changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_serving_exporter.derive.table import SIGNALS
from llm_serving_exporter.discovery.kubernetes.objects import ANNOTATIONS
from llm_serving_exporter.discovery.prometheus_sd import SectionFiles
from llm_serving_exporter.model.derived import Cause
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.render.sentences import ABSENCES, CAUSES, FAILURES, place_remedy
from llm_serving_exporter.settings.discovery import FileDiscovery
from llm_serving_exporter.settings.options import Host
from llm_serving_exporter.settings.target_keys import ANNOTATION_OF_KEY, TARGET_KEYS, FoundBy, list_places
from tests.support.rows import check_rows

CONFIGURED = Target("t", "http://10.0.0.1:8000")
POD = replace(CONFIGURED, places=list_places(FoundBy.KUBERNETES, ""))
LISTED = replace(CONFIGURED, places=list_places(FoundBy.FILE_SD, "/etc/sd/x.json"))
SERVED = replace(CONFIGURED, places=list_places(FoundBy.HTTP_SD, "https://sd.example.com/t"))
NAMES = {one.name for one in TARGET_KEYS.values()}


def list_sentences() -> Iterator[str]:
    yield from ABSENCES.values()
    yield from FAILURES.values()
    yield from CAUSES.values()
    for row in SIGNALS.values():
        yield from row.sentences.values()


SENTENCES = sorted({one for one in list_sentences() if one})


@check_rows("sentence", SENTENCES)
def test_nobody_is_sent_to_a_place_that_is_not_theirs(sentence: str) -> None:
    assert place_remedy(sentence, CONFIGURED) == sentence
    for target in (POD, LISTED, SERVED):
        told = place_remedy(sentence, target)
        assert "targets[]" not in told
        if "targets[]." in sentence:
            assert "For this target: " in told


def test_sentences_that_mention_keys_are_among_those_tried() -> None:
    told = [sentence for sentence in SENTENCES if place_remedy(sentence, POD) != sentence]
    assert len(told) >= 15, "fewer sentences than are known to tell what to set"


@pytest.mark.parametrize("target", [POD, LISTED, SERVED], ids=["pod", "file", "server"])
def test_every_key_has_its_place(target: Target) -> None:
    assert target.places.keys() == NAMES
    assert all(target.places.values())
    assert "{" not in "".join(target.places.values())


def test_annotations_are_those_that_are_read() -> None:
    assert set(ANNOTATION_OF_KEY.values()) < ANNOTATIONS
    assert ANNOTATION_OF_KEY.keys() < NAMES


@check_rows(
    ("sentence", "pod", "listed"),
    [
        (
            FAILURES[FailureReason.EMPTY],
            "runtime by the pod's annotation llm-serving-exporter/runtime",
            "runtime by the label runtime in /etc/sd/x.json",
        ),
        (
            ABSENCES[Absence.PEAK_UNKNOWN],
            "gpu_model in `defaults` of its section of `kubernetes`",
            "gpu_model by the label gpu_model in /etc/sd/x.json",
        ),
        (
            ABSENCES[Absence.MODEL_UNKNOWN],
            "model.config, model.name in `defaults` of its section of `kubernetes`",
            "model.config, model.name in `defaults` of its section of `file_sd`",
        ),
        (
            ABSENCES[Absence.GPUS_UNKNOWN],
            "gpus by what the kubelet or the engine's environment says",
            "gpus in an entry of its own in `targets`",
        ),
        (FAILURES[FailureReason.UNAUTHORIZED], "auth in `defaults`", "auth in `defaults`"),
        (
            FAILURES[FailureReason.REFUSED],
            "url by the pod's annotation llm-serving-exporter/port",
            "url by the address in",
        ),
        (FAILURES[FailureReason.TLS], "tls.ca_file in `defaults`", "tls.ca_file in `defaults`"),
        (FAILURES[FailureReason.TOO_LARGE], "max_body_bytes in `defaults`", "max_body_bytes in `defaults`"),
        (CAUSES[Cause.GPU_COUNT], "pipeline_parallel_size in `defaults`", "pipeline_parallel_size by the label"),
        # of a stage, in words of its own
        (
            "no runtime on /metrics; the server has a page for each model: set metrics_path: /metrics?model=NAME, a target for each",
            "metrics_path by the pod's annotation llm-serving-exporter/path",
            "metrics_path by the label __metrics_path__ in /etc/sd/x.json",
        ),
    ],
)
def test_the_place_is_the_targets_own(sentence: str, pod: str, listed: str) -> None:
    assert pod in place_remedy(sentence, POD)
    assert listed in place_remedy(sentence, LISTED)
    assert place_remedy(sentence, POD).endswith(".")


@pytest.mark.parametrize(
    "sentence",
    ["", "The engine does not put it on its page.", "Nothing runs: this role and this model have a name of their own."],
)
def test_plain_words_are_no_keys(sentence: str) -> None:
    assert place_remedy(sentence, POD) == sentence


def test_a_target_of_a_file_knows_its_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    file.write_text('[{"targets": ["10.0.0.1:8000"], "labels": {"role": "decode"}}]')
    section = FileDiscovery(files=(str(file),), defaults=CONFIGURED)
    (source,) = SectionFiles(section, Host("here", "")).read().sources
    assert source.targets is not None
    assert str(file) in place_remedy("set targets[].runtime", source.targets[0])
