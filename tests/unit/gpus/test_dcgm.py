"""dcgm-exporter's page -> readings by GPU, over real HTTP too; which of them are a target's."""

from __future__ import annotations

import base64
import logging
import math
import ssl
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.gpus import device_page as page_table
from llm_serving_exporter.gpus.dcgm import FIELDS, DcgmRatios, is_dcgm_page, read_gpus, select_dcgm_ratios
from llm_serving_exporter.gpus.dcgm_source import DcgmSource
from llm_serving_exporter.model.gpu import DcgmReading, DcgmReadings, GpuIdentity, GpuReading, MigInstance
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.settings.config import DcgmConfig
from tests.support.builders.dcgmpages import A30, A100, ADA, MIG, MIXED, OLD_NAMESPACE, PLAIN, T4, samples_of
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import Behaviour, FaultServer

DRAM = "DCGM_FI_PROF_DRAM_ACTIVE"


def read(text: str) -> tuple[DcgmReading, ...]:
    return read_gpus(samples_of(text))


def one(text: str) -> DcgmReading:
    (gpu,) = read(text)
    return gpu


def dram(value: str, labels: str = f'gpu="0",UUID="{T4}"', name: str = DRAM) -> str:
    return f"{name}{{{labels}}} {value}\n"


# --- pages ---------------------------------------------------------------------------------------------------------


def test_a_plain_page() -> None:
    assert one(PLAIN) == DcgmReading(
        uuid=T4,
        gpu_name="Tesla T4",
        host_name="node-1",
        dram_bandwidth_ratio=0.092781,
        tensor_activity_ratio=0.005822,
        engine_activity_ratio=0.156205,
        power_watts=68.244,
        energy_joules_total=pytest.approx(15_152_422.938),
        memory_used_bytes=5120 * 2**20,
        absent={"sm_activity_ratio": Absence.NOT_EXPORTED},
    )


def test_the_time_in_which_memory_was_used_is_never_taken_for_bandwidth() -> None:
    without = "".join(line for line in PLAIN.splitlines(keepends=True) if "PROF" not in line)
    assert "DCGM_FI_DEV_MEM_COPY_UTIL" in without
    gpu = one(without)
    assert gpu.dram_bandwidth_ratio is None
    assert gpu.absent["dram_bandwidth_ratio"] is Absence.NOT_EXPORTED
    assert gpu.power_watts == 68.244


def test_a_gpu_as_a_whole_and_its_mig_instance() -> None:
    whole, instance = read(MIG)
    assert (whole.uuid, whole.gpu_instance_id, whole.dram_bandwidth_ratio) == (A100, None, 0.690789)
    assert (instance.uuid, instance.gpu_instance_id, instance.mig_profile) == (A100, 13, "1g.5gb")
    assert (instance.dram_bandwidth_ratio, instance.tensor_activity_ratio) == (0.800339, 0.930433)
    assert instance.power_watts is None
    assert whole.power_watts == 409.692
    # what the model says about shares: seven instances of one memory slice of eight
    assert instance.dram_bandwidth_ratio * 7 / 8 == pytest.approx(whole.dram_bandwidth_ratio, rel=0.02)


def test_new_names_new_host_label_and_a_model_without_profiling_on_the_same_node() -> None:
    ada, a30 = read(MIXED)
    assert (ada.uuid, ada.host_name, ada.power_watts, ada.dram_bandwidth_ratio) == (ADA, "node-2", 61.3, None)
    assert (a30.uuid, a30.gpu_instance_id, a30.host_name, a30.gpu_name) == (A30, 3, "node-2", "NVIDIA A30")
    assert (a30.dram_bandwidth_ratio, a30.sm_activity_ratio) == (0.64, 0.81)
    assert (a30.tensor_activity_ratio, a30.engine_activity_ratio) == (0.25, 0.95)


