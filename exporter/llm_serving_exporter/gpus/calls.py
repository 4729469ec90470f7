"""Calls into NVML through pynvml -> a value, or the reason why there is none.

Return codes are those of nvml.h (`nvmlReturn_t`). Wrappers are looked up by name at each call, so an older pynvml that
lacks one reads like an older driver that lacks the symbol: not supported.
"""

from __future__ import annotations

import importlib
import warnings
from collections import defaultdict
from typing import Any

from llm_serving_exporter.errors import GpuError
from llm_serving_exporter.model.gpu import GpuAbsence
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.text import on_one_line

# --- Raw hardware counters that wrap or restart -> totals that only grow.


WRAP_32_BITS = 1 << 32


class Total:
    """A total over a raw byte counter. It starts at the raw value, so a restart of the exporter loses nothing.

    A fall of a counter that has never been beyond 32 bits is read as a wrap at 2^32 (nvml.h on fields 197 and 198:
    "Value can be wrapped"), any other fall as a restart from zero. A wrap that happens twice between two reads cannot
    be seen: then the total is too low.
    """

    def __init__(self) -> None:
        self._raw: int | None = None
        self._highest = 0
        self._total = 0

    def update(self, raw: int) -> int:
        """Take a raw reading; returns the total in the raw reading's unit."""
        if self._raw is None:
            self._total = raw
        elif raw >= self._raw:
            self._total += raw - self._raw
        elif self._highest < WRAP_32_BITS:
            self._total += raw + WRAP_32_BITS - self._raw
        else:
            self._total += raw
        self._raw = raw
        self._highest = max(self._highest, raw)
        return self._total


# the totals of one GPU by name, kept across re-initialisations of NVML; names come from code, so their number is bounded
Totals = defaultdict[str, Total]


# --- The calls.


UNINITIALIZED, INVALID_ARGUMENT, UNSUPPORTED, PERMISSION, NOT_FOUND = 1, 2, 3, 4, 6
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH, BUSY, NO_VALUE = 15, 16, 18, 19, 21
ARGUMENT_VERSION_MISMATCH, DEPRECATED, NOT_READY, GPU_NOT_FOUND, UNKNOWN = 25, 26, 27, 28, 999

_ABSENT = {
    UNSUPPORTED: GpuAbsence.NOT_SUPPORTED,
    FUNCTION_NOT_FOUND: GpuAbsence.NOT_SUPPORTED,
    ARGUMENT_VERSION_MISMATCH: GpuAbsence.NOT_SUPPORTED,
    DEPRECATED: GpuAbsence.NOT_SUPPORTED,
    PERMISSION: GpuAbsence.NO_PERMISSION,
    BUSY: GpuAbsence.IN_USE,
    NO_VALUE: GpuAbsence.NO_DATA,
    NOT_READY: GpuAbsence.NO_DATA,
}
# Codes after which no call of this session can succeed.
_SESSION = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
_LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
_REASONS = {
    PERMISSION: FailureReason.NO_PERMISSION,
    DRIVER_NOT_LOADED: FailureReason.NO_DRIVER,
    LIBRARY_NOT_FOUND: FailureReason.NO_LIBRARY,
    LIB_RM_VERSION_MISMATCH: FailureReason.DRIVER_MISMATCH,
    **dict.fromkeys(_LOST, FailureReason.GPU_LOST),
}

# One alternative of a reading: the wrapper's name, then its arguments after the handle.
NamedCall = tuple[Any, ...]


def classify_refusal(code: int) -> str:
    """NVML return code -> code of `GpuReading.absent`."""
    return _ABSENT.get(code, GpuAbsence.ERROR)


