"""A Portcullis host without an SDK: the whole protocol on one page.

The host dials a dispatcher, says Hello, and then answers what it is asked. README.md says how to run it, and
proto/portcullis/host/v1/host.proto is the contract.
"""

import argparse
import json
import queue
import random
import signal
import sys
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor

import grpc
from portcullis.admission.v1 import admission_pb2 as admission
from portcullis.host.v1 import host_pb2 as host
from portcullis.host.v1 import host_pb2_grpc

MAX_OUTSTANDING = 16  # Calls that we take at a time; handlers run in as many threads.
MAX_FRAME_BYTES = 16 << 20  # gRPC takes 4 MiB by itself; an object and its predecessor can be larger.
INSTANCE = f"python-{uuid.uuid4()}"  # New at each start.


def pinned_images(request, cancelled):
    """A validating hook: images must be pinned."""
    for container in json.loads(request.object.raw).get("spec", {}).get("containers", []):
        if container.get("image", "").endswith(":latest"):
            status = admission.Status(code=403, reason="Forbidden", message=f"image {container['image']} is not pinned")
            return admission.AdmissionResponse(allowed=False, status=status)
    return admission.AdmissionResponse(allowed=True)


def team_label(request, cancelled):
    """A mutating hook: the patch is made against exactly the bytes that came, and comes with its type."""
    patch = {"op": "add", "path": "/metadata/labels/team", "value": f"team-of-{request.namespace}"}
    if not json.loads(request.object.raw)["metadata"].get("labels"):
        patch = {"op": "add", "path": "/metadata/labels", "value": {"team": patch["value"]}}
    return admission.AdmissionResponse(allowed=True, patch=json.dumps([patch]).encode(), patch_type="JSONPatch")


# What we offer, by name and stage. An offer is a request: the mesh's configuration grants it or not.
HOOKS = {
    ("pinned-images.example.com", admission.STAGE_VALIDATE): pinned_images,
    ("team-label.example.com", admission.STAGE_MUTATE): team_label,
}


