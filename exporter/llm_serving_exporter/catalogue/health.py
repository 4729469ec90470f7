"""Series about targets, attempts and the exporter: what can be trusted now, and why something is missing."""

from __future__ import annotations

from llm_serving_exporter.catalogue.spec import Group, Kind, Metric, Unit

_ALWAYS = "the target is not configured"
_EXPORTER = "never absent"


def _target(name: str, kind: Kind, unit: Unit, help: str, *labels: str, absent: str = _ALWAYS) -> Metric:
    return Metric(name, kind, unit, Group.HEALTH, help, ("target", *labels), absent, "", "exporter")


def _exporter(name: str, kind: Kind, unit: Unit, help: str, *labels: str, absent: str = _EXPORTER) -> Metric:
    return Metric(name, kind, unit, Group.EXPORTER, help, labels, absent, "", "exporter")


TARGET_INFO = _target(
    "target_info", Kind.INFO, Unit.BOOLEAN, "What the target is; constant 1, kept while the target is configured.",
    "runtime", "version", "model_name", "role", "group",
)  # fmt: skip
TARGET_NODE_INFO = _target(
    "target_node_info", Kind.INFO, Unit.BOOLEAN, "A node that the target spans; constant 1, one series a node.", "model_name", "role", "node",
    absent="a remote target whose nodes are not configured",
)  # fmt: skip
TARGET_GPUS = _target(
    "target_gpus", Kind.GAUGE, Unit.COUNT,
    "GPUs (or MIG instances) that all engines of the target use together, and their kind as the GPU catalogue spells it; kept while the target "
    "is configured.",
    "gpu_name", absent="their number is not known, or the target is a front end",
)  # fmt: skip
TARGET_START_TIME = _target(
    "target_start_time_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When the engine started: its process start, else the last fall of a counter, else when it was first seen.", absent="no page was ever read",
)  # fmt: skip
TARGET_UP = _target(
    "target_up",
    Kind.GAUGE,
    Unit.BOOLEAN,
    "Whether the last attempt yielded a page that could be read.",
    absent="not tried yet",
)
TARGET_STATE = _target(
    "target_state", Kind.GAUGE, Unit.BOOLEAN, "State of the target: 1 for the one that holds.", "state"
)
TARGET_SAMPLE_AGE = _target(
    "target_sample_age_seconds", Kind.GAUGE, Unit.SECONDS, "Age of the last good page.", absent="no page was ever read"
)
SCRAPE_ATTEMPTS = _target("scrape_attempts_total", Kind.COUNTER, Unit.COUNT, "Attempts to read the target.")
SCRAPE_FAILURES = _target(
    "scrape_failures_total",
    Kind.COUNTER,
    Unit.COUNT,
    "Failed attempts by stage and reason.",
    "stage",
    "reason",
    absent="as scrape_attempts_total; reasons never met yet stand at 0",
)
SCRAPE_DURATION = _target(
    "scrape_duration_seconds", Kind.GAUGE, Unit.SECONDS, "Time that the last attempt took.", absent="not tried yet"
)
SCRAPE_PAGE = _target(
    "scrape_page_bytes",
    Kind.GAUGE,
    Unit.BYTES,
    "Size of the last page after decompression.",
    absent="no page was ever read",
)
TARGET_RESTARTS = _target(
    "target_restarts_total", Kind.COUNTER, Unit.COUNT, "Restarts of the engine seen since the exporter's start."
)
SIGNAL_AVAILABLE = _target(
    "signal_available",
    Kind.GAUGE,
    Unit.BOOLEAN,
    "Whether a signal is there; 0 with the reason's code where not.",
    "signal",
    "reason",
    absent="no page was ever read",
)
SIGNAL_RESOLUTION = _target(
    "signal_resolution", Kind.GAUGE, Unit.COUNT,
    "Smallest change of a counter that the engine's page can show, in the counter's unit, where it prints numbers with a few digits only.",
    "signal", absent="the page prints its numbers in full",
)  # fmt: skip
TARGET_WINDOW = _target(
    "target_window_seconds", Kind.GAUGE, Unit.SECONDS,
    "Span that the target's derived figures cover: the configured window, longer where the engine books tokens at a request's end or refreshes "
    "its page slowly; shorter after a restart.",
    absent="no page was ever read",
)  # fmt: skip
SIGNAL_QUALITY = _target(
    "signal_quality",
    Kind.GAUGE,
    Unit.BOOLEAN,
    "How far an available signal can be trusted: 1 for the quality that holds.",
    "signal",
    "quality",
    absent="the signal is not available",
)
UNMAPPED_FAMILIES = _target(
    "unmapped_families",
    Kind.GAUGE,
    Unit.COUNT,
    "Families of the runtime on the page that this version of the exporter does not know.",
    absent="no page was ever read",
)

