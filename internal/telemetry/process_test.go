package telemetry

import (
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTheBuildIsInTheMetrics(t *testing.T) {
	want := "# HELP portcullis_build_info Always 1. The labels name the build.\n# TYPE portcullis_build_info gauge\n" +
		`portcullis_build_info{goversion="` + runtime.Version() + `",version="v1.2.3"} 1` + "\n"
	if err := testutil.GatherAndCompare(NewRegistry("v1.2.3"), strings.NewReader(want), "portcullis_build_info"); err != nil {
		t.Error(err)
	}
}
