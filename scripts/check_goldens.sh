#!/bin/sh
# Every golden exposition page must pass `promtool check metrics` without a word.
set -eu

cd "$(dirname "$0")/.."
checked=0
failed=0
for page in tests/golden/*.prom; do
    [ -e "$page" ] || break
    checked=$((checked + 1))
    words=$(promtool check metrics <"$page" 2>&1) && [ -z "$words" ] || {
        printf '%s: promtool says:\n%s\n' "$page" "$words" >&2
        failed=1
    }
done
if [ "$checked" -eq 0 ]; then
    echo "no golden pages in tests/golden: nothing was checked" >&2
    exit 1
fi
[ "$failed" -eq 0 ] && echo "promtool: $checked golden pages are clean"
exit "$failed"
