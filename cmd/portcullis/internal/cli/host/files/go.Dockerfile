# syntax=docker/dockerfile:1
# PORTCULLIS is a clone of the repository of the SDK:
# docker build --build-context portcullis="$PORTCULLIS" -t imagepolicy:dev .
FROM golang:1.26.8 AS build
WORKDIR /src/host
COPY --from=portcullis gen/portcullis /src/sdk/gen/portcullis
COPY --from=portcullis internal/wire /src/sdk/internal/wire
COPY --from=portcullis hostsdk /src/sdk/hostsdk
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go work init . ../sdk/gen/portcullis ../sdk/internal/wire ../sdk/hostsdk ../sdk/hostsdk/kube && \
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/imagepolicy .

FROM scratch
COPY --from=build /out/imagepolicy /imagepolicy
USER 65532:65532
ENTRYPOINT ["/imagepolicy"]
