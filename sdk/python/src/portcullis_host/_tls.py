"""How sessions are secured."""

import ssl
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import grpc


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """Secures sessions by files in PEM.

    They are read anew at each dial, so that certificates and authorities are replaced without a restart; sessions that stand are not
    disturbed.
    """

    cert: str | PathLike[str]
    """The certificate of the host, which is its identity to the mesh."""
    key: str | PathLike[str]
    """The key of the certificate."""
    ca: str | PathLike[str]
    """The authorities that dispatchers are verified by."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files for gRPC.

        Raises:
            OSError: A file cannot be read.
        """
        cert, key, ca = (Path(file).read_bytes() for file in (self.cert, self.key, self.ca))
        return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)

    def context(self) -> ssl.SSLContext:
        """Reads the files for Python's own TLS, which says what is wrong with them.

        Raises:
            OSError: A file cannot be read, or does not hold what it should: ssl.SSLError is an OSError.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # As gRPC: an authority need not be a root.
        context.load_cert_chain(self.cert, self.key)
        context.load_verify_locations(self.ca)
        return context


@dataclass(frozen=True, slots=True)
class Plaintext:
    """Is no security at all: for tests on loopback."""

    def credentials(self) -> None:
        """Returns None: there are none."""

    def context(self) -> None:
        """Returns None: there is none."""


TLS: TypeAlias = TLSFiles | Plaintext
