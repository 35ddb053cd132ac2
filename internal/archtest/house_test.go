package archtest_test

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/archtest"
)

// cli has the commands of the program.
const cli = "./cmd/portcullis/internal/cli"

// houseEdges are the directions of imports in this module: from the shells to the core, and never sideways.
func houseEdges() []archtest.Edges {
	return append(layerEdges(), libraryEdges()...)
}

// layerEdges are the forbidden edges between the module's own packages, whatever lies between them.
func layerEdges() []archtest.Edges {
	return []archtest.Edges{
		{
			From: []string{"./gen/..."},
			Deny: []string{
				"./conversion/...", "./dispatcher/...", "./bridge/...", "./internal/config/...", "./internal/cluster/...",
				"./internal/initializer/...", "./internal/telemetry/...", "./hostsdk/...", "./internal/...",
			},
			Indirect: true,
			Reason:   "generated code stands below everything",
		},
		{
			From: []string{"./conversion/..."},
			Deny: []string{
				"./dispatcher/...", "./bridge/...", "./internal/config/...", "./internal/cluster/...", "./internal/initializer/...",
				"./internal/telemetry/...", "./hostsdk/...",
			},
			Indirect: true,
			Reason:   "conversion is a pure function of documents and messages, and stands on gen alone",
		},
		{
			From:     []string{"./dispatcher/..."},
			Deny:     []string{"./bridge/...", "./internal/config/...", "./internal/cluster/...", "./internal/initializer/...", "./conversion/builtin/..."},
			Indirect: true,
			Reason:   "the dispatcher owns the interfaces that the shells implement; cmd wires them",
		},
		{
			From:     []string{"./dispatcher", "./dispatcher/match/...", "./dispatcher/chain/...", "./dispatcher/observe/...", "./dispatcher/review/..."},
			Deny:     []string{"./dispatcher/session/..."},
			Indirect: true,
			Reason:   "how hosts are reached is behind review.Backend",
		},
		{
			From:     []string{"./dispatcher/session/hedge"},
			Deny:     []string{"./dispatcher/session", "./dispatcher/session/pool", "./dispatcher/session/stream"},
			Indirect: true,
			Reason:   "hedging decorates attempts by an interface of its own, and the sessions implement it",
		},
		{
			From:     []string{"./dispatcher/session/stream"},
			Deny:     []string{"./dispatcher/session", "./dispatcher/session/hedge", "./dispatcher/session/pool", "./dispatcher/fairqueue"},
			Indirect: true,
			Reason:   "a session knows neither hooks' replicas nor other sessions: calls come as tickets, and a sink takes what happens",
		},
		{
			From: []string{
				"./dispatcher/chain/...", "./dispatcher/fairqueue/...", "./dispatcher/latency/...", "./dispatcher/match/...", "./dispatcher/memory/...",
				"./dispatcher/observe/...", "./dispatcher/periods/...", "./dispatcher/review/...", "./dispatcher/session/...", "./dispatcher/shadow/...",
				"./bridge/outbound/...", "./internal/inprocess",
			},
			Deny:     []string{"./dispatcher"},
			Indirect: true,
			Reason:   "the cores, the backends and the observer stand below the dispatcher that drives them: they share dispatcher/review",
		},
		{
			From:     []string{"./dispatcher/match/...", "./dispatcher/review/..."},
			Deny:     []string{"./dispatcher/chain/..."},
			Indirect: true,
			Reason:   "matching knows nothing of what is done with its result",
		},
		{
			From:     []string{"./bridge/..."},
			Except:   []string{"./bridge/adapt/..."}, // a host
			Deny:     []string{"./dispatcher/session/...", "./internal/config/...", "./internal/cluster/...", "./internal/initializer/...", "./hostsdk/..."},
			Indirect: true,
			Reason:   "the bridge calls the dispatcher through its Go interface and is told its limits by cmd",
		},
		{
			From:     []string{"./internal/config/...", "./internal/cluster/...", "./internal/initializer/..."},
			Deny:     []string{"./bridge/...", "./dispatcher/session/...", "./hostsdk/..."},
			Indirect: true,
			Reason:   "the shells do not know each other; cmd wires them",
		},
		{
			From:     []string{"./internal/cluster/registrar/...", "./internal/cluster/registration/..."},
			Deny:     []string{"./internal/cluster/follow/..."},
			Indirect: true,
			Reason:   "the entries of the mesh do not depend on how the configurations of others are followed",
		},
		{
			From: []string{"./internal/telemetry/..."},
			Deny: []string{
				"./bridge/...", "./dispatcher/session/...", "./internal/config/...", "./internal/cluster/...", "./internal/initializer/...", "./hostsdk/...",
			},
			Indirect: true,
			Reason:   "telemetry is handed to the shells, it does not know them",
		},
		{
			From:     []string{cli + "/..."},
			Deny:     []string{"./cmd/portcullis/internal/serve/...", "./cmd/portcullis/internal/lonebridge/...", "./cmd/portcullis/internal/adapt/...", "./bridge/...", "./dispatcher/session/...", "./hostsdk/..."},
			Indirect: true,
			Reason:   "a command talks to a running mesh over the contract, or reads files; it does not serve",
		},
		{
			From: []string{"./cmd/portcullis/internal/analysis"},
			Deny: []string{
				"./dispatcher", "./dispatcher/session/...", "./bridge/...", "./internal/config/...", "./internal/cluster/...",
				"./internal/initializer/...", "./internal/telemetry/...",
			},
			Indirect: true,
			Reason:   "the causes of slow reviews follow from records alone: commands and the console ask for records and print",
		},
		{
			From:   []string{cli + "/config/...", cli + "/console/...", cli + "/mesh/...", cli + "/shadow/..."},
			Deny:   []string{cli + "/analyze"},
			Reason: "a command needs the results of cmd/portcullis/internal/analysis, not the printing of another command",
		},
		{
			From:     []string{cli + "/connect/...", cli + "/printer/..."},
			Deny:     []string{cli + "/config/...", cli + "/mesh/...", cli + "/review/...", cli + "/certs/...", cli + "/cluster/..."},
			Indirect: true,
			Reason:   "what commands share stands below them",
		},
		{
			From: []string{
				"./dispatcher/...", "./conversion/...", "./bridge/...", "./internal/config/...", "./internal/cluster/...", "./internal/initializer/...",
				"./internal/telemetry/...",
			},
			Except: []string{"./bridge/adapt/..."},
			Deny: []string{
				"./hostsdk/...", "./internal/archtest/...", "./internal/citest/...", "./internal/configtest/...", "./internal/etcdtest/...",
				"./internal/oracle/...",
			},
			Indirect: true,
			Reason:   "the two ends of a stream share the contract and its encoding alone, and what serves tests is not linked",
		},
	}
}

