package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"

	"github.com/portcullis-mesh/portcullis/test/e2e/peers/checks"
)

// compute is the mean time, in µs, in which a side judges the first case without a server, one after the other.
type compute func(ctx context.Context, duration time.Duration) (float64, error)

// inProcess is the time of a function that judges.
func inProcess(judge measure.Review) compute {
	return func(ctx context.Context, duration time.Duration) (float64, error) {
		s, err := measure.Run(ctx, judge, measure.Load{Callers: 1, Duration: duration})
		return float64(time.Second/time.Microsecond) / s.Throughput, err
	}
}

// checked decodes the object, by encoding/json or as the SDK does, and checks it.
func (c *comparison) checked(decode func([]byte, any) error) compute {
	return inProcess(func(context.Context) error {
		var d appsv1.Deployment
		if err := decode(c.cases[0].object, &d); err != nil {
			return err
		}
		return checks.Deployment(&d)
	})
}

func plain(raw []byte, into any) error { return json.Unmarshal(raw, into) }
func sensitive(raw []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// request is the first case as the mesh has it.
func (c *comparison) request() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "u", Cluster: inMesh, Operation: "CREATE", Namespace: "default", Name: "web",
		Kind:     &admissionv1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Resource: &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Object:   &admissionv1.Object{Raw: c.cases[0].object},
	}
}

// byMesh judges by the mesh's own implementation of policies.
func (c *comparison) byMesh(t *testing.T) compute {
	var in match.Input
	all, bindings := policies(t, "")
	compiler := policy.NewCompiler()
	for i := range all {
		in.Objects = append(in.Objects, match.Object{Policy: compiler.Compile(all[i]).Bind(bindings[i : i+1])})
	}
	snapshot, _ := match.Compile(in)
	return inProcess(func(ctx context.Context) error {
		a, judged := match.NewAttributes(c.request(), match.Unknown{}), 0
		ctx = policy.WithReview(ctx, nil)
		for _, h := range snapshot.Candidates(inMesh, admissionv1.Stage_STAGE_VALIDATE, a) {
			d := h.ShouldCall(ctx, a)
			if v, err := h.Policy.Judge(ctx, a, d.As, d.Unmatched); err != nil || !d.Match || !v.GetAllowed() {
				return fmt.Errorf("%v, %w", d, err)
			}
			judged++
		}
		if judged != len(all) {
			return fmt.Errorf("%d policies judged it", judged)
		}
		return nil
	})
}

// byPlugin judges by kube-apiserver's plugin.
func (c *comparison) byPlugin(t *testing.T) compute {
	var hooks []validating.PolicyHook
	all, bindings := policies(t, "")
	for i := range all {
		hooks = append(hooks, oracle.CompilePolicy(all[i], bindings[i]))
	}
	plugin := oracle.New(t, oracle.Options{Namespaces: map[string]map[string]string{"default": nil}}).Policies(nil)
	return inProcess(func(ctx context.Context) error {
		j, err := plugin.Judge(ctx, hooks, c.request())
		if err == nil && !j.Allowed {
			err = errors.New(j.Message)
		}
		return err
	})
}

// byTool is the time that a peer's own benchmark says in JSON, if the peer has it.
func (c *comparison) byTool(name string, args []string, mean func([]byte) (time.Duration, error)) compute {
	program, ok := c.built(name)
	if !ok {
		return nil
	}
	return func(ctx context.Context, _ time.Duration) (float64, error) {
		said, err := exec.CommandContext(ctx, program, args...).Output()
		if err != nil {
			return 0, fmt.Errorf("%s %s: %w", name, args[0], err)
		}
		d, err := mean(said)
		return float64(d) / float64(time.Microsecond), err
	}
}

func (c *comparison) byOPA(t *testing.T) compute {
	input := filepath.Join(t.TempDir(), "review.json")
	if err := os.WriteFile(input, c.cases[0].review, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"bench", "--format=json", "--data=testdata/opa.rego", "--input=" + input, "data.system.main"}
	return c.byTool("opa", args, func(said []byte) (time.Duration, error) {
		var result struct {
			N int64 `json:"N"`
			T int64 `json:"T"` // in ns
		}
		err := json.Unmarshal(said, &result)
		return time.Duration(result.T / max(1, result.N)), err
	})
}

func (c *comparison) byGator(engine string) compute {
	args := []string{
		"bench", "--output=json", "--iterations=5000", "--engine=" + engine, "--filename=testdata/gatekeeper-templates.yaml",
		"--filename=testdata/gatekeeper-constraints.yaml", "--filename=testdata/deployment.yaml",
	}
	return c.byTool("gator", args, func(said []byte) (time.Duration, error) {
		var results []struct {
			Latencies struct {
				Mean string `json:"mean"`
			} `json:"latencies"`
		}
		if err := json.Unmarshal(said, &results); err != nil || len(results) != 1 {
			return 0, fmt.Errorf("%s: %w", said, err)
		}
		return time.ParseDuration(results[0].Latencies.Mean)
	})
}
