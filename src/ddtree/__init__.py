"""DDTree speculative decoding: draft trees, verification, and a reference engine."""

__version__ = "0.1.0"
