"""The test host of the conformance suite: a host whose handlers do what the objects of reviews ask for.

sdk/conformance/README.md has its contract.
"""

import asyncio
import hashlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from portcullis_host import (
    Denied,
    HandlerError,
    Host,
    Initialized,
    Plaintext,
    Request,
    Response,
    TLSFiles,
    allow,
    change,
    deny,
    difference,
    patch,
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The file that the program is started with; the names are its own."""

    name: str
    instance: str
    zone: str
    clusters: list[str]
    dispatchers: list[str]
    serverName: str  # noqa: N815
    tls: dict[str, str] | None
    maxOutstanding: int  # noqa: N815
    maxFrameBytes: int  # noqa: N815
    drainTimeoutMs: int  # noqa: N815
    validate: list[str]
    mutate: list[str]
    initialize: list[str]
    speculate: list[str]
    unready: list[str]


class Program:
    """What the control channel and the handlers share. Used on the event loop, but for say."""

    def __init__(self, settings: Settings) -> None:
        self.printing = threading.Lock()
        self.holds: dict[str, asyncio.Event] = {}
        self.unready = set(settings.unready)
        self.host = self.make(settings)

    def make(self, s: Settings) -> Host:
        """Makes the host, with the defaults of the SDK where a setting is absent."""
        limits: dict[str, Any] = {}
        if s.maxOutstanding:
            limits["max_outstanding"] = s.maxOutstanding
        if s.maxFrameBytes:
            limits["max_frame_bytes"] = s.maxFrameBytes
        if s.drainTimeoutMs:
            limits["drain_timeout"] = timedelta(milliseconds=s.drainTimeoutMs)
        host = Host(
            s.name,
            instance=s.instance,
            zone=s.zone,
            clusters=s.clusters,
            dispatchers=s.dispatchers,
            server_name=s.serverName,
            tls=TLSFiles(s.tls["cert"], s.tls["key"], s.tls["ca"]) if s.tls else Plaintext(),
            tracer_provider=TracerProvider(),  # Real spans, which are exported nowhere.
            **limits,
        )
        for hook in s.validate:
            host.validate(hook, ready=self.readiness(hook), speculate=hook in s.speculate)(self.handler(hook))
        for hook in s.mutate:
            host.mutate(hook, ready=self.readiness(hook), speculate=hook in s.speculate)(self.handler(hook))
        for hook in s.initialize:
            host.initialize(hook, ready=self.readiness(hook))(self.initializer(hook))
        return host

    def handler(self, hook: str) -> Callable[[Request], Awaitable[Response]]:
        """Is the handler of every hook: it does what the script says."""

        async def handle(request: Request) -> Response:
            remaining = request.remaining
            self.say(event="called", hook=hook)
            cancelled = False
            try:
                script = script_of(request)
                await self.wait(script)
                return decorate(script, request, outcome(script, request), remaining)
            except asyncio.CancelledError:
                cancelled = True
                raise
            finally:
                self.say(event="returned", hook=hook, cancelled=cancelled)

        return handle

    def initializer(self, hook: str) -> Callable[[dict[str, Any], Request], Awaitable[Initialized]]:
        """Is every initializer: it does what the script says, as far as that is about the object."""

        async def initialize(document: dict[str, Any], request: Request) -> Initialized:
            self.say(event="called", hook=hook)
            cancelled = False
            try:
                script = script_of(request)
                await self.wait(script)
                return initialized(script, document, request)
            except asyncio.CancelledError:
                cancelled = True
                raise
            finally:
                self.say(event="returned", hook=hook, cancelled=cancelled)

        return initialize

    async def wait(self, script: dict[str, Any]) -> None:
        """Is the first part of a script."""
        if "hold" in script:
            await self.held(script["hold"]).wait()
        await asyncio.sleep(script.get("waitMs", 0) / 1000)
        block = asyncio.ensure_future(asyncio.sleep(script.get("blockMs", 0) / 1000))
        while not block.done():
            try:
                await asyncio.shield(block)
            except asyncio.CancelledError:  # This handler ignores it.
                continue

    def held(self, name: str) -> asyncio.Event:
        """Is set once the name is released."""
        return self.holds.setdefault(name, asyncio.Event())

    def readiness(self, hook: str) -> Callable[[], Awaitable[None]] | None:
        """Is the readiness callback of a hook that is not ready at first."""
        if hook not in self.unready:
            return None

        async def ready() -> None:
            if hook in self.unready:
                raise HandlerError("not ready")

        return ready

    def obey(self, command: dict[str, str]) -> None:
        """Carries out a line of the input."""
        match command["do"]:
            case "release":
                self.held(command["name"]).set()
            case "ready":
                self.unready.discard(command["hook"])
            case "drain":
                self.host.stop()
            case unknown:
                print("unknown command", unknown, file=sys.stderr)

    def say(self, **event: Any) -> None:
        """Prints an event as one line."""
        with self.printing:
            print(json.dumps(event), flush=True)

    async def run(self) -> str:
        """Serves until the host is drained, and returns its error."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=listen, args=(self, loop), daemon=True).start()
        ready = asyncio.create_task(self.say_ready())
        try:
            await self.host.run(stop_on=[signal.SIGTERM])
        except Exception as error:  # noqa: BLE001 (it is what the program reports)
            return str(error) or repr(error)
        finally:
            ready.cancel()
        return ""

    async def say_ready(self) -> None:
        """Says once that every hook is in rotation."""
        await self.host.ready()
        self.say(event="ready")


def listen(program: Program, loop: asyncio.AbstractEventLoop) -> None:
    """Reads the input. Its end ends the process."""
    for line in sys.stdin:
        loop.call_soon_threadsafe(program.obey, json.loads(line))
    os._exit(1)


def script_of(request: Request) -> dict[str, Any]:
    """Returns what an object asks of its handler."""
    document = request.object if request.object is not None else request.old_object
    return (document or {}).get("script") or {}


class Panic(BaseException):
    """What is no Exception is to Python what a panic is to other languages."""


def outcome(script: dict[str, Any], request: Request) -> Response:
    """Answers as the script says."""
    match script:
        case {"deny": {"thrown": True} as denial}:
            raise Denied(denial["message"], **members(denial), warnings=script.get("warnings", ()), audit=script.get("audit"))
        case {"deny": denial}:
            return deny(denial["message"], **members(denial))
        case {"patch": operations}:
            return patch(operations)
        case {"labels": labels}:
            if request.object is not None:
                request.object.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
            return change(request)
        case {"become": document}:
            return difference(request, document)
        case {"error": text}:
            raise HandlerError(text)
        case {"fail": text}:
            raise RuntimeError(text)
        case {"panic": text}:
            raise Panic(text)
        case _:
            return allow()


def members(denial: dict[str, Any]) -> dict[str, Any]:
    """Returns what goes with a denial, whatever its types."""
    return {key: denial[key] for key in ("code", "reason", "causes") if key in denial}


def initialized(script: dict[str, Any], document: dict[str, Any], request: Request) -> Initialized:
    """Completes an object as the script says."""
    if "labels" in script and "deny" not in script:
        document.setdefault("metadata", {}).setdefault("labels", {}).update(script["labels"])
        return document
    response = outcome({key: script[key] for key in script if key != "patch"}, request)
    return document if response.allowed else response


def decorate(script: dict[str, Any], request: Request, response: Response, remaining: timedelta) -> Response:
    """Adds the warnings, the audit annotations and the echo of a script to a verdict."""
    audit = script.get("audit", {})
    if script.get("echo"):
        audit = {
            **audit,
            "uid": request.uid,
            "cluster": request.cluster,
            "namespace": request.namespace,
            "name": request.name,
            "operation": request.operation,
            "username": request.username,
            "dry-run": str(request.dry_run).lower(),
            "round": str(request.round),
            "mode": f"MODE_{request.mode.name}",
            "configuration": request.configuration,
            "object-sha256": digest(request.raw_object),
            "old-object-sha256": digest(request.raw_old_object),
            "remaining-ms": str(remaining // timedelta(milliseconds=1)),
            "traceparent": parent(),
        }
    return replace(response, warnings=script.get("warnings", ()), audit=audit)


def digest(raw: bytes | None) -> str:
    """Is the SHA-256 of an object; empty without one."""
    return "" if raw is None else hashlib.sha256(raw).hexdigest()


def parent() -> str:
    """Names the parent of the handler's span: its trace and the span, as in a traceparent."""
    span = cast("ReadableSpan", trace.get_current_span())
    if span.parent is None:
        return ""
    return f"{trace.format_trace_id(span.parent.trace_id)}-{trace.format_span_id(span.parent.span_id)}"


def main() -> None:
    """Runs the program."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    program = Program(Settings(**json.loads(Path(sys.argv[1]).read_text())))
    error = asyncio.run(program.run())
    program.say(event="ended", error=error)
    os._exit(1 if error else 0)  # Handlers that were cut off may still run.


if __name__ == "__main__":
    main()
