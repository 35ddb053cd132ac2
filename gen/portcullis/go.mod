module github.com/portcullis-mesh/portcullis/gen/portcullis

go 1.25.0

require (
	google.golang.org/grpc v1.66.0
	google.golang.org/protobuf v1.36.6
)

require (
	golang.org/x/net v0.26.0 // indirect
	golang.org/x/sys v0.21.0 // indirect
	golang.org/x/text v0.16.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240604185151-ef581f913117 // indirect
)
