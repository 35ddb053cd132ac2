"""Errors of handlers and of hosts, and what of them leaves the process."""

from typing import Final, cast

HANDLER_FAILED: Final = "handler failed"


class HandlerError(Exception):
    """A failure with a text for the operator of the mesh.

    A handler or a readiness callback raises one, or another exception ``from`` one, to explain in public why there is no verdict; the
    text of any other exception stays in the process. It is not a denial: the hook's failurePolicy decides.

    Args:
        message: The text that crosses the wire, into logs, traces and explanations of the mesh, but not to the client of the cluster.
            It must hold no secrets. At most 1 KiB of it is sent.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message: Final = message


class HostError(Exception):
    """A host cannot start as it is configured, or calls were cut off when it stopped."""


class SessionError(Exception):
    """Why a session ended, for the log: the host dials again."""


class DrainedError(SessionError):
    """A session was cut off by the end of the drain timeout."""


class BrokenContractError(SessionError):
    """The dispatcher violated the contract: the two sides no longer agree on the calls in flight."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the dispatcher broke the contract: {how}")


def public_text(error: BaseException, otherwise: str) -> str:
    """Returns the message of the HandlerError behind an exception, else a text without internals."""
    authored = _authored(error)
    return authored.message if authored is not None and authored.message else otherwise


def _authored(error: BaseException | None) -> HandlerError | None:
    """Looks through explicit causes (``raise ... from``) and the groups that asyncio.TaskGroup raises."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, HandlerError):
            return error
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return next((found for one in group.exceptions if (found := _authored(one))), None)
        error = error.__cause__
    return None
