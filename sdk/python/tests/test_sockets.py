"""Hosts and dispatchers over gRPC on loopback, with TLS where a user has it."""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import ssl
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from simple import allowing

from portcullis_host import TLS, TLSPEM, Host, HostError, Plaintext, Request, Response, TLSFiles, _manager, allow, deny
from portcullis_host._certificate import fault
from portcullis_host._limits import MILLISECOND
from portcullis_host._loops import LoopThread
from portcullis_host._tls import explain
from portcullis_host.contract import admission, host
from portcullis_host.testing import Session, create, listen

POD = create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
TESTHOST = Path(__file__).parents[1] / "testhost.py"


YEAR = {year: datetime(year, 1, 1, tzinfo=UTC) for year in range(2020, 2030)}


class Files:
    """The files of a host, and the authority behind them."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.tls = TLSFiles(directory / "tls.crt", directory / "tls.key", directory / "ca.crt")
        self.authority.cert_pem.write_to_path(self.tls.ca)
        self.issue("one")

    def issue(self, identity: str, authority: trustme.CA | None = None) -> None:
        issued = (authority or self.authority).issue_cert(identity)
        issued.cert_chain_pems[0].write_to_path(self.tls.cert)
        issued.private_key_pem.write_to_path(self.tls.key)

    def stranger(self) -> TLSPEM:
        issued = trustme.CA().issue_cert(common_name="host")
        return TLSPEM(issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes(), self.authority.cert_pem.bytes())

    def server(self, name: str = "mesh.example") -> grpc.ServerCredentials:
        issued = self.authority.issue_cert(name)
        pair = (issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())
        return grpc.ssl_server_credentials([pair], self.authority.cert_pem.bytes(), require_client_auth=True)


class Log(logging.Handler):
    """What the SDK logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.more = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.more.set()

    async def hears(self, pattern: str) -> None:
        async with asyncio.timeout(30):
            while not re.search(pattern, "\n".join(self.lines), re.DOTALL):
                self.more.clear()
                await asyncio.to_thread(self.more.wait, 1)


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger("portcullis_host")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def new_host(*dispatchers: str, tls: TLS | None = None, server_name: str = "", max_outstanding: int = 64) -> Host:
    h = Host("test", dispatchers=dispatchers, tls=tls or Plaintext(), server_name=server_name, max_outstanding=max_outstanding)

    @h.validate("allow")
    async def judge(_: Request) -> Response:
        return allow()

    return h


@asynccontextmanager
async def running(h: Host) -> AsyncGenerator[None]:
    task = asyncio.create_task(h.run())
    try:
        yield
    finally:
        h.stop()
        await asyncio.wait_for(task, 20)


async def test_a_host_serves_over_tls_and_drains(files: Files) -> None:
    async with listen(credentials=files.server()) as dispatcher:
        h = new_host(dispatcher.address, tls=files.tls, server_name="mesh.example")
        async with running(h):
            session = await dispatcher.accept()
            assert (await session.review("allow", POD)).allowed
            await asyncio.wait_for(h.ready(), 10)
        assert session.drain is not None
        assert session.closed.is_set()


async def test_files_are_read_anew_at_each_dial(files: Files, log: Log) -> None:
    async with listen(credentials=files.server()) as dispatcher:
        h = new_host(dispatcher.address, tls=files.tls, server_name="mesh.example")
        files.issue("stranger", trustme.CA())
        async with running(h):
            await log.hears("no session")
            files.issue("two")
            assert (await (await dispatcher.accept()).review("allow", POD)).allowed


async def test_a_dispatcher_with_another_name_is_refused(files: Files, log: Log) -> None:
    async with listen(credentials=files.server("evil.example")) as dispatcher:
        async with running(new_host(dispatcher.address, tls=files.tls, server_name="mesh.example")):
            await log.hears("no session.*mesh.example")


