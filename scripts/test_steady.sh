#!/usr/bin/env bash
# Runs the default suite several times on two cores beside four busy loops: a test that watches real programs must pass on a machine that
# does other work. Stops at the first run that fails; ends its busy loops however it ends.
#
#   scripts/test_steady.sh [RUNS [ARGUMENTS OF PYTEST...]]      10 runs; where there is no taskset, on all cores
set -uo pipefail
set -m # else what runs in the background ignores an interrupt, and the tests of interrupts with it

cd "$(dirname "$0")/.."
runs=${1:-10}
python=${PYTHON_ENV:-.venv}/bin/python
shift || true
loops=()
suite=

end_children() {
    for child in "${loops[@]}" $suite; do kill "$child" 2>/dev/null; done
    wait 2>/dev/null # else each loop is reported as terminated
}
trap end_children EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

on_two_cores=()
if command -v taskset >/dev/null; then
    # the first two that this process may use
    cores=$("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep=",")')
    on_two_cores=(taskset --cpu-list "$cores")
fi
for _ in 1 2 3 4; do
    "${on_two_cores[@]}" "$python" -c 'while True: pass' &
    loops+=($!)
done

passed=0
for run in $(seq "$runs"); do
    printf '=== run %d of %d\n' "$run" "$runs"
    began=$SECONDS
    "${on_two_cores[@]}" "$python" -m pytest -q --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@" &
    suite=$!
    wait "$suite" # a signal ends this wait, and with it the suite
    status=$?
    suite=
    if [ "$status" -ne 0 ]; then
        printf 'run %d of %d failed with status %d after %d s; %d passed before it\n' "$run" "$runs" "$status" "$((SECONDS - began))" "$passed"
        exit 1
    fi
    passed=$((passed + 1))
    printf 'run %d of %d passed after %d s\n' "$run" "$runs" "$((SECONDS - began))"
done
printf '%d of %d runs passed beside four busy loops\n' "$passed" "$runs"
