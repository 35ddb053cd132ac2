"""Errors of handlers and of hosts, and what of them leaves the process."""

from typing import Final, TypeVar, cast

HANDLER_FAILED: Final = "handler failed"

_ErrorT = TypeVar("_ErrorT", bound=BaseException)


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
    authored = find(error, HandlerError)
    return authored.message if authored is not None and authored.message else otherwise


def find(error: BaseException, kind: type[_ErrorT]) -> _ErrorT | None:
    """Looks for an exception of a kind through explicit causes (``raise ... from``) and the groups that asyncio.TaskGroup raises."""
    seen: set[int] = set()
    ahead: list[BaseException | None] = [error]
    while ahead:
        one = ahead.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, kind):
            return one
        seen.add(id(one))
        ahead.append(one.__cause__)
        if isinstance(one, BaseExceptionGroup):
            ahead.extend(reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions))
    return None