// libraryEdges are the libraries that some packages may not be built on.
func libraryEdges() []archtest.Edges {
	return []archtest.Edges{
		{
			From:   []string{"./dispatcher/..."},
			Deny:   []string{"net/http/...", "go.etcd.io/...", "github.com/spf13/...", "flag", "github.com/grpc-ecosystem/..."},
			Reason: "the road of a review knows no HTTP, no store and no command line",
		},
		{
			From:   []string{"./dispatcher/chain/...", "./dispatcher/review/..."},
			Deny:   []string{"net/...", "os/...", "google.golang.org/grpc/...", "math/rand/...", "crypto/rand", "log/slog"},
			Reason: "a chain is a pure state machine: what happens in it depends on its input alone",
		},
		{
			From:   []string{"./conversion/..."},
			Deny:   []string{"net", "net/http/...", "os/...", "google.golang.org/grpc/...", "math/rand/...", "log/slog"},
			Reason: "conversion is pure: bytes in, messages out",
		},
		{
			From: []string{"./internal/wire"},
			Only: []string{
				"std", "./gen/portcullis/...", "google.golang.org/protobuf/...", "go.opentelemetry.io/otel/trace",
			},
			Reason: "both ends of a stream link the encoding of the contract",
		},
		{
			From:     []string{"./internal/identity/...", "./internal/certs/..."},
			Only:     []string{"std"},
			Indirect: true,
			Reason:   "who is at the other end of a channel is decided by little code, and by none of others",
		},
		{
			From:     []string{"./internal/handshake/..."},
			Only:     []string{"std"},
			Indirect: true,
			Reason:   "whoever listens for TLS uses it, whatever is spoken behind it",
		},
		{
			From: []string{"./bridge/adapt/...", "./bridge/jsonreview"},
			Deny: []string{
				"./dispatcher/...", "./bridge", "./bridge/outbound/...", "./bridge/upstream/...", "./internal/config/...", "./internal/cluster/...",
				"./internal/initializer/...", "./internal/telemetry/...", "./internal/oracle/...",
				"k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/kubernetes/...", "sigs.k8s.io/controller-runtime/...",
				"github.com/prometheus/...", "go.opentelemetry.io/otel/sdk/...",
			},
			Indirect: true,
			Reason:   "a program that serves its own webhook as a hook links the SDK, the JSON of a review and its types, and chooses all else",
		},
		{
			From: []string{"./hostsdk", "./hostsdk/hosttest/..."},
			Only: []string{
				"std", "./gen/portcullis/...", "./internal/clock", "./internal/wire",
				"google.golang.org/grpc/...", "google.golang.org/protobuf/...", "google.golang.org/genproto/googleapis/rpc/...",
				"go.opentelemetry.io/otel/...", "go.opentelemetry.io/auto/sdk/...",
				"github.com/go-logr/...", "github.com/cespare/xxhash/v2/...", // dependencies of the OpenTelemetry API itself
				"golang.org/x/net/...", "golang.org/x/sys/...", "golang.org/x/text/...", "golang.org/x/sync/...",
			},
			Indirect: true,
			Reason:   "a host author's program is built on the contract, its encoding, grpc, protobuf and the OpenTelemetry API",
		},
		{
			From: []string{"./hostsdk/..."},
			Deny: []string{
				"./conversion/...", "./dispatcher/...", "./bridge/...", "./internal/config/...", "./internal/cluster/...",
				"./internal/initializer/...", "./internal/telemetry/...", "./internal/archtest/...", "./internal/citest/...",
				"./internal/etcdtest/...", "./internal/oracle/...", "./gen/gateway/...",
				"github.com/grpc-ecosystem/...",
				"k8s.io/kubernetes/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "go.opentelemetry.io/otel/sdk/...",
			},
			Indirect: true,
			Reason:   "the packages beside the SDK stay light too: a host author's own versions are never forced",
		},
		{
			From:   []string{"./..."},
			Except: []string{"./conversion/builtin", "./internal/config/apiserver", "./internal/oracle"},
			Deny:   []string{"k8s.io/kubernetes/..."},
			Reason: "Kubernetes' internal types are for conversion between built-in versions and for validation as the API server does it",
		},
		{
			From: []string{"./..."},
			Except: []string{
				"./conversion/builtin", "./internal/config/apiserver", "./internal/oracle",
				"./cmd/portcullis/internal/serve", "./cmd/portcullis/internal/kubekinds", "./cmd/portcullis/internal/offline",
				"./cmd/portcullis/internal/cases", "./cmd/portcullis/internal/replay", cli + "/casetest", cli + "/bench", cli + "/replay",
				"./cmd/portcullis/internal/audit", cli + "/audit", "./cmd/portcullis/internal/localhosts",
				cli + "/config", cli + "/policy", cli + "/cluster", cli + "/review", "./cmd/portcullis",
			},
			Deny:     []string{"k8s.io/kubernetes/..."},
			Indirect: true,
			Reason:   "k8s.io/kubernetes doubles the time and memory to link: only programs and commands that validate by themselves wire it, behind interfaces",
		},
		{
			From:   []string{"./..."},
			Except: []string{"./internal/oracle"},
			Deny:   []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers"},
			Reason: "it links the clients of every API group, 8 MB: take those of the groups in use from k8s.io/client-go/kubernetes/typed",
		},
		{
			From:   []string{"./..."},
			Except: []string{"./cmd/...", "./internal/oracle/...", "./examples/..."},
			Deny:   []string{"github.com/spf13/...", "flag"},
			Reason: "the command line is for programs",
		},
		{
			From:   []string{"./..."},
			Except: []string{cli + "/..."},
			Deny:   []string{"k8s.io/cli-runtime/..."},
			Reason: "one package prints what commands show",
		},
		{
			From:     []string{"./cmd/..."},
			Deny:     []string{"./internal/configtest/..."},
			Indirect: true,
			Reason:   "its validator accepts most of the configurations that Kubernetes refuses",
		},
		{
			From: []string{"./..."},
			Except: []string{
				"./internal/archtest/...", "./internal/citest/...", "./internal/etcdtest/...", "./internal/oracle/...", cli + "/clitest/...",
				"./hostsdk/hosttest/...",
			},
			Deny:   []string{"testing/...", "net/http/httptest", "google.golang.org/grpc/test/..."},
			Reason: "what serves tests is not linked into the program",
		},
	}
}

