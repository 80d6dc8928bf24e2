"""Measure speculative-decoding servers and report what the numbers support."""

PROTOCOL = 1
"""Version of the measurement protocol: a bump makes every stored cell stale."""
