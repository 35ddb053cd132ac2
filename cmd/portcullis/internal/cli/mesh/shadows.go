package mesh

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// Shadows asks all dispatchers for their records of hooks in shadow, and merges these. A dispatcher of an earlier release has none.
func Shadows[C any](
	ctx context.Context, m Mesh[C], of func(C) analysisv1.AnalysisServiceClient, request *analysisv1.ListShadowsRequest,
) ([]analysis.Shadow, error) {
	answers, err := Everywhere(ctx, m, func(ctx context.Context, client C) (*analysisv1.ListShadowsResponse, error) {
		return of(client).ListShadows(ctx, request)
	})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return nil, err
	}
	return analysis.Shadows(answers), nil
}
