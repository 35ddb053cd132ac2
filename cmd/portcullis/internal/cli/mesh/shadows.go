package mesh

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// Shadows asks all dispatchers for their records of hooks in shadow, and merges these. A dispatcher of an earlier release has none.
func Shadows(ctx context.Context, m Mesh, request *analysisv1.ListShadowsRequest) ([]analysis.Shadow, error) {
	answers, err := Everywhere(ctx, m, func(ctx context.Context, c Clients) (*analysisv1.ListShadowsResponse, error) {
		return c.Analysis.ListShadows(ctx, request)
	})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return nil, err
	}
	return analysis.Shadows(answers), nil
}
