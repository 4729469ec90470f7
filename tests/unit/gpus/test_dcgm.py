"""dcgm-exporter's page -> readings by GPU, over real HTTP too; which of them are a target's."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.gpus import device_page as page_table
from llm_serving_exporter.gpus.dcgm import WANTED, is_dcgm_page, read_gpus, select_dcgm_ratios
from llm_serving_exporter.gpus.exporter_source import DcgmSource
from llm_serving_exporter.model.gpu import DcgmReading, DcgmReadings, GpuIdentity, GpuReading, MigInstance
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import HttpSettings
from llm_serving_exporter.settings.config import DcgmConfig
from tests.support.builders.dcgmpages import A30, A100, ADA, MIG, MIXED, OLD_NAMESPACE, PLAIN, T4, samples_of
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import Behaviour, FaultServer

DRAM = "DCGM_FI_PROF_DRAM_ACTIVE"


def read(text: str) -> tuple[DcgmReading, ...]:
    return read_gpus(samples_of(text))


def ratio(text: str) -> float | Absence:
    """Of the only GPU of a page."""
    (gpu,) = read(text)
    return gpu.dram_bandwidth_ratio


def dram(value: str, labels: str = f'gpu="0",UUID="{T4}"', name: str = DRAM) -> str:
    return f"{name}{{{labels}}} {value}\n"


def pods(*values: str) -> str:
    return "".join(
        dram(value, f'gpu="0",UUID="{T4}",container="vllm",namespace="ns",pod="pod-{number}"')
        for number, value in enumerate(values)
    )


# --- pages ---------------------------------------------------------------------------------------------------------

NO_PROFILING = "".join(line for line in PLAIN.splitlines(keepends=True) if "PROF" not in line)


@check_rows(
    ("text", "expected"),
    [
        (PLAIN, [DcgmReading(T4, None, 0.092781)]),
        # a share of time is never taken for bandwidth
        (NO_PROFILING, [DcgmReading(T4, None, Absence.NOT_EXPORTED)]),
        # what the model says about shares: seven instances of one memory slice of eight, 7/8 x 0.80 = 0.70
        (MIG, [DcgmReading(A100, None, 0.690789), DcgmReading(A100, 13, 0.800339)]),
        # new names, and a model without profiling on the same node
        (MIXED, [DcgmReading(ADA, None, Absence.NOT_EXPORTED), DcgmReading(A30, 3, 0.64)]),
        (OLD_NAMESPACE, [DcgmReading(T4, None, 0.125)]),
    ],
    ids=["plain", "no profiling", "MIG", "mixed", "old namespace"],
)
def test_the_gpus_of_a_page(text: str, expected: list[DcgmReading]) -> None:
    assert list(read(text)) == expected


def test_the_time_in_which_memory_was_used_is_on_the_page_and_not_read() -> None:
    assert "DCGM_FI_DEV_MEM_COPY_UTIL" in NO_PROFILING
    assert not any("COPY" in name for name in WANTED)


def test_what_is_a_page_of_dcgm_exporter() -> None:
    # its counters file may name nothing that is read here
    for text in (PLAIN, OLD_NAMESPACE, dram("3", name="DCGM_FI_DEV_XID_ERRORS")):
        assert is_dcgm_page(samples_of(text).layout.names)
    assert not is_dcgm_page(samples_of("node_load1 0.5\n").layout.names)


@check_rows(
    ("text", "expected"),
    [
        # pods that share a GPU repeat its value
        (pods("0.5", "0.500000", "5e-1"), 0.5),
        (pods("0.5", "0.6"), Absence.DUPLICATE),
        (pods("0.5", "NaN"), Absence.DUPLICATE),
        (pods("0.5", "140737488355328.000000"), Absence.DUPLICATE),
        # the old and the new name of a field are one field
        (dram("0.5") + dram("0.5", name="DCGM_FI_PROF_DRAM_UTIL_RATIO"), 0.5),
        (dram("0.4") + dram("0.5", name="DCGM_FI_PROF_DRAM_UTIL_RATIO"), Absence.DUPLICATE),
        (dram("0.5") + dram("0.5", f'gpu="0",UUID="{T4.upper()}"'), 0.5),
        *((dram(value), float(value)) for value in ("0", "0.000000", "1", "1.000000", "-0.0")),
        # blanks and nonsense
        (dram("140737488355328.000000"), Absence.WARMING_UP),
        (dram("140737488355329.000000"), Absence.NOT_EXPORTED),
        (dram("140737488355330.000000"), Absence.NOT_EXPORTED),
        (dram("140737488355331.000000"), Absence.NO_PERMISSION),
        (dram("140737488355332.000000"), Absence.INVALID),
        *((dram(value), Absence.INVALID) for value in ("9223372036854775794", "NaN", "+Inf", "-Inf", "-0.000001")),
        *((dram(value), Absence.INVALID) for value in ("1.000001", "1.294", "73")),
    ],
)
def test_the_ratio_of_a_gpu(text: str, expected: float | Absence) -> None:
    assert ratio(text) == expected


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
    page = "".join(dram("7", f'UUID="GPU-{number}"', "DCGM_FI_DEV_POWER_USAGE") for number in range(10))
    page += "".join(dram("0.5", f'UUID="GPU-{number}"') for number in range(10))
    assert read(page) == tuple(DcgmReading(f"GPU-{number}", None, 0.5) for number in range(3))


@given(st.floats())
def test_any_value_is_a_ratio_in_range_or_has_a_reason(value: float) -> None:
    found = ratio(dram(repr(value)))
    assert isinstance(found, Absence) or 0 <= found <= 1
    assert isinstance(found, Absence) is not (math.isfinite(value) and 0 <= value <= 1)


# --- the GPUs of a target ----------------------------------------------------------------------------------------------

OK = Attempt(Stage.GPU, None, "", 0.0, 0.0)


def readings_of(text: str, at: float = 100.0) -> DcgmReadings:
    return DcgmReadings(OK, at, read(text))


def nvml(uuid: str, parent: str | None = None, instance: int = 0) -> GpuReading:
    mig = MigInstance(instance, 0, "1g.5gb", parent, 1, 8) if parent else None
    return GpuReading(GpuIdentity(uuid, 0, "a GPU", mig=mig))


def dram_of(uuids: Sequence[str], text: str, gpus: Sequence[GpuReading] = ()) -> dict[str, float] | Absence:
    return select_dcgm_ratios(uuids, readings_of(text), gpus)


def test_whole_gpus_are_found_by_uuid_whatever_its_case() -> None:
    other = T4.replace("6d5c", "7777")
    page = PLAIN + dram("0.25", f'gpu="1",UUID="{other}"')
    assert dram_of([T4.upper()], page, [nvml(T4)]) == {T4.upper(): 0.092781}
    assert dram_of([other, T4], page, [nvml(T4), nvml(other)]) == {other: 0.25, T4: 0.092781}


def test_mig_instances_are_found_by_the_gpu_and_their_id() -> None:
    mine, sibling, elsewhere = nvml("MIG-1", A100.upper(), 13), nvml("MIG-2", A100, 13), nvml("MIG-3", A100, 12)
    gpus = [nvml(A100), mine, sibling, elsewhere]
    assert dram_of(["MIG-1"], MIG, gpus) == {"MIG-1": 0.800339}
    # two compute instances of one GPU instance
    assert dram_of(["MIG-1", "MIG-2"], MIG, gpus) == {"MIG-1": 0.800339, "MIG-2": 0.800339}
    assert dram_of([A100], MIG, gpus) == {A100: 0.690789}
    # the whole GPU's is not its instances', and an instance's not the GPU's
    assert dram_of(["MIG-3"], MIG, gpus) is Absence.GPUS_UNKNOWN
    assert dram_of([A30], MIXED, [nvml(A30)]) is Absence.GPUS_UNKNOWN


def test_why_a_target_has_no_ratios() -> None:
    failed = Attempt(Stage.SCRAPE, FailureReason.REFUSED, "nothing listens on localhost:9400", 0.0, 0.0)
    assert select_dcgm_ratios([T4], None, []) is Absence.NOT_CONFIGURED
    assert dram_of([], PLAIN) is Absence.GPUS_UNKNOWN
    assert select_dcgm_ratios([T4], DcgmReadings(failed, 100.0), []) is Absence.INPUT_MISSING
    readings = readings_of(PLAIN, at=100.0)
    assert select_dcgm_ratios([T4], readings, [], not_before_monotonic_seconds=100.5) is Absence.INPUT_MISSING
    assert select_dcgm_ratios([T4], readings, [], not_before_monotonic_seconds=100.0) == {T4: 0.092781}
    # one GPU that is missing leaves none
    assert dram_of([T4, A100], PLAIN) is Absence.GPUS_UNKNOWN
    assert dram_of([T4], NO_PROFILING) is Absence.NOT_EXPORTED
    assert dram_of([T4], dram("0", name="DCGM_FI_DEV_XID_ERRORS")) is Absence.NOT_EXPORTED
    assert dram_of([T4], dram("140737488355331.0")) is Absence.NO_PERMISSION


# --- dcgm-exporter over real HTTP: every scrape ends in readings, and a failed one leaves nothing ---


@contextmanager
def scraped(behaviour: Behaviour, path: str = "/metrics", **http: object) -> Iterator[tuple[FaultServer, DcgmSource]]:
    """A server that behaves so at a path, and a source that reads at most 100 series there. `http`: its settings, as of a target."""
    settings = HttpSettings(**{"timeout_seconds": 2.0, **http})
    with (
        FaultServer({path: behaviour}) as server,
        closing(DcgmSource(DcgmConfig(server.url, metrics_path=path, http=settings, max_series=100))) as source,
    ):
        yield server, source


GOOD = fault.page(PLAIN.encode())


def test_a_page_becomes_readings_with_the_time_they_were_read() -> None:
    clock = iter(range(1000, 2000))
    with FaultServer({"/metrics": GOOD}) as server:
        config = DcgmConfig(server.url, http=HttpSettings(timeout_seconds=500.0))
        source = DcgmSource(config, monotonic=lambda: float(next(clock)), wall=lambda: 1_795_000_000.0)
        with closing(source):
            first, second = source.read(), source.read()
        # the connection is kept
        assert server.connections == 1
        assert [request.path for request in server.requests] == ["/metrics", "/metrics"]
    attempt = first.attempt
    assert (attempt.ok, attempt.stage, attempt.status, attempt.page_bytes) == (True, Stage.GPU, 200, len(PLAIN))
    assert attempt.at_unix_seconds == 1_795_000_000.0
    assert 1000 < first.monotonic_seconds < second.monotonic_seconds
    assert attempt.duration_seconds > 0
    assert first.gpus == second.gpus == read(PLAIN)


def test_a_new_layout_and_another_path() -> None:
    with scraped(GOOD, "/dcgm") as (server, source):
        assert source.read().gpus == read(PLAIN)
        server.behave("/dcgm", fault.page(MIXED.encode()))
        assert source.read().gpus == read(MIXED)


@check_rows(
    ("behaviour", "stage", "reason"),
    [
        (fault.status(500), Stage.SCRAPE, FailureReason.STATUS),
        (fault.page(b""), Stage.SCRAPE, FailureReason.EMPTY),  # before its first collection
        (fault.hang_up(), Stage.SCRAPE, FailureReason.CLOSED),
        (fault.page(b"x" * 5000), Stage.SCRAPE, FailureReason.TOO_LARGE),
        (fault.page(b"DCGM_FI_DEV_FB_USED{ 1\n"), Stage.PARSE, FailureReason.MALFORMED),
        (fault.page(PLAIN.encode()[:-20]), Stage.PARSE, FailureReason.TRUNCATED),
        (fault.page(b"a 1\n" * 101), Stage.PARSE, FailureReason.TOO_MANY_SERIES),
        (fault.page(b"node_load1 0.5\n"), Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME),
    ],
)
def test_a_failed_scrape_leaves_nothing_and_the_next_one_is_its_retry(
    behaviour: Behaviour, stage: Stage, reason: FailureReason
) -> None:
    with scraped(GOOD, max_body_bytes=4096) as (server, source):
        assert source.read().attempt.ok
        server.behave("/metrics", behaviour)
        failed = source.read()
        server.behave("/metrics", GOOD)
        again = source.read()
    assert (failed.attempt.stage, failed.attempt.reason, failed.gpus) == (stage, reason, ())
    assert failed.attempt.detail
    assert again.gpus == read(PLAIN)


def test_a_server_that_never_answers_costs_the_timeout_and_one_that_is_gone_is_told() -> None:
    with scraped(fault.silent(), timeout_seconds=0.2) as (server, source):
        assert source.read().attempt.reason is FailureReason.TIMEOUT
        server.__exit__()
        assert source.read().attempt.reason is FailureReason.REFUSED


def test_a_url_that_cannot_be_used_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError):
        DcgmSource(DcgmConfig("http://host:9400/path"))


def test_a_fault_of_ours_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(page_table, "MOST_GPUS", "no number")
    with scraped(GOOD) as (_, source):
        attempt = source.read().attempt
    assert (attempt.reason, attempt.stage) == (FailureReason.INTERNAL, Stage.GPU)
    assert "reading dcgm-exporter failed; this is a bug, please report it" in caplog.text


def test_closed_twice_and_read_again() -> None:
    with scraped(GOOD) as (_, source):
        source.close()
        source.close()
        assert source.read().attempt.ok


def test_the_log_says_what_changed_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "llm_serving_exporter.dcgm")
    with scraped(GOOD) as (server, source):
        for text in (PLAIN, PLAIN, NO_PROFILING, NO_PROFILING, None, None, PLAIN):
            server.behave("/metrics", fault.status(503) if text is None else fault.page(text.encode()))
            source.read()
    said = [(record.levelname, record.getMessage().partition(": ")[2]) for record in caplog.records]
    assert [level for level, _ in said] == ["INFO", "WARNING", "WARNING", "INFO"]
    assert said[0][1] == said[3][1] == "up, 1 GPU or MIG instance"
    assert said[1][1].startswith(
        "up, without memory bandwidth: profiling fields (DCGM_FI_PROF_…) need a datacenter GPU"
    )
    assert said[2][1].startswith("scrape failed, reason=http_status: ")