class Session:
    """One stream: gRPC writes what is in the queue, run reads, and handlers run in threads of their own."""

    def __init__(self, handlers):
        self.handlers = handlers
        self.out = queue.SimpleQueue()  # Frames for the dispatcher; None ends our side of the stream.
        self.lock = threading.Lock()  # Guards what follows.
        self.running = {}  # (call, index) -> Event that is set when the call is cancelled or its time is over.
        self.last_started, self.draining = 0, False
        self.send(hello=host.Hello(  # Always the first frame.
            protocol_min=1, protocol_max=1, host="python-example", instance=INSTANCE,
            hooks=[host.HookOffer(name=name, stage=stage) for name, stage in HOOKS],
            max_outstanding=MAX_OUTSTANDING, max_frame_bytes=MAX_FRAME_BYTES))

    def send(self, **frame):
        self.said = time.monotonic()
        self.out.put(host.ConnectRequest(**frame))

    def run(self, stub):
        """Serves until the stream ends."""
        stream = stub.Connect(iter(self.out.get, None))
        silence, watchdog = 5.0, None
        try:
            for frame in stream:
                silence = frame.welcome.silence_ms / 1000 or silence
                self.take(frame)
                if time.monotonic() - self.said > 0.5:  # A Ping may be behind what comes: we live, and say so.
                    self.send(pong=host.Pong())
                # Any frame is a sign of life. After so long without one the dispatcher is lost, whatever TCP thinks.
                watchdog = watchdog and watchdog.cancel()
                watchdog = later(silence, stream.cancel)
        finally:
            watchdog = watchdog and watchdog.cancel()
            self.out.put(None)
            with self.lock:
                for cancelled in self.running.values():
                    cancelled.set()

    def take(self, frame):
        match frame.WhichOneof("frame"):
            case "ping":  # Answered here, not by a handler: a busy host is alive.
                self.send(pong=host.Pong(seq=frame.ping.seq))
            case "probe":
                ready = any(name == frame.probe.hook for name, _ in HOOKS)
                self.send(probe_result=host.ProbeResult(seq=frame.probe.seq, ready=ready))
            case "review":
                for index, hook in enumerate(frame.review.hooks):
                    self.start(frame.review, index, hook)
            case "cancel":
                with self.lock:
                    for (call, index), cancelled in self.running.items():
                        if call == frame.cancel.call_id and index in (frame.cancel.hook_indexes or [index]):
                            cancelled.set()
            case "welcome" | "hook_state":  # How our offers stand, at first and since: what nothing grants is never asked.
                for state in [*frame.welcome.hooks, frame.hook_state]:
                    if state.name:
                        print(f"{state.name}: {host.State.Name(state.state)} {state.message}", file=sys.stderr)
            # "drain" says that the dispatcher will end the stream. A frame of a type that we do not know (None) is ignored.

    def start(self, review, index, hook):
        """Starts a handler, or refuses: what was never started may go to another replica, whatever it does."""
        key, cancelled, handler = (review.call_id, index), threading.Event(), HOOKS.get((hook.name, hook.stage))
        with self.lock:
            reason = ("draining" if self.draining else "unknown hook" if not handler else
                      "no time left" if not hook.remaining_ms else
                      "overloaded" if len(self.running) >= MAX_OUTSTANDING else None)
            if reason:
                return self.send(verdict=host.Verdict(call_id=key[0], hook_index=index, refused=host.Refused(reason=reason)))
            self.running[key] = cancelled
            self.last_started = max(self.last_started, review.call_id)
        deadline = later(hook.remaining_ms / 1000, cancelled.set)
        self.handlers.submit(self.judge, key, handler, review.request, cancelled, deadline)

    def judge(self, key, handler, request, cancelled, deadline):
        """Runs a handler. Each call gets one verdict, also when it was cancelled: that alone frees its slot."""
        verdict = host.Verdict(call_id=key[0], hook_index=key[1])
        try:
            verdict.response.CopyFrom(handler(request, cancelled))
        except Exception:  # The text of an error stays here: clients of a cluster have no business with it.
            if cancelled.is_set():
                verdict.cancelled.SetInParent()
            else:
                traceback.print_exc()
                verdict.error.message = "handler failed"
        deadline.cancel()
        with self.lock:
            del self.running[key]
            self.send(verdict=verdict)
            if self.draining and not self.running:
                self.out.put(None)

    def drain(self):
        """Says good-bye: calls in flight finish, we end our side of the stream, and the dispatcher ends the rest."""
        with self.lock:
            self.draining = True
            self.send(drain=host.HostDrain(last_started_call_id=self.last_started))
            if not self.running:
                self.out.put(None)


def later(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


def serve(address, credentials, leaving, sessions):
    """Holds a session to one dispatcher, again and again, until leaving is set."""
    options = [("grpc.max_receive_message_length", MAX_FRAME_BYTES)]
    delay = 0.1
    with ThreadPoolExecutor(MAX_OUTSTANDING) as handlers:
        while not leaving.is_set():
            sessions[address] = session = Session(handlers)
            if leaving.is_set():
                return
            open_channel = grpc.secure_channel if credentials else grpc.insecure_channel
            with open_channel(address, *filter(None, [credentials]), options) as channel:
                try:
                    session.run(host_pb2_grpc.HostServiceStub(channel))
                except grpc.RpcError as error:
                    print(f"{address}: {error.code().name}: {error.details()}", file=sys.stderr)
            # Longer each time, and by chance, so that the hosts of a dispatcher do not come back all at once.
            delay = 0.1 if session.last_started else min(5, 2 * delay)
            leaving.wait(random.uniform(0.1, 0.1 + delay))


def main():
    parser = argparse.ArgumentParser(description="A Portcullis host without an SDK.")
    parser.add_argument("dispatchers", nargs="+", help="host:port of each dispatcher")
    parser.add_argument("--tls", nargs=3, metavar=("CA", "CERT", "KEY"), help="files in PEM; without them there is no TLS")
    flags = parser.parse_args()
    files = [open(path, "rb").read() for path in flags.tls or []]
    credentials = grpc.ssl_channel_credentials(files[0], files[2], files[1]) if files else None
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})  # For sigwait, in all threads.
    leaving, sessions = threading.Event(), {}
    threads = [threading.Thread(target=serve, args=(a, credentials, leaving, sessions)) for a in flags.dispatchers]
    for thread in threads:
        thread.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    leaving.set()
    for session in list(sessions.values()):
        session.drain()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
