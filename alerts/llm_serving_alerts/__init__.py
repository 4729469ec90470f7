"""Recording rules, alerts, runbooks and routing for the series of llm-serving-exporter; rendered to files that Prometheus reads."""