async def test_a_dispatcher_without_tls_1_3_does_not_see_the_host(files: Files, log: Log) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    files.issue("mesh.example")
    context.load_cert_chain(files.tls.cert, files.tls.key)
    met: list[object] = []

    def meet(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        met.append(reader)

    async with await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with running(new_host(address, tls=files.tls, server_name="mesh.example")):
            await log.hears("no session.*(ConnectionReset|PROTOCOL_VERSION)")
    assert met == []


async def test_a_fault_of_the_files_ends_the_start(files: Files) -> None:
    Path(files.tls.key).write_text("nonsense")
    with pytest.raises(OSError, match="PEM"):
        await new_host("127.0.0.1:1", tls=files.tls).run()
    Path(files.tls.key).unlink()
    with pytest.raises(FileNotFoundError):
        await new_host("127.0.0.1:1", tls=files.tls).run()


async def test_a_function_supplies_the_certificate_of_each_dial(files: Files, log: Log) -> None:
    async with listen(credentials=files.server()) as dispatcher:
        supplied = [files.stranger()]
        h = new_host(dispatcher.address, tls=lambda: supplied[-1], server_name="mesh.example")
        async with running(h):
            await log.hears("no session")
            supplied.append(files.tls())
            assert (await (await dispatcher.accept()).review("allow", POD)).allowed


async def test_an_error_of_a_dial_tells_who_refused_whom(files: Files, log: Log) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(files.tls.ca)
    files.issue("mesh.example")
    server.load_cert_chain(files.tls.cert, files.tls.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with suppress(OSError), listener.accept()[0] as connection:
                server.wrap_socket(connection, server_side=True).recv(1)

        refusing = asyncio.create_task(asyncio.to_thread(refuse))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        async with running(new_host(address, tls=files.stranger(), server_name="mesh.example")):
            await log.hears("no session.*error=the dispatcher refused this host: .*ALERT")
        await refusing


FORMS = serialization.PrivateFormat


@pytest.mark.parametrize("form", [FORMS.TraditionalOpenSSL, FORMS.PKCS8], ids=["PKCS1", "PKCS8"])
@pytest.mark.parametrize("key_type", [trustme.KeyType.RSA, trustme.KeyType.ECDSA])
async def test_keys_may_have_any_form(files: Files, form: serialization.PrivateFormat, key_type: trustme.KeyType) -> None:
    issued = files.authority.issue_cert(common_name="host", key_type=key_type)
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encoded = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    tls = TLSPEM(issued.cert_chain_pems[0].bytes(), encoded, files.authority.cert_pem.bytes())
    async with listen(credentials=files.server()) as dispatcher, running(new_host(dispatcher.address, tls=tls, server_name="mesh.example")):
        assert (await (await dispatcher.accept()).review("allow", POD)).allowed


async def test_a_key_of_another_certificate_ends_the_start(files: Files) -> None:
    tls = TLSPEM(files.tls().cert, files.stranger().key, files.tls().ca)
    with pytest.raises(OSError, match="the key is not that of the certificate of this host"):
        await new_host("127.0.0.1:1", tls=tls).run()


async def test_what_is_not_in_pem_ends_the_start(files: Files) -> None:
    for tls in (TLSPEM(b"x", files.tls().key, files.tls().ca), TLSPEM(files.tls().cert, b"x", files.tls().ca)):
        with pytest.raises(OSError, match="the certificate or the key of this host is not in PEM"):
            await new_host("127.0.0.1:1", tls=tls).run()


async def test_an_error_of_a_dial_tells_the_fault_of_the_own_certificate(files: Files, log: Log) -> None:
    expired = files.authority.issue_cert(
        common_name="host", not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=datetime(2021, 1, 1, tzinfo=UTC)
    )
    tls = TLSPEM(expired.cert_chain_pems[0].bytes(), expired.private_key_pem.bytes(), files.authority.cert_pem.bytes())
    async with listen(credentials=files.server()) as dispatcher:
        async with running(new_host(dispatcher.address, tls=tls, server_name="mesh.example")):
            await log.hears("no session.*error=the certificate of this host ended at 2021-01-01T00:00:00Z: ")


@pytest.mark.parametrize(
    ("names", "usages", "now", "want"),
    [
        (["spiffe://mesh/host"], ["clientAuth"], 2025, ""),
        ([], [], 2025, "no identity"),
        (["host"], None, 2025, ""),
        (["spiffe://mesh/host"], ["serverAuth"], 2025, "for servers"),
        (["spiffe://mesh/host"], ["serverAuth", "anyExtendedKeyUsage"], 2025, ""),
        (["host"], [], 2027, "ended at 2026-01-01T00:00:00Z"),
        (["host"], [], 2023, "not valid before 2024-01-01T00:00:00Z"),
    ],
)
def test_faults_of_the_own_certificate(names: list[str], usages: list[str] | None, now: int, want: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names if ":" not in name])
    builder = x509.CertificateBuilder(
        subject, subject, key.public_key(), 1, datetime(2024, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    )
    if uris := [x509.UniformResourceIdentifier(name) for name in names if ":" in name]:
        builder = builder.add_extension(x509.SubjectAlternativeName(uris), critical=True)
    if usages:
        ids = {"clientAuth": "1.3.6.1.5.5.7.3.2", "serverAuth": "1.3.6.1.5.5.7.3.1", "anyExtendedKeyUsage": "2.5.29.37.0"}
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ObjectIdentifier(ids[usage]) for usage in usages]), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    found = fault(b"# a comment\n" + pem, YEAR[now])
    assert want in found if want else not found
    assert explain("x", TLSPEM(pem[:100], b"", b""), YEAR[now]) == "x"


