"""Reference pages that are made from the code: METRICS.md and docs/runtimes.md."""
