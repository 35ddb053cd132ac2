"""Models of objects: those of pydantic 2 and of the Kubernetes client, of which this package imports neither."""

import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from portcullis_host._changes import read


def decoder(model: Any) -> Callable[[bytes], Any]:
    """Returns how a model is made of an object.

    Raises:
        TypeError: The model is of neither.
    """
    if hasattr(model, "model_dump"):
        # The Kubernetes client takes no member that it does not know, but by from_dict.
        return (lambda raw: model.from_dict(read(raw))) if hasattr(model, "from_dict") else model.model_validate_json
    if hasattr(model, "openapi_types"):  # The Kubernetes client before it used pydantic.
        return lambda raw: _client(model.__module__).deserialize(SimpleNamespace(data=raw), model)
    raise TypeError(f"{model.__name__} is no model of pydantic 2 or of the Kubernetes client")


def encoded(model: Any) -> Any:
    """Returns the object of a model."""
    if hasattr(model, "model_dump"):
        return model.model_dump(mode="json", by_alias=True)
    return _client(type(model).__module__).sanitize_for_serialization(model)


@cache
def _client(module: str) -> Any:
    """Returns the client that the module of a model comes with, which is imported already. It connects to nothing."""
    return sys.modules[module.partition(".models.")[0]].ApiClient()
