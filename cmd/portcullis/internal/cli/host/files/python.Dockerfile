# syntax=docker/dockerfile:1
# PORTCULLIS is a clone of the repository of the SDK:
# docker build --build-context portcullis="$PORTCULLIS" -t imagepolicy:dev .
FROM python:3.13.0-slim AS build
WORKDIR /src
COPY --from=portcullis LICENSE ./
COPY --from=portcullis proto proto
COPY --from=portcullis sdk/python sdk/python
COPY requirements.txt ./
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -c requirements.txt ./sdk/python

FROM python:3.13.0-slim
COPY --from=build /venv /venv
COPY imagepolicy.py policy.py /app/
USER 65532:65532
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["/venv/bin/python", "/app/imagepolicy.py"]
