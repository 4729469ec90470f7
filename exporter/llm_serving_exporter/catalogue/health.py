"""Series about targets, attempts and the exporter: what can be trusted now, and why something is missing."""

from __future__ import annotations

from llm_serving_exporter.catalogue.spec import NODE_LABELS, Group, Kind, Metric, Unit, list_declared

# what no namespace, pod, node or workload can be called
AS_WRITTEN = "as written"
_ALWAYS = "the target is not configured"
_EXPORTER = "never absent"


def _target(
    name: str, kind: Kind, unit: Unit, help: str, *labels: str, absent: str = _ALWAYS, whole_identity: bool = False
) -> Metric:
    return Metric(
        name, kind, unit, Group.HEALTH, help, ("target", *labels), absent, "", "exporter", whole_identity=whole_identity
    )


def _exporter(name: str, kind: Kind, unit: Unit, help: str, *labels: str, absent: str = _EXPORTER) -> Metric:
    return Metric(name, kind, unit, Group.EXPORTER, help, labels, absent, "", "exporter")


def _fleet(name: str, kind: Kind, unit: Unit, help: str, *labels: str, absent: str) -> Metric:
    """About the replicas of a model and role: only their identity tells them from those of another namespace."""
    own = ("model_name", "role", *labels)
    return Metric(name, kind, unit, Group.EXPORTER, help, own, absent, "", "exporter", whole_identity=True)


