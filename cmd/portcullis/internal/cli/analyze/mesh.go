package analyze

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// clients are of one dispatcher.
type clients struct {
	config   configv1.ConfigServiceClient
	analysis analysisv1.AnalysisServiceClient
}

func clientsOf(conn grpc.ClientConnInterface) clients {
	return clients{configv1.NewConfigServiceClient(conn), analysisv1.NewAnalysisServiceClient(conn)}
}

type meshOf = mesh.Mesh[clients]

// use reaches the mesh at an address, for so long at most.
func use(ctx context.Context, at *connect.MeshAddress, timeout time.Duration, notes io.Writer, ask func(context.Context, meshOf) error) error {
	return at.Use(ctx, timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		here := clientsOf(conn)
		return ask(ctx, meshOf{Client: here, Config: here.config, Dial: connect.Others(at, clientsOf), Notes: notes})
	})
}

// latencies asks all dispatchers where time went.
func latencies(ctx context.Context, m meshOf, request *analysisv1.ListLatenciesRequest) (all []*analysisv1.Latency, err error) {
	answers, err := mesh.Everywhere(ctx, m, func(ctx context.Context, c clients) (*analysisv1.ListLatenciesResponse, error) {
		return c.analysis.ListLatencies(ctx, request)
	})
	for _, a := range answers {
		all = append(all, a.GetLatencies()...)
	}
	return all, err
}
