"""What a session needs of a server that runs, whoever started it."""

from __future__ import annotations

from typing import Protocol

from ddtree_bench.server.log import LogFailure


class Running(Protocol):
    """A server that can end and leaves a log; `ServerProcess` and `Attached` are such."""

    def exit_code(self) -> int | None:
        """The exit code; None while the server runs, as far as we can see."""

    def wait_for_exit(self, seconds: float) -> int | None:
        """The exit code as soon as there is one; None if there is none after `seconds`."""

    def log_tail(self) -> str:
        """The last lines that the server printed; empty where we do not have them."""

    def failure(self) -> LogFailure | None:
        """The exception or death that its log tells of; None if there is none in it."""


class Attached:
    """A server that somebody else started: its end shows only in its answers."""

    def exit_code(self) -> None:
        """Nothing: its process is not ours."""

    def wait_for_exit(self, seconds: float) -> None:
        """Nothing: its process is not ours."""

    def log_tail(self) -> str:
        """Nothing: its log is not ours."""
        return ""

    def failure(self) -> None:
        """Nothing: its log is not ours."""
