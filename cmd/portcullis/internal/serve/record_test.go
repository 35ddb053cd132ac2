package serve

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	replaycli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/replay"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/reviewlog"
)

// TestRecordedReviewsAreReplayed by a policy that is tried, with and without the mesh that has recorded them.
func TestRecordedReviewsAreReplayed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reviews")
	a, d, info := appWithStore(t, func(_ *dev, c *serveConfig) {
		c.record = recordConfig{dir: dir, bytes: reviewlog.DefaultBytes, age: reviewlog.DefaultAge}
	})
	r := &rotated{t, a, d, info, readyFileOf(t, info)}
	request := strings.NewReplacer(`"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment").Replace(clitest.Review)
	if got := r.run(reviewcli.NewCommand(), request, "-f", "-"); got.Code != 0 { // both stages
		t.Fatal(got.Notes)
	}
	policy := clitest.Write(t, "policy.yaml", strings.ReplaceAll(labelledPods, "MODE", "enforce"))
	var got clitest.Result
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); { // they are written beside the answers
		got = clitest.Execute(t, replaycli.NewCommand(), nil, dir, "--config", policy)
		if strings.HasPrefix(got.Out, "2 requests") {
			break
		}
	}
	for _, want := range []string{"1 would be denied that are allowed now, 0 would be allowed that are denied now, 1 without any difference", "Policy/team-label  dev      allowed  denied  1"} {
		if got.Code != cli.ExitDenied || !strings.Contains(got.Out, want) {
			t.Errorf("exit code %d, and no %q in:\n%s%s", got.Code, want, got.Out, got.Notes)
		}
	}
	got = r.run(replaycli.NewCommand(), "", dir, "--config", policy)
	if want := "Policy/team-label  dev      allowed  denied  1"; got.Code != cli.ExitDenied || !strings.Contains(got.Out, want) {
		t.Errorf("exit code %d, and no %q in:\n%s%s", got.Code, want, got.Out, got.Notes)
	}
}

func TestBoundsOfTheLogOfReviewsAreChecked(t *testing.T) {
	for want, c := range map[string]recordConfig{
		"":                 {dir: "x", bytes: reviewlog.MinBytes, age: time.Hour},
		"--record-values ": {values: true},
		"--record-bytes 1": {dir: "x", bytes: 1, age: time.Hour},
		"--record-age -1s": {dir: "x", bytes: reviewlog.MinBytes, age: -time.Second},
	} {
		if err := c.validate(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
