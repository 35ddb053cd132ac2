"""How sessions are secured."""

import os
import ssl
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import grpc

from portcullis_host._certificate import fault


@dataclass(frozen=True, slots=True)
class TLSPEM:
    """Secures sessions by texts in PEM. A function that returns one is asked at each dial."""

    cert: bytes
    """The certificate of the host, which is its identity to the mesh, with those between it and its authority."""
    key: bytes = field(repr=False)
    """The key of the certificate, as PKCS #8 or PKCS #1."""
    ca: bytes
    """The authorities that dispatchers are verified by."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """Secures sessions by files in PEM.

    They are read anew at each dial, so that certificates and authorities are replaced without a restart; sessions that stand are not
    disturbed.
    """

    cert: str | PathLike[str]
    """The certificate of the host, which is its identity to the mesh."""
    key: str | PathLike[str]
    """The key of the certificate, as PKCS #8 or PKCS #1."""
    ca: str | PathLike[str]
    """The authorities that dispatchers are verified by."""

    def __call__(self) -> TLSPEM:
        """Reads the files.

        Raises:
            OSError: A file cannot be read.
        """
        cert, key, ca = (Path(file).read_bytes() for file in (self.cert, self.key, self.ca))
        return TLSPEM(cert, key, ca)


@dataclass(frozen=True, slots=True)
class Plaintext:
    """Is no security at all: for tests on loopback."""


TLS: TypeAlias = TLSFiles | TLSPEM | Callable[[], TLSPEM] | Plaintext


def read(tls: TLS) -> TLSPEM | None:
    """Returns what secures the next dial; None without TLS.

    Raises:
        OSError: A file cannot be read.
    """
    if isinstance(tls, Plaintext):
        return None
    return tls if isinstance(tls, TLSPEM) else tls()


def credentials(pem: TLSPEM) -> grpc.ChannelCredentials:
    """Returns the credentials for gRPC."""
    return grpc.ssl_channel_credentials(root_certificates=pem.ca, private_key=pem.key, certificate_chain=pem.cert)


def context(pem: TLSPEM) -> ssl.SSLContext:
    """Returns the settings for Python's own TLS, which says what is wrong with them.

    Raises:
        OSError: A text does not hold what it should: ssl.SSLError is an OSError.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # As gRPC: an authority need not be a root.
    with _file(pem.cert + b"\n" + pem.key) as pair:
        try:
            made.load_cert_chain(pair)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise OSError("the key is not that of the certificate of this host") from error
            raise OSError("the certificate or the key of this host is not in PEM") from error
    made.load_verify_locations(cadata=pem.ca.decode("ascii", "replace"))
    return made


def explain(text: str, tls: TLS, now: datetime) -> str:
    """Adds to the error of a dial the fault of the host's own certificate, or else that the dispatcher refused the host."""
    try:
        pem = read(tls)
        own = fault(pem.cert, now) if pem else ""
    except Exception:  # noqa: BLE001 (the error that is explained says it)
        own = ""
    if own:
        return f"{own}: {text}"
    return f"the dispatcher refused this host: {text}" if "ALERT" in text else text


@contextmanager
def _file(text: bytes) -> Generator[str]:
    """Is a file for Python's TLS, which takes no key from memory. Where the system can, it is in memory alone."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "pair.pem")
            file.touch(0o600)
            file.write_bytes(text)
            yield str(file)
        return
    with os.fdopen(os.memfd_create("portcullis"), "wb") as memory:
        memory.write(text)
        memory.flush()
        yield f"/proc/self/fd/{memory.fileno()}"
