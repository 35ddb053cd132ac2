"""A fake dispatcher: unit tests of hosts ask their hooks without a mesh, certificates or a cluster.

In an asynchronous test::

    async with FakeDispatcher(host) as dispatcher:
        verdict = await dispatcher.review("imagepolicy.example.com", create({"kind": "Pod", ...}))
        assert not verdict.allowed

In any other test, by the fixture ``portcullis_dispatcher`` of pytest, which this package brings::

    def test_latest_is_denied(portcullis_dispatcher):
        verdict = portcullis_dispatcher(host).review("imagepolicy.example.com", create({"kind": "Pod", ...}))
        assert not verdict.allowed

``dispatcher.play(case)`` puts the :func:`cases` of a table.

Frames are encoded and decoded on the way as on a real stream. :func:`listen` serves hosts in any language over gRPC on loopback. A handler
is a function: the test of a handler alone calls it with a :func:`request`.
"""

from portcullis_host.testing._blocking import BlockingDispatcher
from portcullis_host.testing._cases import Case, cases
from portcullis_host.testing._fake import FakeDispatcher
from portcullis_host.testing._listener import Listener, listen
from portcullis_host.testing._memory import Pipe
from portcullis_host.testing._requests import create, delete, request, update
from portcullis_host.testing._session import Peer, Session
from portcullis_host.testing._verdict import Verdict

__all__ = [
    "BlockingDispatcher",
    "Case",
    "FakeDispatcher",
    "Listener",
    "Peer",
    "Pipe",
    "Session",
    "Verdict",
    "cases",
    "create",
    "delete",
    "listen",
    "request",
    "update",
]
