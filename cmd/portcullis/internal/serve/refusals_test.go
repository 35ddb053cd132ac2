package serve

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestRefusalsOfTheControlPlaneComeLate(t *testing.T) {
	full := status.Error(codes.ResourceExhausted, "too many calls")
	large := &configv1.ApplyRequest{Manifests: []*admissionv1.Object{{Raw: make([]byte, maxDelayedBytes)}}}
	for name, tc := range map[string]struct {
		method  string
		request any
		err     error
		want    time.Duration
	}{
		"refused":                 {configv1.ConfigService_List_FullMethodName, &configv1.ListRequest{}, full, refusalDelay},
		"answered":                {configv1.ConfigService_List_FullMethodName, &configv1.ListRequest{}, nil, 0},
		"failed":                  {configv1.ConfigService_List_FullMethodName, &configv1.ListRequest{}, status.Error(codes.NotFound, "none"), 0},
		"a large request":         {configv1.ConfigService_Apply_FullMethodName, large, full, 0},
		"a review is not delayed": {admissionv1.AdmissionService_Review_FullMethodName, &admissionv1.ReviewRequest{}, full, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				_, err := delayUnary(t.Context(), tc.request, &grpc.UnaryServerInfo{FullMethod: tc.method}, func(context.Context, any) (any, error) { return nil, tc.err })
				if took := time.Since(begun); !errors.Is(err, tc.err) || took != tc.want {
					t.Errorf("%v after %v, want %v after %v", err, took, tc.err, tc.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), refusalDelay/2)
		defer cancel()
		begun := time.Now()
		stream := contextStream{nil, ctx}
		err := delayStream(nil, stream, &grpc.StreamServerInfo{FullMethod: configv1.ConfigService_Watch_FullMethodName}, func(any, grpc.ServerStream) error { return full })
		if took := time.Since(begun); !errors.Is(err, full) || took != refusalDelay/2 {
			t.Errorf("who has gone: %v after %v", err, took)
		}
	})
}
