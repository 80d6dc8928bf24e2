"""How a request, a cell or a session ended: the closed vocabulary of the whole pipeline."""

from __future__ import annotations

from ddtree_bench.vocabulary import Vocabulary


class Status(Vocabulary):
    """How something ended."""

    @property
    def ok(self) -> bool:
        """Whether it was measured."""
        return self is Status.OK

    @property
    def failed(self) -> bool:
        """Whether something went wrong: what was not needed neither succeeded nor failed."""
        return not self.ok and self is not Status.NOT_NEEDED

    OK = "ok", "measured"
    DIED_AT_START = "died_at_start", "server died before it was ready"
    NOT_READY = "not_ready", "server was not ready before its deadline"
    WRONG_SERVER = "wrong_server", "server is not what the configuration says"
    DIED_IN_WARMUP = "died_in_warmup", "server died while warming up"
    DIED_IN_REQUEST = "died_in_request", "server died during a request"
    OUT_OF_MEMORY = "out_of_memory", "server ran out of memory"
    HUNG = "hung", "server sent nothing for longer than the request deadline"
    UNREACHABLE = "unreachable", "server closed the connection or refused it"
    HTTP_ERROR = "http_error", "server answered with an HTTP error"
    STREAM_ERROR = "stream_error", "server sent an error inside the stream"
    MALFORMED = "malformed", "server's answer is not of the documented shape"
    NO_USAGE = "no_usage", "server's answer carries no token counts"
    NO_TOKENS = "no_tokens", "server's answer holds no tokens"
    BAD_COUNTS = "bad_counts", "server's counters contradict each other"
    NOT_COLD = "not_cold", "server answered from its prefix cache where cold was asked for"
    NOT_RUN = "not_run", "not measured: the server had failed before"
    NOT_NEEDED = "not_needed", "not measured: the intervals were narrow enough before"
    INTERRUPTED = "interrupted", "the run was interrupted"
