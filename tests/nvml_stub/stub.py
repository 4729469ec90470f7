"""Build the scripted NVML stub, write its state, and load it: into a subprocess or into this process.

A subprocess, such as the daemon, gets it through the environment: `{**os.environ, **stub_environment(library, state)}`.
In this process `loaded_stub` puts it below the real pynvml. What a state file may say stands at the head of nvml_stub.c.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SONAME = "libnvidia-ml.so.1"
SOURCES = tuple(Path(__file__).with_name(name) for name in ("nvml_stub.c", "stub_sampling.c", "stub_state.c"))
ALL_LINKS = 0xFFFFFFFF
MEBIBYTE = 1 << 20

# An H100 SXM5 80GB: clocks, bus width, memory and power limit as its driver reports them, so the peak is 3352.32 GB/s.
H100: Mapping[str, object] = {
    "name": "NVIDIA H100 80GB HBM3",
    "pci_device_id": 0x233010DE,
    "architecture": 9,
    "compute_capability": "9.0",
    "cores": 16896,
    "bus_width": 5120,
    "max_clock_sm": 1980,
    "max_clock_memory": 2619,
    "clock_sm": 1755,
    "clock_memory": 2619,
    "memory_total": 81559 * MEBIBYTE,
    "memory_reserved": 479 * MEBIBYTE,
    "memory_used": 70000 * MEBIBYTE,
    "utilization_gpu": 100,
    "utilization_memory": 8,
    "power_mw": 612345,
    "power_limit_mw": 700000,
    "energy_mj": 123456789,
    "temperature": 61,
    "event_reasons": 0x4,
    "ecc_volatile_corrected": 3,
    "ecc_volatile_uncorrected": 0,
    "remapped_rows": "1 0 0 0",
    "mig_mode": 0,
    "mig_max": 7,
    "event_types": 0x8 | 0x100,
    "gpm": 1,
    "gpm:2": 88.0,
    "gpm:5": 22.0,
    "gpm:10": 62.5,
    "field:82": "uint 72",
    "field:197": "ull 1000000",
    "field:198": "ull 2000000",
    f"field:138:{ALL_LINKS}": "ull 4096",
    f"field:139:{ALL_LINKS}": "ull 8192",
}


class StubState:
    """The stub's state file. Change it through the methods; every change is written at once, atomically.

    A GPU is described by what it has: `drop` a key, and its function answers "not supported".
    """

    def __init__(self, path: Path, gpus: int = 1) -> None:
        self.path = path
        self._lines: dict[tuple[str, str], str] = {("sys", "driver"): "580.95.05", ("sys", "generation"): "1"}
        self._events = 0
        for index in range(gpus):
            self._describe(index)
        self._lines["sys", "count"] = str(gpus)
        self._write()

    @staticmethod
    def uuid(index: int) -> str:
        """The UUID of a GPU of this state."""
        return f"GPU-00000000-0000-0000-0000-{index:012d}"

    def set(self, scope: str, **values: object) -> None:
        """Set keys of a scope; a key that is no Python name goes through `update`."""
        self.update(scope, values)

    def update(self, scope: str, values: Mapping[str, object]) -> None:
        """Set keys of a scope."""
        for key, value in values.items():
            self._lines[scope, key] = str(value)
        self._write()

    def drop(self, scope: str, *keys: str) -> None:
        """Remove keys of a scope, all of them where none is named."""
        for line in [line for line in self._lines if line[0] == scope and (not keys or line[1] in keys)]:
            del self._lines[line]
        self._write()

    def fail(self, scope: str, function: str, code: int) -> None:
        """Make a C function of a scope return a code; "*" is every function of the scope."""
        self.update(scope, {f"fail:{function}": code})

    def heal(self, scope: str, *functions: str) -> None:
        """Undo `fail`, for every function of the scope where none is named."""
        names = functions or tuple(key[5:] for where, key in self._lines if where == scope and key.startswith("fail:"))
        if names:
            self.drop(scope, *(f"fail:{name}" for name in names))

    def count(self, gpus: int) -> None:
        """How many GPUs are enumerated; new ones are H100s."""
        for index in range(gpus):
            if (f"gpu{index}", "uuid") not in self._lines:
                self._describe(index)
        self.update("sys", {"count": gpus})

    def reload_driver(self) -> None:
        """As after a driver reload: every call fails with Uninitialized until nvmlInit."""
        self.update("sys", {"generation": int(self._lines["sys", "generation"]) + 1})

    def processes(self, scope: str, *processes: tuple[object, ...]) -> None:
        """The compute processes of a scope: (pid, bytes or "-"[, gpu instance, compute instance])."""
        old = [key for where, key in self._lines if where == scope and key.startswith("process:")]
        if old:
            self.drop(scope, *old)
        self.update(scope, {f"process:{n}": " ".join(map(str, one)) for n, one in enumerate(processes)})

    def xid(self, gpu: int, xid: int) -> None:
        """Deliver an XID event once."""
        self._events += 1
        self.update("sys", {f"event:{self._events}": f"gpu{gpu} {xid}"})

    def mig(self, gpu: int, slot: int, profile: str, memory_mib: int, gi: int, ci: int = 0) -> str:
        """Put an instance into a slot of a GPU and switch the GPU to MIG mode; returns the instance's UUID."""
        uuid = f"MIG-{gpu:08d}-{slot:04d}-{gi:04d}-{ci:04d}-{memory_mib:012d}"
        self.set(f"gpu{gpu}", mig_mode=1)
        self.drop(f"gpu{gpu}", "utilization_gpu")  # not supported in MIG mode
        self.set(
            f"gpu{gpu}/mig{slot}",
            uuid=uuid,
            name=f"NVIDIA H100 80GB HBM3 MIG {profile}",
            gi=gi,
            ci=ci,
            attribute_memory_mib=memory_mib,
            memory_total=memory_mib * MEBIBYTE,
            memory_used=memory_mib * MEBIBYTE // 2,
        )
        return uuid

    def _describe(self, index: int) -> None:
        own = {"uuid": self.uuid(index), "minor": index, "pci_bus_id": f"00000000:{0x1A + index:02X}:00.0"}
        self._lines.update({(f"gpu{index}", key): str(value) for key, value in {**H100, **own}.items()})

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{scope} {key} {value}\n" for (scope, key), value in self._lines.items()))
        # a rename, so that the stub never reads half a file; its new inode tells the stub that it changed
        fresh.replace(self.path)


