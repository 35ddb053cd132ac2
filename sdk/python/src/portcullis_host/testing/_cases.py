"""Tables of cases, which are the same in every language."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from portcullis_host._changes import equal
from portcullis_host.contract import admission
from portcullis_host.testing._requests import create, delete, update
from portcullis_host.testing._verdict import Verdict

MEMBERS = frozenset({"allowed", "code", "message", "warnings", "audit", "object", "patch"})


@dataclass(frozen=True, slots=True)
class Case:
    """A request to a hook, and the verdict that is expected."""

    name: str
    """What the case shows."""
    hook: str
    """Empty means the only one of the host."""
    request: admission.AdmissionRequest
    """The request."""
    expect: Mapping[str, Any]
    """The members of the verdict that are compared; message is a part of that of the verdict."""

    def __str__(self) -> str:
        return self.name

    def check(self, verdict: Verdict) -> None:
        """Compares a verdict.

        Raises:
            AssertionError: It is another one.
        """
        for member, want in self.expect.items():
            got = getattr(verdict, member)
            got = list(got) if member == "warnings" else got
            if want not in got if member == "message" else not equal(got, want):
                raise AssertionError(f"{self.name}: {member} is {got!r}, want {want!r}")


def cases(file: str | PathLike[str]) -> list[Case]:
    """Reads a table of cases, in YAML or JSON.

    YAML takes the package PyYAML, which ``portcullis-host[testing]`` brings.

    Raises:
        ValueError: The file is no table of cases.
    """
    text = Path(file).read_text(encoding="utf-8")
    if Path(file).suffix == ".json":
        table = json.loads(text)
    else:
        import yaml  # noqa: PLC0415 (not every test has a table)

        table = yaml.safe_load(text)
    return [_case(entry) for entry in table]


def _case(entry: dict[str, Any]) -> Case:
    known = {"name", "hook", "operation", "user", "namespace", "object", "oldObject", "expect"}
    unknown = (entry.keys() - known) | (entry["expect"].keys() - MEMBERS)
    if unknown or "allowed" not in entry["expect"]:
        raise ValueError(f"case {entry['name']!r}: want expect.allowed, and no {sorted(unknown)}")
    user: dict[str, Any] = entry.get("user", {})
    about: dict[str, Any] = {"namespace": entry.get("namespace")}
    about |= {option: user[member] for member, option in (("name", "username"), ("groups", "groups")) if member in user}
    match entry.get("operation", "CREATE"):
        case "CREATE":
            request = create(entry["object"], **about)
        case "UPDATE":
            request = update(entry["oldObject"], entry["object"], **about)
        case "DELETE":
            request = delete(entry["oldObject"], **about)
        case operation:
            raise ValueError(f"case {entry['name']!r}: the operation is {operation}")
    return Case(entry["name"], entry.get("hook", ""), request, entry["expect"])
