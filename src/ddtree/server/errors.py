"""Errors that a client sees, and their two body shapes.

ApiError             a request that gets `status` and one sentence
├── BadRequest       400, the request itself is wrong
└── EngineFailure    500, the engine raised; the server goes on
"""

from http import HTTPStatus
from typing import Final

JsonObject = dict[str, object]

CHAT_PREFIX: Final = "/v1/"


class ApiError(Exception):
    """A request ends with `status` and `message`; `kind` is the body's `type`."""

    def __init__(self, status: HTTPStatus, message: str, kind: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind if kind is not None else status.phrase


class BadRequest(ApiError):
    """The request cannot be served as it is; the message says what to change."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, message, "BadRequestError")


class EngineFailure(ApiError):
    """The engine raised `cause` while it served this request."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            HTTPStatus.INTERNAL_SERVER_ERROR, f"the engine failed: {cause}", "InternalServerError"
        )


def error_body(path: str, error: ApiError) -> JsonObject:
    """Body of `error` in the shape that SGLang uses under `path`."""
    if path.startswith(CHAT_PREFIX):
        return openai_error(error)
    return {"error": {"message": error.message}}


def openai_error(error: ApiError) -> JsonObject:
    """Flat error object of the `/v1` routes."""
    return {
        "object": "error",
        "message": error.message,
        "type": error.kind,
        "param": None,
        "code": int(error.status),
    }