def build_stub(folder: Path) -> Path:
    """Compile the stub into `folder` and return the library's path, whose directory goes into LD_LIBRARY_PATH.

    Raises RuntimeError where there is no C compiler: install gcc or clang (`make test` needs one), nothing is skipped.
    """
    return compile_library(folder / SONAME, *SOURCES, soname=SONAME)


def compile_library(library: Path, *sources: Path, soname: str | None = None) -> Path:
    """Compile C sources into a shared library and return its path. Raises RuntimeError as `build_stub` does."""
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError(
            "the GPU tests build stubs of NVIDIA's libraries and need a C compiler: install gcc or clang"
        )
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]
    if soname is not None:
        flags.append(f"-Wl,-soname,{soname}")
    command = [compiler, *flags, "-o", str(library), *map(str, sources), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the stub does not compile:\n{done.stderr}")
    return library


def stub_environment(library: Path, state: Path) -> dict[str, str]:
    """What a subprocess needs in its environment to see the stub as its NVML."""
    search = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(search), "NVML_STUB_STATE": str(state)}


class StubLibrary:
    """The stub loaded in this process: what it counted since it was loaded."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @property
    def live_samples(self) -> int:
        return int(self._library.stub_live_samples())

    @property
    def live_event_sets(self) -> int:
        return int(self._library.stub_live_event_sets())

    @property
    def init_balance(self) -> int:
        """nvmlInit minus nvmlShutdown."""
        return int(self._library.stub_init_balance())

    @property
    def misuse(self) -> int:
        """Calls that no correct program makes: after shutdown, with freed samples or sets, GPM on MIG handles."""
        return int(self._library.stub_misuse())

    def calls(self, function: str) -> int:
        """How often a C function was called."""
        return int(self._library.stub_calls(function.encode()))


@contextmanager
def loaded_stub(library: Path, state: Path) -> Iterator[StubLibrary]:
    """Put the stub below the real pynvml of this process; its counters start at 0."""
    # loaded first, it answers pynvml's CDLL("libnvidia-ml.so.1") by its SONAME
    loaded = ctypes.CDLL(str(library))
    _forget_library()
    loaded.stub_reset()
    before = os.environ.get("NVML_STUB_STATE")
    os.environ["NVML_STUB_STATE"] = str(state)
    try:
        yield StubLibrary(loaded)
    finally:
        _forget_library()
        if before is None:
            del os.environ["NVML_STUB_STATE"]
        else:
            os.environ["NVML_STUB_STATE"] = before


def _forget_library() -> None:
    """pynvml keeps the library and its functions once it has loaded them."""
    import pynvml

    module: Any = pynvml
    module.nvmlLib = None
    module._nvmlGetFunctionPointer_cache.clear()