class Nvml:
    """The module pynvml. `call` gives what the wrapper returns, or raises `NvmlCallError` with NVML's return code."""

    def __init__(self) -> None:
        """Import pynvml, about 3.5 MB resident. Raises GpuError NO_LIBRARY where it is not installed."""
        try:
            with warnings.catch_warnings():
                # the dead distribution `pynvml`, where an image has it too, warns at import; the module is still
                # nvidia-ml-py's
                warnings.simplefilter("ignore", FutureWarning)
                self.module: Any = importlib.import_module("pynvml")
        except ImportError as error:
            detail = f"the Python package nvidia-ml-py cannot be imported ({error})"
            raise GpuError(FailureReason.NO_LIBRARY, detail) from error
        # the second is no subclass of the first
        names = ("NVMLError", "NVMLLibraryMismatchError")
        classes = (getattr(self.module, name) for name in names if hasattr(self.module, name))
        self._errors: tuple[type[Exception], ...] = tuple(classes)

    def call(self, name: str, *args: Any) -> Any:
        """Call a wrapper. Raises NvmlCallError; FUNCTION_NOT_FOUND where pynvml or the driver lacks it."""
        wrapper = getattr(self.module, name, None)
        if wrapper is None:
            raise NvmlCallError(FUNCTION_NOT_FOUND, name, "not in this pynvml")
        try:
            return wrapper(*args)
        except self._errors as error:
            code = getattr(error, "value", FUNCTION_NOT_FOUND)
            raise NvmlCallError(code, name, _describe_error(error)) from error
        except UnicodeDecodeError as error:  # pynvml decodes what the driver wrote
            raise NvmlCallError(UNKNOWN, name, "answered with text that is not UTF-8") from error


class NvmlCallError(GpuError):
    """NVML refused one call: `code` is its `nvmlReturn_t`, `function` the wrapper's name."""

    def __init__(self, code: int, function: str, text: str) -> None:
        super().__init__(_REASONS.get(code, FailureReason.NVML), f"{function}: {text} (NVML {code})")
        self.code = code
        self.function = function

    @property
    def ends_more_than_the_call(self) -> bool:
        """Whether the GPU is lost or the whole session over, so that further calls are pointless."""
        return self.gpu_lost or self.session_over

    @property
    def gpu_lost(self) -> bool:
        """Whether the GPU behind the handle does not answer any more."""
        return self.code in _LOST

    @property
    def session_over(self) -> bool:
        """Whether NVML must be initialised again."""
        return self.code in _SESSION


def _describe_error(error: BaseException) -> str:
    return on_one_line(str(error), 200) or type(error).__name__


class Device:
    """A handle whose readings never raise, except where the GPU or the whole session is gone (`NvmlCallError`).

    What is not supported is remembered and not called again. `absent` holds the reasons of this pass; `answered` and
    `unknown` count this pass's calls, so that a device that says nothing but "unknown error" can be told from a working
    one.
    """

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.absent: dict[str, str] = {}
        self.answered = 0
        self.unknown = 0
        self._unsupported: set[tuple[str, int]] = set()  # field, number of the alternative

    def begin_pass(self, handle: Any) -> None:
        """Starts a pass with the handle that is valid in it."""
        self.handle = handle
        self.absent = {}
        self.answered = 0
        self.unknown = 0

    @property
    def silent(self) -> bool:
        """Whether every call of this pass failed and one at least with NVML's unknown error."""
        return self.answered == 0 and self.unknown > 0

    def read(self, field: str, *alternatives: NamedCall) -> Any:
        """The first alternative that is supported; None with `absent[field]` set where none gives a value.

        An alternative is (wrapper, arguments after the handle …). The next one is tried only where the one before is
        not supported: another error is this reading's error.
        """
        for number, (name, *args) in enumerate(alternatives):
            if (field, number) in self._unsupported:
                continue
            try:
                value = self.nvml.call(name, self.handle, *args)
            except NvmlCallError as error:
                if error.ends_more_than_the_call:
                    raise
                absent = classify_refusal(error.code)
                if absent == GpuAbsence.NOT_SUPPORTED:
                    self._unsupported.add((field, number))
                    continue
                self.unknown += error.code == UNKNOWN
                self.absent[field] = absent
                return None
            self.answered += 1
            return value
        self.absent[field] = GpuAbsence.NOT_SUPPORTED
        return None
