package cli

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadBuild(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	tests := map[string]struct {
		info *debug.BuildInfo
		want build
		line string
	}{
		"a program that knows nothing of itself": {
			want: build{Version: "(devel)", Go: runtime.Version(), Platform: platform},
			line: "portcullis (devel) " + runtime.Version() + " " + platform,
		},
		"a release": {
			info: &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "v1.2.3"}},
			want: build{Version: "v1.2.3", Go: "go1.26.1", Platform: platform},
			line: "portcullis v1.2.3 go1.26.1 " + platform,
		},
		"a build of a changed checkout": {
			info: &debug.BuildInfo{GoVersion: "go1.26.1", Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
			}},
			want: build{
				Version: "(devel)", Revision: "abc", Time: "2026-01-02T03:04:05Z", Modified: true, Go: "go1.26.1", Platform: platform,
			},
			line: "portcullis (devel) abc (modified) go1.26.1 " + platform,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := readBuild(tt.info)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("build (-want +got):\n%s", diff)
			}
			if got.String() != tt.line {
				t.Errorf("line %q, want %q", got, tt.line)
			}
		})
	}
}
