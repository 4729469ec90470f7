"""Where targets come from beside the configuration: files, HTTP, Kubernetes. Each is a section that is asked again and again."""
