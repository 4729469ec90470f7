"""Targets out of the pods of a Kubernetes cluster: what the API server tells -> small records -> targets and the states of their pods."""
