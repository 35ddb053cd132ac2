"""The policy of examples/imagepolicy-python as an ordinary validating webhook, with FastAPI and uvicorn."""

import argparse
from collections.abc import Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

app = FastAPI()


@app.post("/validate")
async def validate(request: Request) -> JSONResponse:
    """Denies a Pod with an image that is not named by digest."""
    review = (await request.json())["request"]
    response: dict[str, Any] = {"uid": review["uid"], "allowed": True}
    for image in images(review.get("object") or {}):
        if "@sha256:" not in image:
            response |= {"allowed": False, "status": {"message": f"images are named by digest here: {image}"}}
            break
    return JSONResponse({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def images(pod: dict[str, Any]) -> Iterator[str]:
    """Yields the images of all containers of a Pod."""
    for containers in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod.get("spec", {}).get(containers) or ():
            yield container.get("image", "")


def main() -> None:
    """Serves the webhook until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    flags = parser.parse_args()
    uvicorn.run(
        app, port=flags.port, ssl_certfile=flags.cert, ssl_keyfile=flags.key, log_level="warning", access_log=False, timeout_keep_alive=3600
    )


if __name__ == "__main__":
    main()
