module github.com/portcullis-mesh/portcullis/hostsdk

go 1.25.0

require (
	github.com/cockroachdb/datadriven v1.0.2
	github.com/google/go-cmp v0.6.0
	github.com/portcullis-mesh/portcullis/gen/portcullis v0.0.0
	github.com/portcullis-mesh/portcullis/internal/wire v0.0.0
	go.opentelemetry.io/otel v1.28.0
	go.opentelemetry.io/otel/metric v1.28.0
	go.opentelemetry.io/otel/sdk v1.28.0
	go.opentelemetry.io/otel/sdk/metric v1.28.0
	go.opentelemetry.io/otel/trace v1.28.0
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.66.0
	google.golang.org/protobuf v1.36.6
)

require (
	github.com/go-logr/logr v1.4.2 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/net v0.26.0 // indirect
	golang.org/x/sys v0.21.0 // indirect
	golang.org/x/text v0.16.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240604185151-ef581f913117 // indirect
)

replace (
	github.com/portcullis-mesh/portcullis/gen/portcullis => ../gen/portcullis
	github.com/portcullis-mesh/portcullis/internal/wire => ../internal/wire
)
