"""The file in which drills leave their results, one a model and role, for an exporter that publishes them.

Format, version 1: {"version": 1, "models": [{"model_name": "…", "role": "unified", "last_run_unix_seconds": 1.7e9,
"last_success_unix_seconds": 1.7e9 or null, "last_verdict": "passed" | "failed" | "aborted"}]}. Other keys are left alone on reading.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from llm_serving_exporter.errors import DrillResultsError
from llm_serving_exporter.files.written import write_atomically
from llm_serving_exporter.model.drill import DrillResult, Verdict
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.text import has_control_characters

VERSION = 1
LARGEST_FILE_BYTES = 64 * 2**10
MOST_MODELS = 1000
# as a model name in the configuration
LONGEST_MODEL_NAME = 256
_ANEW = "Remove it, or name another with drill.result_file; the next drill starts a new one"


def read(path: str) -> tuple[DrillResult, ...] | None:
    """Every result of the file, in its order; None where there is no file yet. Raises DrillResultsError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unusable(path, f"cannot be read: {_cause(error)}", "Check its path and permissions") from None
    if len(content) > LARGEST_FILE_BYTES:
        raise _unusable(path, f"is larger than {LARGEST_FILE_BYTES // 2**10} KiB", _ANEW)
    try:
        return _results(json.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        what = "is nested too deeply" if isinstance(error, RecursionError) else f"is not what a drill leaves: {error}"
        raise _unusable(path, what, _ANEW) from None


def record(path: str, result: DrillResult) -> None:
    """Puts a result in the place of the same model's and role's, or beside the others; the file is replaced whole.

    The last success stays where the new run was none. One writer at a time. Raises DrillResultsError: nothing has changed then, also
    where what stands in the file cannot be read.
    """
    known = {(one.model_name, one.role): one for one in read(path) or ()}
    key = result.model_name, result.role
    success = result.last_success_unix_seconds
    if result.last_verdict is Verdict.PASSED:
        success = max(success or 0.0, result.last_run_unix_seconds)
    if success is None and key in known:
        success = known[key].last_success_unix_seconds
    known[key] = replace(result, last_success_unix_seconds=success)
    document = {"version": VERSION, "models": [_plain(one) for one in known.values()]}
    try:
        _results(document)
    except ValueError as error:
        raise DrillResultsError(f"the result of the drill cannot be recorded in {path}: {error}.") from None
    content = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()
    if len(content) > LARGEST_FILE_BYTES:
        what = f"would be larger than {LARGEST_FILE_BYTES // 2**10} KiB"
        raise _unusable(path, what, "Remove models from it that are drilled no more")
    try:
        write_atomically(Path(path), content)
    except (OSError, ValueError) as error:
        raise _unusable(path, f"cannot be written: {_cause(error)}", "Check its folder and permissions") from None


def _unusable(path: str, what: str, fix: str) -> DrillResultsError:
    return DrillResultsError(f"the file of drill results {path} {what}. {fix}.")


def _cause(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _plain(result: DrillResult) -> dict[str, object]:
    return {
        "model_name": result.model_name,
        "role": result.role.value,
        "last_run_unix_seconds": result.last_run_unix_seconds,
        "last_success_unix_seconds": result.last_success_unix_seconds,
        "last_verdict": result.last_verdict.value,
    }


def _results(document: Any) -> tuple[DrillResult, ...]:
    """The results in the document. Raises ValueError with the place and the fault."""
    if not isinstance(document, dict) or not isinstance(document.get("models"), list):
        raise ValueError("it has no list of models")
    version = document.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise ValueError(f"its version is {str(version)[:20]}, this release reads version {VERSION}")
    models = document["models"]
    if len(models) > MOST_MODELS:
        raise ValueError(f"it has {len(models)} models, at most {MOST_MODELS} are allowed")
    found: dict[tuple[str, Role], DrillResult] = {}
    for place, one in enumerate(models):
        try:
            result = _result(one)
            if (result.model_name, result.role) in found:
                raise ValueError("the model and role are there twice")
        except ValueError as error:
            raise ValueError(f"models[{place}]: {error}") from None
        found[result.model_name, result.role] = result
    return tuple(found.values())


def _result(one: Any) -> DrillResult:
    if not isinstance(one, dict):
        raise ValueError("it is not an object")
    name = one.get("model_name")
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_MODEL_NAME or has_control_characters(name):
        raise ValueError(f"model_name is not a text of 1 to {LONGEST_MODEL_NAME} characters without control characters")
    success = one.get("last_success_unix_seconds")
    return DrillResult(
        name,
        Role(_word(one, "role", [role.value for role in Role])),
        _seconds(one, "last_run_unix_seconds"),
        None if success is None else _seconds(one, "last_success_unix_seconds"),
        Verdict(_word(one, "last_verdict", [verdict.value for verdict in Verdict])),
    )


def _word(one: dict[str, Any], key: str, words: list[str]) -> str:
    value = one.get(key)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{key} is not one of {', '.join(words)}")
    return value


def _seconds(one: dict[str, Any], key: str) -> float:
    value = one.get(key)
    # more than a double can hold is not a time either
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < 1e15 and isfinite(value)):
        raise ValueError(f"{key} is not a time in unix seconds")
    return float(value)
