"""Dashboards for Grafana over the exporter's series and the recording rules."""
