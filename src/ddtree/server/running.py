"""The listening server, from its first request to its end."""

import logging
import socket
from typing import Final

import uvicorn

from ddtree.server.app import build_app
from ddtree.server.service import Service

log: Final = logging.getLogger("ddtree.server")

READY: Final = "The server is fired up and ready to roll!"
DRAIN_TIMEOUT_S: Final = 1
"""For answers that were aborted to reach their clients."""
PASS_TIMEOUT_S: Final = 0.1
"""For the worker to end, unless a long forward pass holds it."""


class Server(uvicorn.Server):
    """Tells when it is ready, and aborts requests at the start of its shutdown."""

    def __init__(self, service: Service) -> None:
        config = uvicorn.Config(
            build_app(service),
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
        )
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            log.info("listening on http://%s:%d", host, port)
        log.info(READY)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Abort all requests, then let their answers go out."""
        self._service.worker.close(timeout_s=0)
        await super().shutdown(sockets)


def serve(service: Service, listener: socket.socket) -> int:
    """Serve on `listener`, bound but not listening, until a signal; return the exit code."""
    service.worker.start()
    try:
        Server(service).run(sockets=[listener])
    except OSError as error:
        log.error("could not start: %s; did another server take the port meanwhile?", error)
        return 1
    except SystemExit:
        # uvicorn has shut down and raised the signal again, for the handler it found at first.
        log.info("stopped by a signal")
    if not service.worker.close(PASS_TIMEOUT_S):
        log.info("a forward pass is left behind")
    return 0