def test_the_old_namespace() -> None:
    gpu = one(OLD_NAMESPACE)
    assert (gpu.uuid, gpu.dram_bandwidth_ratio, gpu.tensor_activity_ratio) == (T4, 0.125, 0.25)
    assert (gpu.engine_activity_ratio, gpu.power_watts) == (0.5, 10.101)
    assert gpu.energy_joules_total == pytest.approx(22.5)
    assert gpu.memory_used_bytes == 11 * 2**20


def test_what_is_a_page_of_dcgm_exporter() -> None:
    assert is_dcgm_page(samples_of(PLAIN).layout.names)
    assert is_dcgm_page(samples_of(OLD_NAMESPACE).layout.names)
    # its counters file may name nothing that is read here
    assert is_dcgm_page(samples_of(dram("3", name="DCGM_FI_DEV_XID_ERRORS")).layout.names)
    assert not is_dcgm_page(samples_of("node_load1 0.5\n").layout.names)


# --- one value for one GPU -------------------------------------------------------------------------------------------


def pods(*values: str) -> str:
    return "".join(
        dram(value, f'gpu="0",UUID="{T4}",container="vllm",namespace="ns",pod="pod-{number}"')
        for number, value in enumerate(values)
    )


def test_pods_that_share_a_gpu_repeat_its_value() -> None:
    assert one(pods("0.5", "0.500000", "5e-1")).dram_bandwidth_ratio == 0.5


@pytest.mark.parametrize("values", [("0.5", "0.6"), ("0.5", "NaN"), ("0.5", "140737488355328.000000")])
def test_values_that_contradict_each_other_are_none(values: tuple[str, ...]) -> None:
    gpu = one(pods(*values))
    assert gpu.dram_bandwidth_ratio is None
    assert gpu.absent["dram_bandwidth_ratio"] is Absence.DUPLICATE


def test_the_old_and_the_new_name_of_a_field_are_one_field() -> None:
    both = dram("0.5") + dram("0.5", name="DCGM_FI_PROF_DRAM_UTIL_RATIO")
    assert one(both).dram_bandwidth_ratio == 0.5
    assert one(both.replace("} 0.5", "} 0.4", 1)).absent["dram_bandwidth_ratio"] is Absence.DUPLICATE


def test_uuids_in_another_case_are_the_same_gpu() -> None:
    assert one(dram("0.5") + dram("0.5", f'gpu="0",UUID="{T4.upper()}"')).dram_bandwidth_ratio == 0.5


@check_rows("labels", ['gpu="0"', 'gpu="0",UUID=""', 'cpu="0",Hostname="grace"', 'nvswitch="nvswitch0"'])
def test_series_that_name_no_gpu_are_left_out(labels: str) -> None:
    assert read(dram("0.5", labels)) == ()


@check_rows(
    ("instance", "expected"),
    [("", [None]), ("0", [0]), ("13", [13]), ("x", []), ("-1", []), ("²", []), ("9" * 5000, [])],
)
def test_gpu_instance_ids(instance: str, expected: list[int | None]) -> None:
    found = read(dram("0.5", f'gpu="0",UUID="{T4}",GPU_I_PROFILE="1g.5gb",GPU_I_ID="{instance}"'))
    assert [gpu.gpu_instance_id for gpu in found] == expected


def test_a_page_of_any_number_of_gpus_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_table, "MOST_GPUS", 3)
    page = "".join(dram("0.5", f'UUID="GPU-{number}"') for number in range(10))
    page += "".join(dram("7", f'UUID="GPU-{number}"', "DCGM_FI_DEV_POWER_USAGE") for number in range(10))
    assert [(gpu.uuid, gpu.power_watts) for gpu in read(page)] == [(f"GPU-{number}", 7.0) for number in range(3)]


# --- blanks and nonsense ---------------------------------------------------------------------------------------------


