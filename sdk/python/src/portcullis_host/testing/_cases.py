"""Tables of cases, which are the same in every language."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from portcullis_host._changes import equal, is_list, is_object
from portcullis_host.contract import admission
from portcullis_host.testing._requests import create, delete, update
from portcullis_host.testing._verdict import Verdict

MEMBERS = frozenset({"allowed", "code", "reason", "message", "causes", "warnings", "audit", "object", "patch"})
OBJECTS = {"CREATE": {"object"}, "UPDATE": {"object", "oldObject"}, "DELETE": {"oldObject"}}
"""The objects of a case, by its operation."""


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
            if member == "causes":
                got = [{"field": cause.field, "message": cause.message} for cause in verdict.causes]
            got = list(got) if member == "warnings" else got
            if want not in got if member == "message" else not equal(got, want):
                raise AssertionError(f"{self.name}: {member} is {got!r}, want {want!r}")


def cases(file: str | PathLike[str]) -> list[Case]:
    """Reads a table of cases, in YAML or JSON.

    Raises:
        ValueError: The file is no table of cases.
        ModuleNotFoundError: YAML takes the package PyYAML, which ``portcullis-host[testing]`` brings.
    """
    text = Path(file).read_text(encoding="utf-8")
    table = json.loads(text) if Path(file).suffix == ".json" else _yaml(text)
    if not is_list(table):
        raise ValueError(f"{file} is no list of cases")
    return [_case(entry) for entry in table]


def _yaml(text: str) -> Any:
    try:
        import yaml  # noqa: PLC0415 (not every test has a table)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a table in YAML takes PyYAML: pip install 'portcullis-host[testing]'", name=error.name) from None
    return yaml.safe_load(text)


def _case(entry: Any) -> Case:
    if not is_object(entry) or not is_object(entry.get("expect", {})):
        raise ValueError(f"{entry!r} is no case")
    operation, expect = entry.get("operation", "CREATE"), entry.get("expect", {})
    known = {"name", "hook", "operation", "user", "namespace", "object", "oldObject", "expect"}
    unknown = (entry.keys() - known) | (expect.keys() - MEMBERS)
    missing = ({"name", "expect"} | OBJECTS.get(operation, set())) - entry.keys() | {"expect.allowed"} - {
        f"expect.{name}" for name in expect
    }
    if unknown or missing or operation not in OBJECTS:
        raise ValueError(f"case {entry.get('name')!r}, {operation}: missing are {sorted(missing)}, unknown are {sorted(unknown)}")
    user: dict[str, Any] = entry.get("user", {})
    about: dict[str, Any] = {"namespace": entry.get("namespace")}
    about |= {option: user[member] for member, option in (("name", "username"), ("groups", "groups")) if member in user}
    if operation == "CREATE":
        request = create(entry["object"], **about)
    elif operation == "UPDATE":
        request = update(entry["oldObject"], entry["object"], **about)
    else:
        request = delete(entry["oldObject"], **about)
    return Case(entry["name"], entry.get("hook", ""), request, expect)
