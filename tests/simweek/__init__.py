"""Every scenario and every kind of server in one Prometheus, as its rules would have recorded them: what dashboards are looked at over."""