@check_rows(
    ("value", "absence"),
    [
        ("140737488355328.000000", Absence.WARMING_UP),
        ("140737488355329.000000", Absence.NOT_EXPORTED),
        ("140737488355330.000000", Absence.NOT_EXPORTED),
        ("140737488355331.000000", Absence.NO_PERMISSION),
        ("140737488355332.000000", Absence.INVALID),
        ("9223372036854775794", Absence.INVALID),
        ("NaN", Absence.INVALID),
        ("+Inf", Absence.INVALID),
        ("-Inf", Absence.INVALID),
        ("-0.000001", Absence.INVALID),
        ("1.000001", Absence.INVALID),
        ("1.294", Absence.INVALID),
        ("73", Absence.INVALID),
    ],
)
@check_rows("field", [name for name in FIELDS if name.endswith("_ratio")])
def test_a_ratio_that_is_none(field: str, value: str, absence: Absence) -> None:
    gpu = one(dram(value, name=FIELDS[field].names[0]))
    assert getattr(gpu, field) is None
    assert gpu.absent[field] is absence


@check_rows("value", ["0", "0.000000", "1", "1.000000", "-0.0"])
def test_the_ends_of_the_range_are_ratios(value: str) -> None:
    assert one(dram(value)).dram_bandwidth_ratio == float(value)


