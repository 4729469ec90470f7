"""Derived and Attempt -> Prometheus families; the web server."""
