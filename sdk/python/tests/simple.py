"""Handlers of few words."""

from portcullis_host import Request, Response, allow, deny


def allowing(_: Request) -> Response:
    return allow()


def denying(_: Request) -> Response:
    return deny("no")


def failing(_: Request) -> Response:
    raise ZeroDivisionError


def exiting(_: Request) -> Response:
    raise SystemExit


def naming(request: Request) -> Response:
    return deny(request.name)


def measuring(request: Request) -> Response:
    return deny(str(len(request.raw_object or b"")))