// housePurity are the sources that a test can run through any order of events, because nothing in them waits or reads a clock.
func housePurity() []archtest.Purity {
	return []archtest.Purity{
		{
			From: []string{
				"./dispatcher/chain/...", "./dispatcher/latency/...", "./dispatcher/match/...", "./dispatcher/memory/...", "./dispatcher/periods/...",
				"./dispatcher/review/...", "./dispatcher/shadow/...", "./cmd/portcullis/internal/analysis", "./internal/config/policies",
			},
			Reason: "the cores are pure: time comes in as a parameter, and the shell owns the goroutines",
		},
		{
			From:   []string{"./dispatcher/session/..."},
			Files:  []string{"state*.go", "cluster_slots.go", "leaked_slots.go", "probing.go", "race.go", "budget.go", "latencies.go"},
			Reason: "a session's state is a pure machine: time comes in with each event, and the shell owns the goroutines",
		},
		{
			From:   []string{"./internal/initializer"},
			Files:  []string{"lifecycle.go", "machine.go"},
			Reason: "the checker runs a hold and the life cycle of its object through every order of their steps",
		},
		{
			From:   []string{"./internal/cluster/keeper"},
			Files:  []string{"decide.go", "capability.go", "planned.go", "in_sync.go"},
			Reason: "the next write of entries depends on the observations alone: stories play them",
		},
		{
			From:   []string{"./internal/certs/keep"},
			Files:  []string{"decide.go"},
			Reason: "the next write of certificates depends on the Secrets and the time alone",
		},
		{
			From:   []string{"./conversion/...", "./internal/wire"},
			Reason: "conversion and the encoding are pure",
		},
	}
}

func TestImportsRunFromTheShellsToTheCore(t *testing.T) {
	for _, violation := range archtest.CheckEdges(house(t), houseEdges()) {
		t.Error(violation)
	}
}

func TestTheCoresStartNothingAndReadNoClock(t *testing.T) {
	violations, err := archtest.CheckPurity(house(t), housePurity())
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}

func TestEveryPackageSaysOnceWhatItIs(t *testing.T) {
	violations, err := archtest.CheckComments(house(t), []string{"./gen/..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}

// house is the graph of this module.
func house(t *testing.T) *archtest.Graph {
	t.Helper()
	g, err := archtest.Load(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	return g
}
