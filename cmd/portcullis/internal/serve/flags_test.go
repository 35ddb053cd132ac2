package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
)

func TestEveryFlagOfServeSaysItsVariable(t *testing.T) {
	usage := NewCommand().UsageString()
	for _, want := range []string{"[$PORTCULLIS_LISTEN]", "[$PORTCULLIS_HOSTS_TLS_CA]", "[$PORTCULLIS_SETTINGS]"} {
		if !strings.Contains(usage, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(usage, "PORTCULLIS_READY_FILE") {
		t.Error("serve would write over the ready file that the tools of the same shell read")
	}
}

func TestTheTimeForWhichDataOfAClusterCountsHasBounds(t *testing.T) {
	complete := []string{"--config=nowhere", "--tls-cert=none", "--tls-key=none", "--tls-ca=none"}
	for _, bad := range []string{"0s", "14999ms", "10m1s"} {
		clitest.Execute(t, NewCommand(), nil, append(complete, "--cluster-fresh-for="+bad)...).Fails(t, "--cluster-fresh-for: ", "give 15s to 10m0s")
	}
	for _, good := range []time.Duration{cluster.MinFreshFor, cluster.FreshFor, cluster.MaxFreshFor} {
		if err := (&serveConfig{clusterFreshFor: good}).checkClusterFreshFor(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheLagOfAnAPIServerHasBounds(t *testing.T) {
	complete := []string{"--config=nowhere", "--tls-cert=none", "--tls-key=none", "--tls-ca=none"}
	for _, bad := range []string{"0s", "-1s", "5001ms"} {
		clitest.Execute(t, NewCommand(), nil, append(complete, "--api-server-lag="+bad)...).Fails(t, "--api-server-lag: ", "name a time above 0, and at most 5s")
	}
	if err := (&serveConfig{apiServerLag: time.Second}).checkLag(); err != nil {
		t.Error(err)
	}
	if strings.Contains(NewCommand().UsageString(), "api-server-lag") {
		t.Error("the flag is shown")
	}
}