async def test_a_host_needs_dispatchers_and_tls() -> None:
    with pytest.raises(HostError, match="dispatchers"):
        await new_host().run()
    h = Host("test", dispatchers=["127.0.0.1:1"])
    h.validate("v")(allowing)
    with pytest.raises(HostError, match="tls"):
        await h.run()


async def test_a_session_to_each_dispatcher_shares_the_capacity() -> None:
    async with listen(welcome=host.Welcome(dispatcher_id="d1")) as one, listen(welcome=host.Welcome(dispatcher_id="d2")) as two:
        async with running(new_host(one.address, two.address, max_outstanding=7)):
            first, second = await one.accept(), await two.accept()
            await first.until(lambda session: session.credit == 3)
            await second.until(lambda session: session.credit == 3)
            await two.stop()
            await first.until(lambda session: session.credit == 7)


async def test_a_host_dials_again_when_a_dispatcher_is_back() -> None:
    async with listen() as dispatcher:
        address = dispatcher.address
        h = new_host(address)
        async with running(h):
            await (await dispatcher.accept()).ping()
            await dispatcher.stop()
            async with listen(address=address) as again:
                assert (await (await again.accept()).review("allow", POD)).allowed


async def test_a_useful_session_makes_the_next_dial_early(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def backoff(before: int, _: float) -> int:
        attempts.append(before)
        return 0

    monkeypatch.setattr(_manager, "backoff", backoff)
    async with listen() as dispatcher, running(new_host(dispatcher.address)):
        for useful in (False, False, True):
            session = await dispatcher.accept()
            if useful:
                await session.ping()
            await session.send_encoded(b"nonsense")
        await dispatcher.accept()
    assert attempts[:3] == [0, 1, 0]


async def test_peers_that_a_dispatcher_names_are_dialled() -> None:
    async with listen(welcome=host.Welcome(dispatcher_id="d2")) as two:
        peers = [host.Peer(dispatcher_id="d2", addresses=[two.address])]
        async with listen(welcome=host.Welcome(dispatcher_id="d1", peers=peers)) as one:
            h = new_host(one.address)
            async with running(h):
                await one.accept()
                first = await two.accept()
                assert (await first.review("allow", POD)).allowed
                assert {session.dispatcher for session in h.status()} == {"d1", "d2"}


async def test_the_younger_of_two_sessions_to_a_dispatcher_stays() -> None:
    async with listen(welcome=host.Welcome(dispatcher_id="d")) as one, listen(welcome=host.Welcome(dispatcher_id="d")) as two:
        h = new_host(one.address, two.address)
        async with running(h):
            sessions = [await one.accept(), await two.accept()]
            older, younger = await asyncio.wait_for(_drained(sessions), 10)
            await asyncio.wait_for(older.closed.wait(), 10)
            assert (await younger.review("allow", POD)).allowed


async def _drained(sessions: list[Session]) -> list[Session]:
    waits = {asyncio.create_task(session.until(lambda session: session.drain)): session for session in sessions}
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    older = waits[done.pop()]
    return [older, next(session for session in sessions if session is not older)]


async def test_a_dispatcher_that_leaves_names_others() -> None:
    async with listen(welcome=host.Welcome(dispatcher_id="d1")) as one, listen(welcome=host.Welcome(dispatcher_id="d2")) as two:
        async with running(new_host(one.address)):
            first = await one.accept()
            peers = [host.Peer(dispatcher_id="d2", addresses=[two.address])]
            await first.send(drain=host.DispatcherDrain(grace_ms=5000, peers=peers))
            second = await two.accept()
            assert second.credit == 64, "the session that is left has no share"
            assert (await first.review("allow", POD)).allowed, "calls may still finish there"


async def test_silence_ends_a_session() -> None:
    async with listen(welcome=host.Welcome(silence_ms=50)) as dispatcher, running(new_host(dispatcher.address)):
        first = await dispatcher.accept()
        await asyncio.wait_for(first.closed.wait(), 10)
        assert first.drain is None
        await dispatcher.accept()


async def test_a_name_is_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_manager, "RESOLVE_INTERVAL", 10 * MILLISECOND)
    async with listen() as dispatcher:
        port = dispatcher.address.rpartition(":")[2]
        answers: list[list[str]] = [[], ["127.0.0.1"]]

        async def resolver(hostname: str) -> list[str]:
            assert hostname == "mesh.example"
            return answers.pop(0) if answers else ["127.0.0.1"]

        h = Host("test", dispatchers=[f"mesh.example:{port}"], tls=Plaintext(), resolver=resolver)
        h.validate("allow")(allowing)
        async with running(h):
            assert (await (await dispatcher.accept()).review("allow", POD)).allowed


