"""The testing package: cases of a table, and patched objects."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simple import allowing

from portcullis_host import Cause, Host, Request, Response, change, deny
from portcullis_host.testing import BlockingDispatcher, Case, cases, create
from portcullis_host.testing._verdict import patched


def new_host() -> Host:
    host = Host("test")

    @host.mutate("m").create
    def _(document: dict[str, Any], request: Request) -> Response:
        if request.username != "jane":
            return deny(
                f"not {request.username} of {','.join(request.groups)} in {request.namespace}",
                causes=[Cause("f", "m", "r")],
                warnings=["w"],
            )
        document["a"] = 2
        return change(request, audit={"k": "v"})

    return host


ENTRY: dict[str, Any] = {"name": "n", "object": {"a": 1}, "expect": {"allowed": True}}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"user": {"name": "jane"}, "expect": {"allowed": True, "object": {"a": 2}, "audit": {"k": "v"}, "code": 0}}, ""),
        ({"user": {"name": "jo", "groups": ["g"]}, "namespace": "x", "expect": {"allowed": False, "message": "jo of g in x"}}, ""),
        ({"expect": {"allowed": False, "warnings": ["w"], "object": None, "patch": []}}, ""),
        ({"expect": {"allowed": False, "reason": "Forbidden", "causes": [{"field": "f", "message": "m"}]}}, ""),
        ({"expect": {"allowed": False, "reason": "Invalid"}}, "n: reason is 'Forbidden'"),
        ({"expect": {"allowed": False, "causes": []}}, "n: causes is"),
        ({"expect": {"allowed": False, "code": 422}}, "n: code is 403"),
        ({"expect": {"allowed": False, "warnings": []}}, "n: warnings is"),
        ({"expect": {"allowed": False, "audit": {"k": "v"}}}, "n: audit is"),
        ({"operation": "DELETE", "oldObject": {}, "expect": {"allowed": True, "object": None}}, ""),
        ({"expect": {"allowed": True}}, "n: allowed is False, want True"),
        ({"expect": {"allowed": False, "message": "jane"}}, "n: message is 'not test"),
        ({"user": {"name": "jane"}, "expect": {"allowed": True, "patch": []}}, "n: patch is"),
        ({"user": {"name": "jane"}, "expect": {"allowed": True, "object": {"a": True}}}, "n: object is"),
    ],
)
def test_a_case_compares_what_it_expects(
    portcullis_dispatcher: Callable[[Host], BlockingDispatcher], tmp_path: Path, entry: dict[str, Any], why: str
) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps([ENTRY | entry]))
    [case] = cases(file)
    dispatcher = portcullis_dispatcher(new_host())
    if not why:
        dispatcher.play(case)
        return
    with pytest.raises(AssertionError, match=why):
        dispatcher.play(case)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("- {name: n, object: {}, expect: {}}", r"case 'n', CREATE: missing are \['expect.allowed'\]"),
        ("- {name: n, object: {}, expect: {allowed: true, status: 1}}", r"unknown are \['status'\]"),
        ("- {name: n, object: {}, expect: {allowed: true}, kind: 1}", r"unknown are \['kind'\]"),
        ("- {name: n, operation: UPDATE, object: {}, expect: {allowed: true}}", r"case 'n', UPDATE: missing are \['oldObject'\]"),
        ("- {name: n, operation: CONNECT, object: {}, expect: {allowed: true}}", "case 'n', CONNECT"),
        ("- {object: {}}", r"missing are \['expect', 'expect.allowed', 'name'\]"),
        ("- n", "'n' is no case"),
        ("cases: []", "is no list of cases"),
    ],
)
def test_a_table_at_fault(tmp_path: Path, table: str, why: str) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(table)
    with pytest.raises(ValueError, match=why):
        cases(file)


def test_a_table_in_yaml_names_the_package_that_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    file = tmp_path / "cases.yaml"
    file.write_text("[]")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'portcullis-host\[testing\]'"):
        cases(file)


def test_a_case_names_its_hook_if_there_are_several(
    portcullis_dispatcher: Callable[[Host], BlockingDispatcher],
) -> None:
    host = new_host()
    host.validate("v")(allowing)
    with pytest.raises(LookupError, match="the host has 2"):
        portcullis_dispatcher(host).play(Case("n", "", create({}), {"allowed": True}))


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        ([{"op": "add", "path": "/l/-", "value": 3}], {"l": [1, 2, 3]}),
        ([{"op": "add", "path": "/l/0", "value": 0}, {"op": "remove", "path": "/l/2"}], {"l": [0, 1]}),
        ([{"op": "replace", "path": "", "value": {"x": 1}}], {"x": 1}),
        ([{"op": "move", "from": "/l/0", "path": "/a~1b~0"}], {"l": [2], "a/b~": 1}),
        ([{"op": "copy", "from": "/l", "path": "/m"}, {"op": "remove", "path": "/m/0"}], {"l": [1, 2], "m": [2]}),
        ([{"op": "test", "path": "/l/0", "value": 1}], {"l": [1, 2]}),
    ],
)
def test_a_patch_is_applied(patch: list[dict[str, Any]], want: Any) -> None:
    assert patched({"l": [1, 2]}, patch) == want


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/l/3", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "remove", "path": "/l/2"},
        {"op": "remove", "path": "/x"},
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "add", "path": "/l/0/x", "value": 1},
        {"op": "test", "path": "/l/0", "value": True},
        {"op": "none", "path": ""},
        {"op": "add", "path": "/x"},
    ],
)
def test_a_patch_that_does_not_apply_is_a_failure(operation: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="does not apply"):
        patched({"l": [1, 2]}, [operation])
