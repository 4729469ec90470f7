"""The file in which drills leave their results, one a model, role and identity, for an exporter that publishes them.

Format, version 1: {"version": 1, "models": [{"model_name": "…", "role": "unified", "last_run_unix_seconds": 1.7e9,
"last_success_unix_seconds": 1.7e9 or null, "last_verdict": "passed" | "failed" | "aborted"}]}. An entry may say which replicas it is
about, in words under "namespace", "workload", "workload_kind" and "region", and in {"team": "…"} under "labels". Other keys are left alone
on reading.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm_serving_exporter.catalogue.own_labels import MOST_LABELS, refuse_label_name
from llm_serving_exporter.errors import DrillResultsError
from llm_serving_exporter.files.written import take_turn, write_atomically
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Role
from llm_serving_exporter.model.text import LABEL_LENGTH, clean, has_control_characters
from llm_serving_exporter.state.json_values import LARGEST_FILE_BYTES, describe_cause, parse_unix_seconds

VERSION = 1
MOST_MODELS = 1000
# as a model name in the configuration
LONGEST_MODEL_NAME = 256
# of an identity, beside its labels: nothing that comes and goes with a single replica
_WORDS = ("namespace", "workload", "workload_kind", "region")
_START_A_NEW_ONE = "Remove it, or name another with drill.result_file; the next drill starts a new one"


def read_results(path: str) -> tuple[DrillResult, ...] | None:
    """Every result of the file, in its order; None where there is no file yet. Raises DrillResultsError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unusable_error(
            path, f"cannot be read: {describe_cause(error)}", "Check its path and permissions"
        ) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise _unusable_error(path, f"is larger than {LARGEST_FILE_BYTES // 2**10} KiB", _START_A_NEW_ONE)
    try:
        return _parse_results(json.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        what = "is nested too deeply" if deep else f"is not what a drill leaves: {describe_cause(error)}"
        raise _unusable_error(path, what, _START_A_NEW_ONE) from None


def require_recordable(path: str) -> None:
    """Raises DrillResultsError where a result could not be recorded now: what is in the file cannot be used, or its folder takes no file.

    For whoever is about to do what cannot be done again, such as losing a node.
    """
    read_results(path)
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise _unusable_error(path, "cannot be written: there is no such folder", "Make its folder first")
    if not os.access(folder, os.W_OK | os.X_OK):
        read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        cause = os.strerror(errno.EROFS if read_only else errno.EACCES)
        raise _unusable_error(path, f"cannot be written: {cause}", "Check its folder and permissions")


def record_result(path: str, result: DrillResult) -> None:
    """Adds a result, or replaces the one of the same model, role and identity; the file is replaced whole. Drills that end
    at the same moment do so one after the other.

    The last success stays where the new run did not pass. Raises DrillResultsError, also where the file as it is now cannot be
    read; then nothing has changed.
    """
    try:
        with take_turn(Path(path)):
            content = _add_result(path, result)
            write_atomically(Path(path), content)
    except (OSError, ValueError) as error:
        raise _unusable_error(
            path, f"cannot be written: {describe_cause(error)}", "Check its folder and permissions"
        ) from None


def _add_result(path: str, result: DrillResult) -> bytes:
    """What the file has to hold. Raises DrillResultsError."""
    known = {_key_of(one): one for one in read_results(path) or ()}
    key = _key_of(result)
    success = result.last_success_unix_seconds
    if result.last_verdict is DrillVerdict.PASSED:
        success = max(success or 0.0, result.last_run_unix_seconds)
    if success is None and key in known:
        success = known[key].last_success_unix_seconds
    known[key] = replace(result, last_success_unix_seconds=success)
    document = {"version": VERSION, "models": [_to_document(one) for one in known.values()]}
    try:
        _parse_results(document)
    except ValueError as error:
        raise DrillResultsError(f"the result of the drill cannot be recorded in {path}: {error}.") from None
    content = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()
    if len(content) > LARGEST_FILE_BYTES:
        what = f"would be larger than {LARGEST_FILE_BYTES // 2**10} KiB"
        raise _unusable_error(path, what, "Remove the models that are no longer drilled")
    return content


def split_identity(labels: Mapping[str, str]) -> tuple[Identity, tuple[str, ...]]:
    """Labels that tell fleets apart -> what a result can keep of them, and the names of those that it cannot."""
    said = {name: text for name, text in labels.items() if name in _WORDS}
    own = {name: text for name, text in labels.items() if refuse_label_name(name) is None}
    left_out = tuple(name for name in labels if name not in said and name not in own)
    return Identity(**said, labels=tuple(sorted(own.items()))), left_out


def _key_of(result: DrillResult) -> tuple[str, Role, Identity]:
    return result.model_name, result.role, result.identity


def _unusable_error(path: str, what: str, fix: str) -> DrillResultsError:
    return DrillResultsError(f"the file of drill results {path} {what}. {fix}.")


def _to_document(result: DrillResult) -> dict[str, object]:
    return {
        "model_name": result.model_name,
        "role": result.role.value,
        "last_run_unix_seconds": result.last_run_unix_seconds,
        "last_success_unix_seconds": result.last_success_unix_seconds,
        "last_verdict": result.last_verdict.value,
        **{name: text for name in _WORDS if (text := getattr(result.identity, name))},
        **({"labels": dict(result.identity.labels)} if result.identity.labels else {}),
    }


def _parse_results(document: Any) -> tuple[DrillResult, ...]:
    """The results in the document. Raises ValueError with the place and the fault."""
    if not isinstance(document, dict) or not isinstance(document.get("models"), list):
        raise ValueError("it has no list of models")
    version = document.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise ValueError(f"its version is {str(version)[:20]}, this release reads version {VERSION}")
    models = document["models"]
    if len(models) > MOST_MODELS:
        raise ValueError(f"it has {len(models)} models, at most {MOST_MODELS} are allowed")
    found: dict[tuple[str, Role, Identity], DrillResult] = {}
    for place, one in enumerate(models):
        try:
            result = _parse_result(one)
            if _key_of(result) in found:
                raise ValueError("the model and role are there twice")
        except ValueError as error:
            raise ValueError(f"models[{place}]: {error}") from None
        found[_key_of(result)] = result
    return tuple(found.values())


def _parse_result(one: Any) -> DrillResult:
    if not isinstance(one, dict):
        raise ValueError("it is not an object")
    name = _parse_text(one, "model_name", LONGEST_MODEL_NAME)
    last_run = parse_unix_seconds(one, "last_run_unix_seconds")
    if last_run is None:
        raise ValueError("last_run_unix_seconds is not a time in unix seconds")
    return DrillResult(
        name,
        Role(_parse_word(one, "role", [role.value for role in Role])),
        last_run,
        parse_unix_seconds(one, "last_success_unix_seconds"),
        DrillVerdict(_parse_word(one, "last_verdict", [verdict.value for verdict in DrillVerdict])),
        _parse_identity(one),
    )


def _parse_identity(one: dict[str, Any]) -> Identity:
    labels = one.get("labels", {})
    if not isinstance(labels, dict) or len(labels) > MOST_LABELS:
        raise ValueError(f"labels is not an object of at most {MOST_LABELS} texts")
    for name in labels:
        if refuse_label_name(name) is not None:
            raise ValueError(f"labels has a name that no label can have here: {clean(name)}")
    said = {name: _parse_text(one, name, LABEL_LENGTH) for name in _WORDS if name in one}
    return Identity(**said, labels=tuple(sorted((name, _parse_text(labels, name, LABEL_LENGTH)) for name in labels)))


def _parse_text(entry: dict[str, Any], key: str, longest: int) -> str:
    text = entry.get(key)
    if not isinstance(text, str) or not text.strip() or len(text) > longest or has_control_characters(text):
        raise ValueError(f"{key} is not a text of 1 to {longest} characters without control characters")
    return text


def _parse_word(entry: dict[str, Any], key: str, words: list[str]) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{key} is not one of {', '.join(words)}")
    return value
