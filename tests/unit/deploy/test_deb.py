"""The Debian package that `make deb` makes: the same bytes twice, what is in it, and a real dpkg that installs, removes and purges it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from email.parser import Parser
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from llm_serving_exporter import __version__
from scripts.make_deb import debian_version
from tests.support.builders.recordings import page
from tests.support.helm import need_tool
from tests.support.paths import ROOT
from tests.support.servers.replica import Replica
from tests.support.waiting import PATIENCE_SECONDS

NAME = "llm-serving-exporter"
# the one that Debian has here: what is installed runs on it
PYTHON = next((one for one in ("3.11", "3.12", "3.13") if Path(f"/usr/bin/python{one}").exists()), "3.11")
# lays a writable file system over this machine's, and runs $1 there as on a machine of its own
_OVERLAY = """set -e
mount -t tmpfs tmpfs "$2"
mkdir "$2/upper" "$2/work" "$2/tree"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/tree"
mount -t proc proc "$2/tree/proc"
if [ -n "$3" ]; then cp "$3" "$2/tree/package.deb"; fi
exec chroot "$2/tree" sh -ec "$1"
"""
_LIFE = f"""
dpkg --force-depends --install /package.deb
{NAME} --version
{NAME} check-config --config.file /etc/{NAME}/exporter.yml
find /usr/lib/{NAME} -name '*.pyc' | head -n 1 | grep -q .
test "$(readlink /etc/systemd/system/multi-user.target.wants/{NAME}.service)" = /lib/systemd/system/{NAME}.service
mkdir -p /var/lib/private/{NAME}
touch /var/lib/private/{NAME}/kept
dpkg --remove {NAME}
test -e /etc/{NAME}/exporter.yml
test -e /var/lib/private/{NAME}/kept
test ! -e /usr/lib/{NAME}
test ! -e /usr/bin/{NAME}
dpkg --purge {NAME}
echo left behind: $(find /etc /usr /lib /var -xdev -name '*{NAME}*' ! -path '/usr/local/*')
"""

pytestmark = pytest.mark.deb


def make(out: Path, umask: int) -> Path:
    """The package, made as somebody else with other habits would."""
    nfpm = need_tool("nfpm")
    command = [sys.executable, str(ROOT / "scripts/make_deb.py"), "--python", PYTHON, "--nfpm", nfpm, "--out", str(out)]
    told = {"DEBFULLNAME": "Jane Doe", "DEBEMAIL": "jane@example.com", "SOURCE_REVISION": "0123456789ab"}
    done = subprocess.run(
        command, env=os.environ | told, capture_output=True, text=True, check=False, preexec_fn=partial(os.umask, umask)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("deb"), 0o022)


@pytest.fixture(scope="module")
def unpacked(package: Path) -> Path:
    folder = package.parent / "unpacked"
    checked("dpkg-deb", "--extract", str(package), str(folder))
    return folder


def checked(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=6 * PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_the_same_bytes_when_it_is_made_again(package: Path, tmp_path: Path) -> None:
    again = make(tmp_path, 0o077)
    assert again.name == package.name
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(package.read_bytes()).digest()


def test_it_says_what_it_is_and_what_it_needs(package: Path) -> None:
    control = Parser().parsestr(checked("dpkg-deb", "--field", str(package)))
    assert control["Package"] == NAME
    assert control["Version"] == f"{__version__}+python{PYTHON}"
    assert control["Maintainer"] == "Jane Doe <jane@example.com>"
    assert f"python{PYTHON}" in control["Depends"].split(", ")


def test_versions_sort_as_dpkg_sorts_them() -> None:
    versions = [debian_version(one, "3.11") for one in ("0.2.0.dev1", "0.2.0a1", "0.2.0rc1", "0.2.0", "0.2.1")]
    versions.append(debian_version("0.2.1", "3.13"))
    for earlier, later in pairwise(versions):
        checked("dpkg", "--compare-versions", earlier, "lt", later)


def test_nothing_in_it_tells_of_the_machine_that_made_it(unpacked: Path) -> None:
    for path in unpacked.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert str(ROOT).encode() not in path.read_bytes(), path
    assert not list(unpacked.rglob("*.pyc"))
    assert not list(unpacked.rglob("direct_url.json"))


def test_the_unit_starts_what_is_installed_and_systemd_takes_it_without_a_word(unpacked: Path, tmp_path: Path) -> None:
    text = (unpacked / f"lib/systemd/system/{NAME}.service").read_text()
    assert f"ExecStart=/usr/bin/{NAME} --config.file /etc/{NAME}/exporter.yml" in text
    assert f"Documentation=man:{NAME}(1)\n" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on PATH")
    unit = tmp_path / f"{NAME}.service"
    # systemd looks whether the program and the page are there
    unit.write_text(text.replace(f"/usr/bin/{NAME}", "/bin/true").replace(f"Documentation=man:{NAME}(1)\n", ""))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    own = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert (done.returncode, own) == (0, [])


def test_the_page_of_the_manual_is_one(unpacked: Path) -> None:
    page = str(unpacked / f"usr/share/man/man1/{NAME}.1.gz")
    if shutil.which("man") is None:
        pytest.skip("no man on PATH")
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = checked("man", "-E", "UTF-8", "-l", "-P", "cat", page)
    assert "--web.listen-address VALUE" in said
    assert "check-config" in said


def test_lintian_finds_nothing_that_has_no_reason_given(package: Path) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("no lintian on PATH (Debian: apt-get install lintian)")
    words = ("--allow-root", "--fail-on", "error,warning")
    done = subprocess.run(["lintian", *words, str(package)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_reads_a_server_with_debians_python(unpacked: Path) -> None:
    library = unpacked / f"usr/lib/{NAME}"
    if not Path(os.readlink(library / "bin/python3")).exists():
        pytest.skip(f"no Python of Debian's here: {os.readlink(library / 'bin/python3')}")
    with Replica({"/metrics": page("vllm-0.32", 50)}) as server:
        words = ("once", "--target", server.url, "--wait", "1s", "--json")
        said = checked(str(library / "bin/python3"), "-I", "-m", "llm_serving_exporter", *words)
    assert '"vllm"' in said


def test_dpkg_installs_removes_and_purges_it_and_nothing_is_left(package: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("dpkg") is None:
        pytest.skip("needs root, unshare and dpkg: a file system is laid over this machine's")
    probe = ["unshare", "--mount", "sh", "-ec", _OVERLAY, "sh", "true", str(tmp_path), ""]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be laid over this machine's")
    said = checked("unshare", "--mount", "sh", "-ec", _OVERLAY, "sh", _LIFE, str(tmp_path), str(package))
    assert f"{NAME} {__version__} (revision " in said
    assert "good, 1 target" in said
    assert said.splitlines()[-1] == "left behind:"