EXPECTED_REPLICAS = _exporter(
    "expected_replicas",
    Kind.GAUGE,
    Unit.COUNT,
    "Replicas that the configuration says should run.",
    "model_name",
    "role",
    absent="not configured",
)
NVML_UP = _exporter(
    "nvml_up", Kind.GAUGE, Unit.BOOLEAN, "Whether NVML could be read at the last attempt.", absent="gpu.enabled is off"
)
DCGM_UP = _exporter(
    "dcgm_up",
    Kind.GAUGE,
    Unit.BOOLEAN,
    "Whether dcgm-exporter could be read at the last attempt.",
    absent="dcgm.url is not set, or nothing was read yet",
)
NVML_FAILURES = _exporter(
    "nvml_failures_total",
    Kind.COUNTER,
    Unit.COUNT,
    "Failed attempts to read NVML by reason.",
    "reason",
    absent="gpu.enabled is off",
)
NVML_DURATION = _exporter(
    "nvml_duration_seconds", Kind.GAUGE, Unit.SECONDS, "Time that the last NVML pass took.", absent="gpu.enabled is off"
)
BUILD_INFO = _exporter(
    "exporter_build_info", Kind.INFO, Unit.BOOLEAN, "Version of the exporter; constant 1.", "version", "python_version"
)
CONFIG_INFO = _exporter(
    "exporter_config_info", Kind.INFO, Unit.BOOLEAN, "SHA-256 of the effective configuration; constant 1.", "sha256"
)
RELOAD_SUCCESS = _exporter(
    "exporter_config_reload_success", Kind.GAUGE, Unit.BOOLEAN, "Whether the last load of the configuration went well."
)
RELOAD_TIME = _exporter(
    "exporter_config_reload_success_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When the configuration was last loaded well.",
)
DISCOVERY_FAILURES = _exporter(
    "exporter_discovery_failures_total",
    Kind.COUNTER,
    Unit.COUNT,
    "File-based discovery files that could not be used, counted at each try.",
)
_NO_DRILL = "drill.result_file is not set, or the file has no such model"
DRILL_LAST_RUN = _exporter(
    "drill_last_run_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When a drill last took a replica of the model away.",
    "model_name",
    "role",
    absent=_NO_DRILL,
)
DRILL_LAST_SUCCESS = _exporter(
    "drill_last_success_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When a drill of the model last passed.",
    "model_name",
    "role",
    absent=f"{_NO_DRILL}, or none has passed yet",
)
DRILL_LAST_VERDICT = _exporter(
    "drill_last_verdict",
    Kind.GAUGE,
    Unit.BOOLEAN,
    "What the last drill of the model came to: 1 for the verdict that holds (passed, failed, aborted).",
    "model_name",
    "role",
    "verdict",
    absent=_NO_DRILL,
)
_NO_REPORT = "report.settings_file is not set"
REPORT_DUE = _exporter(
    "report_due_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When the cost review that has yet to come was due, the first of those missed; else when it was last due by its schedule.",
    absent=f"{_NO_REPORT}, or none was due yet",
)
REPORT_NEXT_DUE = _exporter(
    "report_next_due_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When the next cost review is due by its schedule. Remembered, it tells that an exporter went away for good with its schedule.",
    absent=f"{_NO_REPORT}, or the schedule names no time within a year",
)
REPORT_LAST_RUN = _exporter(
    "report_last_run_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When the scheduled cost review last ran, whatever came of it.",
    absent=f"{_NO_REPORT}, or none has run yet",
)
REPORT_LAST_SUCCESS = _exporter(
    "report_last_success_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When the scheduled cost review was last written, and sent where that is configured.",
    absent=f"{_NO_REPORT}, or none has succeeded yet",
)
INSTALLED_TIME = _exporter(
    "installed_timestamp_seconds",
    Kind.GAUGE,
    Unit.TIMESTAMP,
    "When this exporter first ran with its state file.",
    absent="no state file is configured",
)

HEALTH = (
    TARGET_INFO, TARGET_NODE_INFO, TARGET_GPUS, TARGET_START_TIME, TARGET_UP, TARGET_STATE, TARGET_SAMPLE_AGE, TARGET_RESTARTS, SCRAPE_ATTEMPTS,
    SCRAPE_FAILURES, SCRAPE_DURATION, SCRAPE_PAGE, SIGNAL_AVAILABLE, SIGNAL_QUALITY, SIGNAL_RESOLUTION, TARGET_WINDOW, UNMAPPED_FAMILIES, EXPECTED_REPLICAS, NVML_UP, DCGM_UP,
    NVML_FAILURES, NVML_DURATION, BUILD_INFO, CONFIG_INFO, RELOAD_SUCCESS, RELOAD_TIME, DISCOVERY_FAILURES, INSTALLED_TIME,
    DRILL_LAST_RUN, DRILL_LAST_SUCCESS, DRILL_LAST_VERDICT, REPORT_DUE, REPORT_NEXT_DUE, REPORT_LAST_RUN, REPORT_LAST_SUCCESS,
)  # fmt: skip