@check_rows("name", ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_FB_USED"])
@check_rows(
    ("value", "absence"),
    [
        (0x7FFFFFFFFFFFFFF0, Absence.NOT_EXPORTED),
        (0x7FFFFFFFFFFFFFF1, Absence.NOT_EXPORTED),
        (0x7FFFFFFFFFFFFFF2, Absence.NOT_EXPORTED),
        (0x7FFFFFFFFFFFFFF3, Absence.NOT_EXPORTED),
        (0x7FFFFFF0, Absence.WARMING_UP),
        (0x7FFFFFF1, Absence.NOT_EXPORTED),
        (0x7FFFFFF2, Absence.NOT_EXPORTED),
        (0x7FFFFFF3, Absence.NO_PERMISSION),
        (-1, Absence.INVALID),
    ],
)
def test_blank_integers(name: str, value: int, absence: Absence) -> None:
    gpu = one(dram(str(value), name=name))
    assert (gpu.energy_joules_total, gpu.memory_used_bytes) == (None, None)
    (field,) = (field for field, spec in FIELDS.items() if name in spec.names)
    assert gpu.absent[field] is absence


def test_an_energy_counter_may_stand_where_another_type_has_its_blanks() -> None:
    gpu = one(dram("140737488355328", name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"))
    assert gpu.energy_joules_total == pytest.approx(140_737_488_355.328)
    assert one(dram("2147483648", name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")).energy_joules_total is not None


def test_blank_power() -> None:
    gpu = one(dram("140737488355330.000000", name="DCGM_FI_DEV_POWER_USAGE"))
    assert (gpu.power_watts, gpu.absent["power_watts"]) == (None, Absence.NOT_EXPORTED)


@given(st.floats(), st.sampled_from(sorted(FIELDS)))
def test_any_value_is_a_reading_in_range_or_has_a_reason(value: float, field: str) -> None:
    spec = FIELDS[field]
    gpu = one(dram(repr(value), name=spec.names[0]))
    found = getattr(gpu, field)
    assert (found is None) == (field in gpu.absent)
    if found is not None:
        assert math.isfinite(found)
        assert 0 <= found <= spec.highest * spec.factor


# --- the GPUs of a target ----------------------------------------------------------------------------------------------

OK = Attempt(Stage.GPU, None, "", 0.0, 0.0)


def readings_of(text: str, at: float = 100.0) -> DcgmReadings:
    return DcgmReadings(OK, at, read(text))


def nvml(uuid: str, parent: str | None = None, instance: int = 0) -> GpuReading:
    mig = MigInstance(instance, 0, "1g.5gb", parent, 1, 8) if parent else None
    return GpuReading(GpuIdentity(uuid, 0, "a GPU", mig=mig))


def dram_of(uuids: Sequence[str], text: str, gpus: Sequence[GpuReading] = ()) -> DcgmRatios:
    return select_dcgm_ratios(uuids, readings_of(text), gpus)


def test_whole_gpus_are_found_by_uuid_whatever_its_case() -> None:
    other = T4.replace("6d5c", "7777")
    page = PLAIN + dram("0.25", f'gpu="1",UUID="{other}"')
    assert dram_of([T4.upper()], page, [nvml(T4)]).by_uuid == {T4.upper(): 0.092781}
    assert dram_of([other, T4], page, [nvml(T4), nvml(other)]) == DcgmRatios({other: 0.25, T4: 0.092781})


def test_mig_instances_are_found_by_the_gpu_and_their_id() -> None:
    mine, sibling, elsewhere = nvml("MIG-1", A100.upper(), 13), nvml("MIG-2", A100, 13), nvml("MIG-3", A100, 12)
    gpus = [nvml(A100), mine, sibling, elsewhere]
    assert dram_of(["MIG-1"], MIG, gpus).by_uuid == {"MIG-1": 0.800339}
    # two compute instances of one GPU instance
    assert dram_of(["MIG-1", "MIG-2"], MIG, gpus).by_uuid == {"MIG-1": 0.800339, "MIG-2": 0.800339}
    assert dram_of([A100], MIG, gpus).by_uuid == {A100: 0.690789}
    # the whole GPU's is not its instances', and an instance's not the GPU's
    assert dram_of(["MIG-3"], MIG, gpus).absence is Absence.GPUS_UNKNOWN
    assert dram_of([A30], MIXED, [nvml(A30)]).absence is Absence.GPUS_UNKNOWN


def test_another_field() -> None:
    found = select_dcgm_ratios([T4], readings_of(PLAIN), [nvml(T4)], field="tensor_activity_ratio")
    assert found.by_uuid == {T4: 0.005822}


def test_one_gpu_that_is_missing_leaves_none() -> None:
    found = dram_of([T4, A100], PLAIN, [nvml(T4), nvml(A100)])
    assert found.by_uuid is None
    assert found.absence is Absence.GPUS_UNKNOWN
    assert A100 in found.why
    assert "is dcgm.url the dcgm-exporter of this node" in found.why


@check_rows(
    ("text", "absence", "why"),
    [
        (
            dram("5", name="DCGM_FI_DEV_FB_USED"),
            Absence.NOT_EXPORTED,
            "need a datacenter GPU, dcgm-exporter run as root",
        ),
        (dram("0", name="DCGM_FI_DEV_XID_ERRORS"), Absence.NOT_EXPORTED, "and their lines in its counters file"),
        (dram("140737488355331.0"), Absence.NO_PERMISSION, "CAP_SYS_ADMIN"),
        (dram("140737488355328.0"), Absence.WARMING_UP, "a profiler holds the GPU"),
        (dram("1.3"), Absence.INVALID, "is no ratio from 0 to 1"),
        (pods("0.1", "0.2"), Absence.DUPLICATE, "several values"),
    ],
)
def test_why_a_ratio_is_missing(text: str, absence: Absence, why: str) -> None:
    found = dram_of([T4], text, [nvml(T4)])
    assert (found.by_uuid, found.absence) == (None, absence)
    assert why in found.why
    assert "{" not in found.why


def test_without_readings() -> None:
    failed = Attempt(Stage.SCRAPE, FailureReason.REFUSED, "nothing listens on localhost:9400", 0.0, 0.0)
    found = [
        select_dcgm_ratios([T4], None, []),
        select_dcgm_ratios([], readings_of(PLAIN), []),
        select_dcgm_ratios([T4], DcgmReadings(failed, 100.0), []),
        select_dcgm_ratios([T4], readings_of(PLAIN, at=100.0), [], not_before_monotonic_seconds=100.5),
    ]
    assert [each.by_uuid for each in found] == [None] * 4
    assert [each.absence for each in found] == [
        Absence.NOT_CONFIGURED,
        Absence.GPUS_UNKNOWN,
        Absence.INPUT_MISSING,
        Absence.INPUT_MISSING,
    ]
    assert "nothing listens on localhost:9400" in found[2].why
    assert "too old" in found[3].why
    assert select_dcgm_ratios([T4], readings_of(PLAIN, at=100.0), [], not_before_monotonic_seconds=100.0).by_uuid


def test_every_reason_of_a_reading_has_its_sentence() -> None:
    for absence in (*FIELDS["dram_bandwidth_ratio"].blanks.values(), Absence.INVALID, Absence.DUPLICATE):
        gpu = DcgmReading(T4, absent={"dram_bandwidth_ratio": absence})
        found = select_dcgm_ratios([T4], replace(readings_of(PLAIN), gpus=(gpu,)), [])
        assert found.absence is absence
        assert T4 in found.why


def test_readings_say_that_their_values_repeat() -> None:
    assert readings_of(PLAIN).quality is Quality.SLOW


# --- dcgm-exporter over real HTTP: every scrape ends in readings, and a failed one leaves nothing ---


NO_PROFILING = "".join(line for line in PLAIN.splitlines(keepends=True) if "PROF" not in line)


def config_of(url: str, **settings: object) -> DcgmConfig:
    return DcgmConfig(url, **{"http": HttpSettings(timeout_seconds=2.0), **settings})


def test_a_page_becomes_readings_with_the_time_they_were_read() -> None:
    clock = iter(range(1000, 2000))
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(
            DcgmSource(
                config_of(server.url, http=HttpSettings(timeout_seconds=500.0)),
                monotonic=lambda: float(next(clock)),
                wall=lambda: 1_795_000_000.0,
            )
        ) as source,
    ):
        first, second = source.read(), source.read()
        # the connection is kept
        assert server.connections == 1
        assert [request.path for request in server.requests] == ["/metrics", "/metrics"]
    attempt = first.attempt
    assert (attempt.ok, attempt.stage, attempt.status, attempt.page_bytes) == (True, Stage.GPU, 200, len(PLAIN))
    assert attempt.at_unix_seconds == 1_795_000_000.0
    assert 1000 < first.monotonic_seconds < second.monotonic_seconds
    assert attempt.duration_seconds > 0
    assert first.quality is Quality.SLOW
    assert first.gpus == second.gpus
    assert select_dcgm_ratios([T4], first, []).by_uuid == {T4: 0.092781}


def test_a_new_layout_and_another_path() -> None:
    with (
        FaultServer({"/dcgm": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url, metrics_path="/dcgm"))) as source,
    ):
        assert len(source.read().gpus) == 1
        server.behave("/dcgm", fault.page(MIXED.encode()))
        assert [gpu.dram_bandwidth_ratio for gpu in source.read().gpus] == [None, 0.64]


@check_rows(
    ("behaviour", "stage", "reason"),
    [
        (fault.status(500), Stage.SCRAPE, FailureReason.STATUS),
        (fault.status(404), Stage.SCRAPE, FailureReason.STATUS),
        (fault.status(401), Stage.SCRAPE, FailureReason.UNAUTHORIZED),
        (fault.page(b""), Stage.SCRAPE, FailureReason.EMPTY),  # before its first collection
        (fault.page(b"<html></html>", "text/html"), Stage.SCRAPE, FailureReason.CONTENT_TYPE),
        (fault.hang_up(), Stage.SCRAPE, FailureReason.CLOSED),
        (fault.garbage(), Stage.SCRAPE, FailureReason.PROTOCOL),
        (fault.page(b"DCGM_FI_DEV_FB_USED{ 1\n"), Stage.PARSE, FailureReason.MALFORMED),
        (fault.page(PLAIN.encode()[:-20]), Stage.PARSE, FailureReason.TRUNCATED),
        (fault.page(b"a 1\n" * 101), Stage.PARSE, FailureReason.TOO_MANY_SERIES),
        (fault.page(b"node_load1 0.5\n"), Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME),
    ],
)
def test_a_failed_scrape_leaves_nothing_and_the_next_one_is_its_retry(
    behaviour: Behaviour, stage: Stage, reason: FailureReason
) -> None:
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url, max_series=100))) as source,
    ):
        assert source.read().attempt.ok
        server.behave("/metrics", behaviour)
        failed = source.read()
        server.behave("/metrics", fault.page(PLAIN.encode()))
        again = source.read()
    assert (failed.attempt.stage, failed.attempt.reason, failed.gpus) == (stage, reason, ())
    assert failed.attempt.detail
    found = select_dcgm_ratios([T4], failed, [])
    assert (found.by_uuid, found.absence) == (None, Absence.INPUT_MISSING)
    assert failed.attempt.detail in found.why
    assert select_dcgm_ratios([T4], again, []).by_uuid == {T4: 0.092781}


