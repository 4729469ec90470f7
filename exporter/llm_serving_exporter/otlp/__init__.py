"""The series of the page -> OTLP, sent again and again to a receiver. The only package that knows OpenTelemetry's messages."""
