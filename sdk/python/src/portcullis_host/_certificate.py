"""What a dispatcher refuses in the certificate of a host. Pure."""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

COMMON_NAME: Final = bytes.fromhex("550403")
ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
URI: Final = 0x86
PURPOSES: Final = bytes.fromhex("551d25")
FOR_CLIENTS: Final = {bytes.fromhex("2b06010505070302"), bytes.fromhex("551d2500")}
"""The purpose of clients, and any purpose."""
UTC_TIME: Final = 0x17
VERSION: Final = 0xA0
EXTENSIONS: Final = 0xA3
LONG: Final = 0x80


def fault(pem: bytes, now: datetime) -> str:
    """Returns why no dispatcher accepts the first certificate of a text; empty if there is no reason to be seen here.

    Raises:
        ValueError: It is no certificate. So are IndexError and StopIteration.
    """
    found = re.search(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", pem, re.DOTALL)
    if found is None:
        return ""
    der = ssl.PEM_cert_to_DER_cert(found[0].decode("ascii"))
    fields = list(_values(_first(_first(der))))
    if fields[0][0] == VERSION:
        fields.pop(0)
    begin, end = (_time(*value) for value in _values(fields[3][1]))
    extensions = _extensions(fields)
    purposes = {purpose for _, purpose in _values(_first(extensions[PURPOSES]))} if PURPOSES in extensions else FOR_CLIENTS
    names = [tag for tag, _ in _values(_first(extensions[ALTERNATIVE_NAMES]))] if ALTERNATIVE_NAMES in extensions else []
    if now > end:
        return f"the certificate of this host ended at {end:%Y-%m-%dT%H:%M:%SZ}"
    if now < begin:
        return f"by the clock of this machine, the certificate of this host is not valid before {begin:%Y-%m-%dT%H:%M:%SZ}"
    if not purposes & FOR_CLIENTS:
        return "the certificate of this host is for servers, not for clients"
    if URI not in names and COMMON_NAME not in fields[4][1]:
        return "the certificate of this host has no identity: neither a URI nor a common name"
    return ""


def _extensions(fields: list[tuple[int, bytes]]) -> dict[bytes, bytes]:
    """Returns the extensions of a certificate, by their ids."""
    found = next((value for tag, value in fields if tag == EXTENSIONS), None)
    if found is None:
        return {}
    each = (list(_values(extension)) for _, extension in _values(_first(found)))
    return {extension[0][1]: extension[-1][1] for extension in each}


def _time(tag: int, value: bytes) -> datetime:
    form = "%y%m%d%H%M%SZ" if tag == UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(value.decode("ascii"), form).replace(tzinfo=UTC)


def _first(der: bytes) -> bytes:
    return next(_values(der))[1]


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the tag and the content of each value in DER."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & LONG:
            size = length & ~LONG
            length = int.from_bytes(der[at : at + size], "big")
            at += size
        yield tag, der[at : at + length]
        at += length
