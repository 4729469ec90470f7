#!/bin/sh
# What `make` needs before it can run: the virtual environment and tools from outside.
#
#   scripts/setup.sh venv              .venv with the project in it (what the demo needs)
#   scripts/setup.sh venv dev          the same with the tools for tests and checks; likewise grafana, docs and fuzz
#   scripts/setup.sh release           .venv-release with what makes and examines a release, without the project
#   scripts/setup.sh tools NAME...     programs on PATH, installed with apt-get where they are missing; helm, kubeconform, actionlint,
#                                      nfpm, otelcol and Prometheus 3, which Debian lacks, are built into .venv/go/bin where Go is there
#
# Says what it installs before it does so. Where there is no apt-get it names what to install and ends with 1.
# PYTHON=/path/to/python3 chooses the interpreter, PYTHON_ENV=FOLDER another place than .venv.
set -eu

cd "$(dirname "$0")/.."
environment=${PYTHON_ENV:-.venv}
PATH="$PATH:/usr/sbin:/sbin" # Debian keeps nginx there, outside a user's PATH

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        env "$@"
    elif have sudo; then
        sudo env "$@"
    else
        fail "that needs root and there is no sudo; run as root: $*"
    fi
}

# Debian starts a service as soon as its package is in. What is wanted here is the program, so a service that was not there
# before stays off: under systemd its unit is masked during the installation and disabled after it; elsewhere RUNLEVEL=1
# tells invoke-rc.d that this is not the time.
services_of() {
    for package in "$@"; do
        case $package in
        prometheus | prometheus-alertmanager | nginx | victoria-metrics) echo "$package.service" ;;
        esac
    done
}

# apt_install PURPOSE PACKAGE...
apt_install() {
    purpose=$1
    shift
    have apt-get || fail "please install $* (needed for $purpose): there is no apt-get here; $(elsewhere "$@")"
    say "installing $* with apt-get (needed for $purpose)"
    # before anything is masked: what fails here leaves nothing behind
    ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || as_root apt-get -qq update
    masked=
    if [ -d /run/systemd/system ]; then
        for unit in $(services_of "$@"); do
            if ! systemctl cat "$unit" >/dev/null 2>&1; then
                as_root systemctl --quiet mask "$unit"
                masked="$masked $unit"
            fi
        done
    fi
    installed=0
    apt_get_install "$@" || {
        say "that failed; once more with fresh package lists"
        as_root apt-get -qq update
        apt_get_install "$@"
    } || installed=1
    for unit in $masked; do
        as_root systemctl --quiet unmask "$unit"
        as_root systemctl --quiet disable "$unit" || true # there is none where the installation failed
    done
    [ "$installed" -eq 0 ] || fail "apt-get could not install $*"
}

apt_get_install() {
    as_root DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -y --no-install-recommends install "$@" >/dev/null
}

# What the Debian packages are called where another package manager rules.
elsewhere() {
    case "$*" in
    *venv*) echo "Fedora: dnf install python3.12; macOS: brew install python@3.12" ;;
    *gcc*) echo "Fedora: dnf install gcc glibc-devel; macOS: xcode-select --install" ;;
    prometheus) echo "Fedora: dnf install golang-github-prometheus; macOS: brew install prometheus" ;;
    prometheus-alertmanager) echo "see https://prometheus.io/download/#alertmanager" ;;
    victoria-metrics) echo "see https://docs.victoriametrics.com; macOS: brew install victoriametrics" ;;
    *) echo "Fedora: dnf install $*; macOS: brew install $*" ;;
    esac
}

# need_tool TOOL PURPOSE PACKAGE...
need_tool() {
    tool=$1
    shift
    works "$tool" && return
    apt_install "$@"
    works "$tool" || fail "$tool still does not work after the installation"
}

works() {
    if [ "$1" = cc ]; then # a compiler without libc's headers compiles nothing
        have cc && echo '#include <stdio.h>' | cc -x c -fsyntax-only - 2>/dev/null
    elif [ "$1" = alertmanager ]; then # Debian's name is longer
        have prometheus-alertmanager || have alertmanager
    else
        have "$1"
    fi
}

need_named_tool() {
    case $1 in
    promtool) need_tool promtool "checking metrics pages and rules" prometheus ;;
    prometheus) need_tool prometheus "drills and tests against a real Prometheus" prometheus ;;
    amtool) need_tool amtool "checking Alertmanager's configuration" prometheus-alertmanager ;;
    alertmanager) need_tool alertmanager "drills and tests against a real Alertmanager" prometheus-alertmanager ;;
    cc) need_tool cc "the test library that stands in for a GPU driver" gcc libc6-dev ;;
    chromium) need_tool chromium "looking at rendered pages" chromium ;;
    nginx) need_tool nginx "serving a page to the benchmarks" nginx ;;
    victoria-metrics) need_tool victoria-metrics "a peer in the benchmarks, and tests of the rules on it" victoria-metrics ;;
    helm) need_built helm helm.sh/helm/v3/cmd/helm@v3.22.0 "rendering the Helm chart" ;;
    kubeconform) need_built kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0 "checking manifests against schemas" ;;
    actionlint) need_built actionlint github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 "checking the workflow of the forge" ;;
    # the newest that was tried
    nfpm) need_built nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4 "making the Debian package" ;;
    promtool3 | prometheus3) need_prometheus3 "$1" ;;
    otelcol) need_otelcol ;;
    vmalert) need_tool vmalert "tests of the rules on VictoriaMetrics" victoria-metrics ;;
    *) fail "unknown tool: $1" ;;
    esac
}

