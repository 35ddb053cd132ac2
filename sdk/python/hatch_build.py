"""Makes portcullis_host/_gen from the contract while the wheel is built, also for an editable install."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = ("portcullis/admission/v1/admission.proto", "portcullis/host/v1/host.proto")


class CustomBuildHook(BuildHookInterface[Any]):
    """Runs protoc, which grpcio-tools brings."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (the signature is hatchling's)
        """Generates the code. An sdist has the contract in proto/, the repository two directories up."""
        root = Path(self.root)
        protos = next((p for p in (root / "proto", root.parent.parent / "proto") if p.is_dir()), None)
        if protos is None:
            raise FileNotFoundError("the contract is missing: want proto/, or the repository around this directory")
        generate(protos, root / "src" / "portcullis_host" / "_gen")


def generate(protos: Path, out: Path) -> None:
    """Replaces out by the code of the contract."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    plugin = next(file.locate() for file in files("mypy-protobuf") or () if file.stem == "protoc-gen-mypy")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{protos}", f"--plugin=protoc-gen-mypy={plugin}"]
    subprocess.run([*command, f"--python_out={out}", f"--mypy_out=quiet:{out}", *FILES], check=True)  # noqa: S603
    for file in [*out.rglob("*.py"), *out.rglob("*.pyi")]:
        text = file.read_text()
        # protoc writes absolute imports, as if the contract were a top-level package of its own.
        file.write_text(re.sub(r"^from portcullis\.", f"from {out.parent.name}.{out.name}.portcullis.", text, flags=re.MULTILINE))
    for directory in [out, *(d for d in out.rglob("*") if d.is_dir())]:
        (directory / "__init__.py").touch()
