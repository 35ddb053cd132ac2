# syntax=docker/dockerfile:1
# PORTCULLIS is a clone of the repository of the SDK:
# docker build --build-context portcullis="$PORTCULLIS" -t imagepolicy:dev .
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src/host
COPY --from=portcullis sdk/rust /src/sdk/rust
COPY . .
RUN cargo add --path /src/sdk/rust && cargo add --dev --path /src/sdk/rust --features testing && cargo build --release --target-dir /out

FROM debian:12.11-slim
COPY --from=build /out/release/imagepolicy /imagepolicy
USER 65532:65532
ENTRYPOINT ["/imagepolicy"]