def test_nothing_listens() -> None:
    with FaultServer({}) as server:
        url = server.url
    with closing(DcgmSource(config_of(url))) as source:
        assert source.read().attempt.reason is FailureReason.REFUSED


def test_a_server_that_never_answers_costs_the_timeout() -> None:
    settings = HttpSettings(timeout_seconds=0.2)
    with (
        FaultServer({"/metrics": fault.silent()}) as server,
        closing(DcgmSource(config_of(server.url, http=settings))) as source,
    ):
        assert source.read().attempt.reason is FailureReason.TIMEOUT


def test_a_body_beyond_its_bound_is_refused() -> None:
    settings = HttpSettings(timeout_seconds=2.0, max_body_bytes=1024)
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url, http=settings))) as source,
    ):
        assert source.read().attempt.reason is FailureReason.TOO_LARGE


def test_credentials_and_tls_as_for_a_target(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "password").write_text("s3cret\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("dcgm.internal").configure_cert(context)
    settings = HttpSettings(
        timeout_seconds=2.0,
        basic_username="reader",
        basic_password=Secret(file=str(tmp_path / "password")),
        headers=(("X-Scope", "blue"),),
        ca_file=str(tmp_path / "ca.pem"),
        server_name="dcgm.internal",
    )
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}, tls=context) as server,
        closing(DcgmSource(config_of(server.url, http=settings))) as source,
    ):
        assert source.read().attempt.ok
        (request,) = server.requests
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"reader:s3cret").decode()
    assert request.headers["x-scope"] == "blue"


