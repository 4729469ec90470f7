"""The whole exception tree. A user-facing error names what is wrong, where, and what to do.

LLMServingExporterError
├── ConfigError          the configuration cannot be used; the process exits with 2 before it listens
├── ListenError          the web server cannot have its address
├── ExpositionError      a metrics page that is not what it claims to be (stage parse)
├── GpuError             NVML cannot be read at all (stage gpu)
├── DrillResultsError    the file of drill results cannot be read or written
├── ReviewRunsError      the file that says when cost reviews were made cannot be read or written
├── CostSnapshotError    a snapshot of cost cannot be read again or written
├── DeliveryError        a finished cost review did not arrive where it was sent
├── FactsError           a model or a GPU of which the facts are missing or contradict themselves
└── PageError            PagerDuty or Alertmanager did not take a page (command page-test)

Stages and packs may have errors of their own below the base that never leave them (fetch.waits.ScrapeError, gpus.calls.NvmlCallError,
settings.problems.InvalidValueError, clients.http.HttpError and SecretError, clients.json_api.ApiError, the drill's UsageError, the
review's NoDataError, BillError and LineError).
Failures of a single attempt are data, not exceptions: see `model.sample`. The stages translate; nothing foreign leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass


class LLMServingExporterError(Exception):
    """Base of every error that this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the configuration."""

    # the path as the user gave it, or "flag --x" or "environment variable Y" where the value came from there
    file: str
    # dotted path inside the file ("targets[1].url"), "" for the whole file
    path: str
    # the fault, without a full stop
    what: str
    # what to do, a sentence, or ""
    fix: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return f"{where}: {self.what}. {self.fix}" if self.fix else f"{where}: {self.what}."


class ConfigError(LLMServingExporterError):
    """The configuration cannot be used. `problems` holds every fault found, not only the first."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class ListenError(LLMServingExporterError):
    """The web server cannot listen. The message names the address, the cause and the flag to change."""


class ExpositionError(LLMServingExporterError):
    """A page is not valid exposition text, or exceeds the series cap; the whole page is void.

    `line` is 1-based, 0 where the fault is the page as a whole; `cause` says what was expected; `reason` is the
    `model.sample.FailureReason` value that the failure counts under.
    """

    def __init__(self, line: int, cause: str, reason: str) -> None:
        super().__init__(f"line {line}: {cause}" if line else cause)
        self.line = line
        self.cause = cause
        self.reason = reason


class GpuError(LLMServingExporterError):
    """NVML cannot be used now. `reason` is the `model.sample.FailureReason` value; the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class DrillResultsError(LLMServingExporterError):
    """The file in which drills leave their results cannot be used. The message names the file, what is wrong and what to do."""


class ReviewRunsError(LLMServingExporterError):
    """The file beside the cost reviews cannot be used. The message names the file, what is wrong and what to do."""


class CostSnapshotError(LLMServingExporterError):
    """A snapshot of cost cannot be read or written. The message says why, without the file's name."""


class DeliveryError(LLMServingExporterError):
    """A webhook or mail server did not take a review. The message names each that did not, and its answer or the cause.

    `sent`: those that did, so that another try spares them.
    """

    def __init__(self, message: str, sent: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.sent = sent


class FactsError(LLMServingExporterError):
    """What is known about a model or GPU does not do. The message names the file or name, the key, what is wrong and what to do.

    `reason` is the `model.snapshot.Absence` value that signals which need it are absent for. `what` is the fault; `fix` what to do about
    it in the configuration of the daemon, "" where `what` says it, apart from it because a command line has flags for the same.
    A fault quotes what stands in a file, which may be anything: more than `LONGEST` characters of it are cut.
    """

    LONGEST = 5000  # a path may be 4096

    def __init__(self, reason: str, what: str, fix: str = "") -> None:
        if len(what) > self.LONGEST:
            what = f"{what[: self.LONGEST]}…"
        super().__init__(f"{what}; {fix}" if fix else what)
        self.reason = reason
        self.what = what
        self.fix = fix


class PageError(LLMServingExporterError):
    """A page was not taken. The message names who did not take it, the answer or cause, and what to do. It never holds a key."""
