"""The exporter's web server."""
