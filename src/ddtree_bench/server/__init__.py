"""The life of one server: command, process, readiness, identity."""