def test_a_url_that_cannot_be_used_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError):
        DcgmSource(config_of("http://host:9400/path"))


def test_a_fault_of_ours_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(page_table, "MOST_GPUS", "no number")
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url))) as source,
    ):
        attempt = source.read().attempt
    assert attempt.reason is FailureReason.INTERNAL
    assert "please report it" in caplog.text


def test_closed_twice_and_read_again() -> None:
    with FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server:
        source = DcgmSource(config_of(server.url))
        source.close()
        source.close()
        assert source.read().attempt.ok
        source.close()


def test_the_log_says_what_changed_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "llm_serving_exporter.dcgm")
    pages = [PLAIN, PLAIN, NO_PROFILING, NO_PROFILING, None, None, PLAIN]
    with FaultServer({}) as server, closing(DcgmSource(config_of(server.url))) as source:
        for text in pages:
            server.behave("/metrics", fault.status(503) if text is None else fault.page(text.encode()))
            source.read()
    said = [(record.levelname, record.getMessage().partition(": ")[2]) for record in caplog.records]
    assert [level for level, _ in said] == ["INFO", "WARNING", "WARNING", "INFO"]
    assert said[0][1] == said[3][1] == "up, 1 GPU or MIG instance"
    assert said[1][1].startswith(
        "up, without memory bandwidth: profiling fields (DCGM_FI_PROF_…) need a datacenter GPU"
    )
    assert said[2][1].startswith("scrape failed, reason=http_status: ")