TARGET_INFO = _target(
    "target_info", Kind.INFO, Unit.BOOLEAN, "Identity of the target; constant 1, kept while the target is configured.",
    "runtime", "version", "model_name", "role", "group", whole_identity=True,
)  # fmt: skip
TARGET_NODE_INFO = _target(
    "target_node_info", Kind.INFO, Unit.BOOLEAN, "A node that the target spans, with where it stands and what it is, \"\" where that is not known; constant 1, one series per node.",
    "model_name", "role", "node", *NODE_LABELS,
    absent="a remote target whose nodes are not configured",
)  # fmt: skip
TARGET_GPUS = _target(
    "target_gpus", Kind.GAUGE, Unit.COUNT,
    "GPUs that all engines of the target use together, with their name in the GPU catalogue; kept while the target is configured. A MIG "
    "instance counts as its part of the card's compute slices, a GPU that is shared as the target's share of it.",
    "gpu_name", absent="their number or the target's share of them is not known, or the target is a front end",
)  # fmt: skip
TARGET_REPLICA_RANKS = _target(
    "target_replica_ranks", Kind.GAUGE, Unit.COUNT,
    "Data-parallel ranks that share one set of experts, for a target that has some of them: all of the replica (of=replica), those on the target's own page (of=target), and "
    "those on the pages that this exporter reads (of=read), whose batches its ceilings add up; where that is not all, the others are taken for as busy. `replica_name`: the group "
    "of the target, else that of its pods (LeaderWorkerSet, Grove), else its namespace and workload; targets with the same one are one replica.",
    "replica_name", "of", absent="the target is a replica by itself",
)  # fmt: skip
TARGET_START_TIME = _target(
    "target_start_time_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When the engine started: its process start time, else the last counter reset, else when it was first seen.", absent="no page was ever read",
)  # fmt: skip
TARGET_UP = _target(
    "target_up", Kind.GAUGE, Unit.BOOLEAN, "Whether the last attempt to read the target's page succeeded.", absent="not tried yet",
)  # fmt: skip
TARGET_STATE = _target("target_state", Kind.GAUGE, Unit.BOOLEAN, "State of the target: 1 for the current state.", "state")  # fmt: skip
TARGET_FAULT = _target(
    "target_fault_info", Kind.INFO, Unit.BOOLEAN,
    "Why the target does not serve, as far as others know than its page: nothing takes a connection at its address (silent), or Kubernetes says "
    "that its container starts again and again (crash_loop), that its node is lost (node_lost), or that another pod of its replica is (worker_lost); "
    "constant 1. `node` is where its address is, as far as that is known.",
    "fault", "node", absent="nothing of the kind is known",
)  # fmt: skip
TARGET_SAMPLE_AGE = _target(
    "target_sample_age_seconds", Kind.GAUGE, Unit.SECONDS, "Age of the last good page.", absent="no page was ever read"
)
TARGET_RESTARTS = _target(
    "target_restarts_total", Kind.COUNTER, Unit.COUNT, "Restarts of the engine seen since the exporter's start."
)
SCRAPE_ATTEMPTS = _target("scrape_attempts_total", Kind.COUNTER, Unit.COUNT, "Attempts to read the target.")
SCRAPE_FAILURES = _target(
    "scrape_failures_total", Kind.COUNTER, Unit.COUNT,
    "Failed attempts to read the target, by the stage at which they ended: scrape (no metrics page came), parse (its text is broken), normalise (it is not the page of an "
    "engine that is known). Each stage is there at 0 from the start.",
    "stage",
)  # fmt: skip
TARGET_LAST_FAILURE = _target(
    "target_last_failure_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When an attempt to read the target last failed, with the stage at which it ended and the reason. It stays after the target has recovered: target_up says whether it "
    "fails now.",
    "stage", "reason", absent="none has failed since the exporter's start",
)  # fmt: skip
SCRAPE_DURATION = _target(
    "scrape_duration_seconds", Kind.GAUGE, Unit.SECONDS, "Time that the last attempt took.", absent="not tried yet"
)
SCRAPE_PAGE = _target(
    "scrape_page_bytes", Kind.GAUGE, Unit.BYTES, "Size of the last page after decompression.", absent="no page was ever read",
)  # fmt: skip
SIGNALS = _target(
    "signals", Kind.GAUGE, Unit.COUNT,
    "How many signals the target has (available), and how many it could have and lacks (absent); signal_available names those.",
    "state", absent="no page was ever read, and nothing of the target's cost is known",
)  # fmt: skip
SIGNAL_AVAILABLE = _target(
    "signal_available", Kind.GAUGE, Unit.BOOLEAN,
    "0 for a signal that is absent, with the code of the reason. A signal that is available has no such series.",
    "signal", "reason", absent="the signal is available, or nobody looked: then signals is absent, too",
)  # fmt: skip
# the signals whose quality is published when it is live, too: rules ask for it. A test holds the list against the rules
ASKED_WHETHER_LIVE = frozenset({"decode_tokens_total", "engine_steps_total", "requests_running"})
SIGNAL_QUALITY = _target(
    "signal_quality", Kind.GAUGE, Unit.BOOLEAN,
    "How far an available signal can be trusted: 1 for its current quality. What is live is said only of the signals of which rules ask it: "
    f"{', '.join(sorted(ASKED_WHETHER_LIVE))}.",
    "signal", "quality", absent="the signal is live, or not available: then signal_available has it",
)  # fmt: skip
IMPLAUSIBLE_VALUES = _target(
    "implausible_values_total", Kind.COUNTER, Unit.COUNT,
    "Values that cannot be true and were left out, by the series that they would have been, or the field of the page: outside the declared range, or a counter that fell without "
    "its engine. Counted once for each page that has one; what only the last look before publishing found, once for each scrape of the exporter.",
    "signal", absent="no such value was left out since the exporter's start",
)  # fmt: skip
SIGNAL_RESOLUTION = _target(
    "signal_resolution", Kind.GAUGE, Unit.COUNT,
    "Smallest change of a counter that the engine's page can show, in the counter's unit, if the page prints numbers with few digits.",
    "signal", absent="the page prints its numbers in full",
)  # fmt: skip
TARGET_WINDOW = _target(
    "target_window_seconds", Kind.GAUGE, Unit.SECONDS,
    "Longest time span of the target's derived figures: the configured window, longer for what the engine counts at the end of a request or "
    "refreshes slowly, shorter after a restart. Figures of live signals keep the configured window.",
    absent="no page was ever read",
)  # fmt: skip
UNMAPPED_FAMILIES = _target(
    "unmapped_families", Kind.GAUGE, Unit.COUNT, "Metric families of the runtime that this version of the exporter does not know.",
    absent="no page was ever read",
)  # fmt: skip

