"""Reference pages that are made from the code: METRICS.md, docs/runtimes.md and the tables of docs/configuration.md."""