async def test_a_host_that_is_cancelled_breaks_its_sessions() -> None:
    async with listen() as dispatcher:
        task = asyncio.create_task(new_host(dispatcher.address).run())
        session = await dispatcher.accept()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(session.closed.wait(), 10)


async def test_a_stop_while_dialling_ends_the_host() -> None:
    h = new_host("127.0.0.1:1")
    async with asyncio.timeout(30):
        async with running(h):
            pass


async def test_a_handler_that_blocks_the_event_loop_delays_no_sign_of_life(log: Log) -> None:
    async with listen() as dispatcher:
        h = Host("test", dispatchers=[dispatcher.address], tls=Plaintext())
        began, release = threading.Event(), threading.Event()

        @h.validate("block")
        async def block(_: Request) -> Response:
            began.set()
            release.wait()
            return deny(threading.current_thread().name)

        author = LoopThread("author")
        serving = asyncio.create_task(author.run(h.run()))
        session = await dispatcher.accept()
        asked = asyncio.create_task(session.review("block", POD))
        await asyncio.to_thread(began.wait)
        await session.ping()
        await log.hears("a handler blocks the event loop.*in block")
        release.set()
        assert (await asked).message == "author"
        h.stop()
        await serving
        author.close()


async def test_sigterm_drains(files: Files, tmp_path: Path) -> None:
    async with listen(credentials=files.server()) as dispatcher:
        settings = {
            "name": "conformance",
            "instance": "",
            "zone": "",
            "clusters": [],
            "dispatchers": [dispatcher.address],
            "serverName": "mesh.example",
            "tls": {"cert": str(files.tls.cert), "key": str(files.tls.key), "ca": str(files.tls.ca)},
            "maxOutstanding": 0,
            "maxFrameBytes": 0,
            "drainTimeoutMs": 0,
            "validate": ["a"],
            "mutate": ["b"],
            "initialize": ["c"],
            "speculate": ["b"],
            "unready": ["a"],
        }
        config = tmp_path / "config.json"
        config.write_text(json.dumps(settings))
        program = await asyncio.create_subprocess_exec(
            sys.executable, str(TESTHOST), str(config), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            session = await dispatcher.accept()
            assert json.loads(await program.stdout.readline()) == {"event": "ready"}
            assert (await session.probe("a")).message == "not ready"
            program.stdin.write(b'{"do": "ready", "hook": "a"}\n')
            while not (await session.probe("a")).ready:
                pass
            asked = asyncio.create_task(session.ask("b", create({"script": {"hold": "x", "labels": {"k": "v"}, "echo": True}})))
            assert json.loads(await program.stdout.readline()) == {"event": "called", "hook": "b"}
            os.kill(program.pid, signal.SIGTERM)
            await session.until(lambda session: session.drain)
            program.stdin.write(b'{"do": "release", "name": "x"}\n')
            response = (await asked).response
            assert json.loads(response.patch) == [{"op": "add", "path": "/metadata", "value": {"labels": {"k": "v"}}}]
            assert response.audit_annotations["mode"] == "MODE_UNSPECIFIED"
            lines = (await program.stdout.read()).decode().splitlines()
            assert [json.loads(line)["event"] for line in lines] == ["returned", "ended"]
            assert await program.wait() == 0
        finally:
            with suppress(ProcessLookupError):
                program.kill()
            await program.wait()


async def test_a_frame_larger_than_the_host_takes_ends_the_session() -> None:
    async with listen() as dispatcher:
        h = Host("test", dispatchers=[dispatcher.address], tls=Plaintext(), max_frame_bytes=200_000)
        h.validate("allow")(allowing)
        async with running(h):
            session = await dispatcher.accept()
            review = host.Review(call_id=1, request=admission.AdmissionRequest(object=admission.Object(raw=b"x" * 300_000)))
            with suppress(RuntimeError):  # The host may leave before it has the whole frame.
                await session.send(review=review)
            await asyncio.wait_for(session.closed.wait(), 10)
            assert (await (await dispatcher.accept()).review("allow", POD)).allowed