EXPECTED_REPLICAS = _fleet(
    "expected_replicas", Kind.GAUGE, Unit.COUNT, "Replicas that the configuration says should run.", absent="not configured",
)  # fmt: skip
PODS_WAITING = _fleet(
    "pods_waiting", Kind.GAUGE, Unit.COUNT,
    "Pods that Kubernetes is to run and that have no address yet: they wait for a node, a volume or a network. The model's name is that of their "
    "workload's other pods, or stands in an annotation.",
    absent="no pod waits, or none of them is looked for (kubernetes in the configuration)",
)  # fmt: skip
WRITTEN_LABELS = Metric(
    "written_labels_info", Kind.INFO, Unit.BOOLEAN, Group.EXPORTER,
    f"Every label that says where a target is and what it belongs to, each with the value {AS_WRITTEN!r}: where Prometheus stores another value, or the label as exported_…, "
    "the scrape has put one of its own in its place.",
    (), _EXPORTER, "", "exporter", whole_identity=True,
)  # fmt: skip
NVML_UP = _exporter(
    "nvml_up", Kind.GAUGE, Unit.BOOLEAN, "Whether the last attempt to read NVML succeeded.", absent="gpu.enabled is off"
)
DCGM_UP = _exporter(
    "dcgm_up", Kind.GAUGE, Unit.BOOLEAN, "Whether the last attempt to read dcgm-exporter succeeded.",
    absent="dcgm.url is not set, or nothing was read yet",
)  # fmt: skip
DEVICE_EXPORTER_UP = _exporter(
    "device_exporter_up", Kind.GAUGE, Unit.BOOLEAN, "Whether the last attempt to read the exporter of AMD's or Intel's GPUs succeeded.",
    absent="device_exporter.url is not set, or nothing was read yet",
)  # fmt: skip
NVML_FAILURES = _exporter(
    "nvml_failures_total", Kind.COUNTER, Unit.COUNT, "Failed attempts to read NVML by reason.", "reason", absent="gpu.enabled is off",
)  # fmt: skip
NVML_DURATION = _exporter(
    "nvml_duration_seconds", Kind.GAUGE, Unit.SECONDS, "Time that the last NVML pass took.", absent="gpu.enabled is off"
)
_NO_KUBELET = "gpu.pod_resources_socket is off, or auto and there is no kubelet"
KUBELET_UP = _exporter(
    "kubelet_up", Kind.GAUGE, Unit.BOOLEAN, "Whether the kubelet last said which pod has which GPUs.", absent=_NO_KUBELET,
)  # fmt: skip
KUBELET_FAILURES = _exporter(
    "kubelet_failures_total", Kind.COUNTER, Unit.COUNT, "Questions to the kubelet that failed, by reason.", "reason", absent=_NO_KUBELET,
)  # fmt: skip
BUILD_INFO = _exporter(
    "exporter_build_info", Kind.INFO, Unit.BOOLEAN, "Version of the exporter; constant 1.", "version", "python_version"
)
CONFIG_INFO = _exporter(
    "exporter_config_info", Kind.INFO, Unit.BOOLEAN, "SHA-256 of the effective configuration; constant 1.", "sha256"
)
RELOAD_SUCCESS = _exporter(
    "exporter_config_reload_success", Kind.GAUGE, Unit.BOOLEAN, "Whether the configuration was loaded successfully the last time.",
)  # fmt: skip
RELOAD_TIME = _exporter(
    "exporter_config_reload_success_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP, "When the configuration was last loaded successfully.",
)  # fmt: skip
DISCOVERY_FAILURES = _exporter(
    "exporter_discovery_failures_total", Kind.COUNTER, Unit.COUNT,
    "Sources of targets (files, servers) that could not be used, and targets that were left out, counted each time that one is read.",
)  # fmt: skip
WEB_REFUSALS = _exporter(
    "exporter_web_refusals_total", Kind.COUNTER, Unit.COUNT,
    "Connections of the exporter's own web server that were refused or cut, by reason: crowded (too many at once), made_room (the slowest of the "
    "peer with the most), descriptors (no more may be opened: it is tried again), slow (a request or handshake without end), unread (an answer that is not taken), password (too many checks wait), "
    "denied (wrong name or password), browser (a script of a page asked).", "reason",
)  # fmt: skip
WEB_CERTIFICATE_EXPIRY = _exporter(
    "exporter_web_certificate_expiry_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When the certificate of the exporter's own web server expires.",
    absent="the web server has no TLS, or its certificate says no time that can be read",
)  # fmt: skip
TARGETS = _exporter(
    "exporter_targets", Kind.GAUGE, Unit.COUNT,
    "Targets that the configuration and discovery name, each counted once, by who reads them: held by this exporter, in other_shard, or "
    "left_out because it is beyond what one exporter reads.", "state",
)  # fmt: skip
SHARD_INFO = _exporter(
    "exporter_shard_info", Kind.INFO, Unit.BOOLEAN,
    "Which part of the targets this exporter reads, and how many parts there are; constant 1.", "shard", "shards",
    absent="shard is not set",
)  # fmt: skip
SHARD_HELD = _exporter(
    "exporter_shard_held", Kind.GAUGE, Unit.BOOLEAN,
    "Whether this exporter reads a shard, for each that there should be: one that is 0 everywhere is read by nobody.", "shard",
    absent="shard is not set",
)  # fmt: skip
MODE_INFO = _exporter(
    "exporter_mode_info", Kind.INFO, Unit.BOOLEAN,
    "Where the exporter stands to its targets: in the pod of the engine that it reads (sidecar), on their node (node), or elsewhere (central); constant 1. `node` is where it runs.",
    "mode", "node",
)  # fmt: skip
INSTALLED_TIME = _exporter(
    "installed_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP, "When this exporter first ran with its state file.",
    absent="no state file is configured, or the clock was not set at the start",
)  # fmt: skip
COST_STORAGE = _exporter(
    "exporter_cost_storage", Kind.GAUGE, Unit.BOOLEAN,
    "Where the counters of cost and GPU time are safe: 1 for what holds. disk: they are published as far as they are in the state folder. behind: the folder "
    "cannot be written, they stand still at its last snapshot. memory: they go on without it, and begin at 0 after a restart. elsewhere: another exporter has "
    "the folder. none: state_dir is not set.",
    "storage",
)  # fmt: skip
COST_SNAPSHOT_TIME = _exporter(
    "exporter_cost_snapshot_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When the last snapshot of cost that is in the state folder was taken.",
    absent="state_dir is not set, or no snapshot was written since the start",
)  # fmt: skip
COST_SNAPSHOT_FAILURES = _exporter(
    "exporter_cost_snapshot_failures_total", Kind.COUNTER, Unit.COUNT,
    "Snapshots of cost that could not be written to the state folder.", absent="state_dir is not set",
)  # fmt: skip
_NO_OTLP = "otlp.url is not set"
OTLP_EXPORTS = _exporter(
    "exporter_otlp_exports_total", Kind.COUNTER, Unit.COUNT,
    "Times that all series were to be sent over OTLP, by outcome: sent, or failed (what had changed is sent with the next).",
    "outcome", absent=_NO_OTLP,
)  # fmt: skip
OTLP_REJECTED = _exporter(
    "exporter_otlp_rejected_points_total", Kind.COUNTER, Unit.COUNT,
    "Data points that the receiver of OTLP said it did not take.", absent=_NO_OTLP,
)  # fmt: skip
OTLP_LAST_SUCCESS = _exporter(
    "exporter_otlp_last_success_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When all series were last sent over OTLP.", absent=f"{_NO_OTLP}, or none was sent yet",
)  # fmt: skip
_NO_DRILL = "drill.result_file is not set, or the file has no such model"
DRILL_LAST_RUN = _fleet(
    "drill_last_run_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP, "When a drill last removed a replica of the model.", absent=_NO_DRILL,
)  # fmt: skip
DRILL_LAST_SUCCESS = _fleet(
    "drill_last_success_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP, "When a drill of the model last passed.",
    absent=f"{_NO_DRILL}, or none has passed yet",
)  # fmt: skip
DRILL_LAST_VERDICT = _fleet(
    "drill_last_verdict", Kind.GAUGE, Unit.BOOLEAN, "Verdict of the last drill of the model (passed, failed, aborted): 1 for that verdict.",
    "verdict", absent=_NO_DRILL,
)  # fmt: skip
_NO_REPORT = "report.settings_file is not set"
REPORT_DUE = _exporter(
    "report_due_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When the oldest missed cost review was due; if none was missed, when the last one was due.",
    absent=f"{_NO_REPORT}, or none was due yet",
)  # fmt: skip
REPORT_NEXT_DUE = _exporter(
    "report_next_due_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When the next scheduled cost review is due. Prometheus remembers it, so an alert can tell that the exporter with the schedule is gone.",
    absent=f"{_NO_REPORT}, or the schedule has no time within a year",
)  # fmt: skip
REPORT_LAST_RUN = _exporter(
    "report_last_run_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP, "When the scheduled cost review last ran, with or without success.",
    absent=f"{_NO_REPORT}, or none has run yet",
)  # fmt: skip
REPORT_LAST_SUCCESS = _exporter(
    "report_last_success_timestamp_seconds", Kind.GAUGE, Unit.TIMESTAMP,
    "When the scheduled cost review was last written, and sent where that is configured.",
    absent=f"{_NO_REPORT}, or none has succeeded yet",
)  # fmt: skip

HEALTH = list_declared(globals())