# need_built NAME MODULE PURPOSE: into .venv/go/bin, where tests look too. Without Go, or without the network, tests say that they skip.
need_built() {
    have "$1" && return
    [ -x ".venv/go/bin/$1" ] && return
    have go || {
        say "no $1 and no Go to build it with (needed for $3): what needs it is skipped"
        return
    }
    say "building $1 with Go into .venv/go/bin (needed for $3), a minute or two"
    GOBIN="$PWD/.venv/go/bin" GOFLAGS=-mod=mod go install "$2" ||
        say "$1 could not be built: what needs it is skipped"
}

# Prometheus 3 beside Debian's Prometheus 2. Its module has replace directives, so that `go install` refuses it; without the discovery of
# every cloud it builds in a minute or two.
need_prometheus3() {
    have "$1" && return
    [ -x ".venv/go/bin/$1" ] && return
    have go || {
        say "no $1 and no Go to build it with (needed for tests on Prometheus 3): what needs it is skipped"
        return
    }
    say "building $1 with Go into .venv/go/bin (needed for tests on Prometheus 3), a few minutes"
    module=$(mktemp -d)
    program=${1%3}
    output="$PWD/.venv/go/bin/$1"
    mkdir -p .venv/go/bin
    if ! (
        cd "$module"
        go mod init prometheus3 2>/dev/null
        GOFLAGS=-mod=mod go get github.com/prometheus/prometheus@v0.315.0 2>/dev/null
        GOFLAGS=-mod=mod go build -tags remove_all_sd -o "$output" "github.com/prometheus/prometheus/cmd/$program"
    ); then
        say "$1 could not be built: what needs it is skipped"
    fi
    rm -rf "$module"
}

# The OpenTelemetry Collector with the two parts that the benchmarks use, put together by its own builder.
need_otelcol() {
    have otelcol && return
    [ -x .venv/go/bin/otelcol ] && return
    have go || {
        say "no otelcol and no Go to build it with (a peer in the benchmarks): what needs it is skipped"
        return
    }
    say "building otelcol with Go into .venv/go/bin (a peer in the benchmarks), many minutes"
    folder=$(mktemp -d)
    contrib=github.com/open-telemetry/opentelemetry-collector-contrib
    mkdir -p .venv/go/bin
    cat >"$folder/builder.yml" <<END
dist: {name: otelcol, output_path: $folder/out, build_tags: remove_all_sd}
receivers: [{gomod: $contrib/receiver/prometheusreceiver v0.165.0}]
exporters: [{gomod: $contrib/exporter/prometheusremotewriteexporter v0.165.0}]
END
    if ! { GOFLAGS=-mod=mod go run go.opentelemetry.io/collector/cmd/builder@v0.165.0 --config "$folder/builder.yml" &&
        mv "$folder/out/otelcol" .venv/go/bin/otelcol; }; then
        say "otelcol could not be built: what needs it is skipped"
    fi
    rm -rf "$folder"
}

version_fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Debian and Ubuntu keep ensurepip, without which a virtual environment has no pip, in a package of its own.
makes_venvs() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# Sets `python` to the first interpreter that will do, installing what it lacks.
find_python() {
    candidates="${PYTHON:-python3.13 python3.12 python3.11 python3}"
    for python in $candidates; do
        version_fits "$python" && makes_venvs "$python" && return
    done
    for python in $candidates; do
        if version_fits "$python"; then
            apt_install "making a virtual environment" \
                "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
            makes_venvs "$python" || fail "$python has no ensurepip; choose another: PYTHON=/path/to/python3 make"
            return
        fi
    done
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is no Python 3.11 or newer"
    have python3 || {
        apt_install "everything here" python3 python3-venv
        python=python3
        version_fits "$python" && makes_venvs "$python" && return
    }
    fail "Python 3.11 or newer is needed (Debian 12 and Ubuntu 24.04 have it); or point to one: PYTHON=/path/to/python3 make"
}

# need_venv FOLDER
need_venv() {
    "$1/bin/python" -c 'import pip' 2>/dev/null && return
    find_python
    say "making $1 with $("$python" --version)"
    "$python" -m venv --clear "$1"
}

# install_locked FOLDER LOCK...: what the locks name and nothing else, each file as its hash says
install_locked() {
    folder=$1
    shift
    locks=
    for lock in "$@"; do locks="$locks --requirement locks/$lock.txt"; done
    # shellcheck disable=SC2086  # words of ours without blanks
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes $locks
}

make_venv() {
    need_venv "$environment"
    say "installing the project${1:+ with its $1 tools} into $environment"
    install_locked "$environment" "${1:-run}" build
    # everything that it needs is there: nothing is looked for anywhere, to run or to build it
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --editable .
}

make_release_venv() {
    need_venv .venv-release
    say "installing the tools of a release into .venv-release"
    install_locked .venv-release release build
}

case ${1:-} in
venv) make_venv "${2:-}" ;;
release) make_release_venv ;;
tools)
    shift
    for name in "$@"; do need_named_tool "$name"; done
    ;;
*) fail "usage: scripts/setup.sh venv [dev] | release | tools NAME..." ;;
esac
