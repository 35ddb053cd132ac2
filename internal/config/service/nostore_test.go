package service_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// withoutStore is a service whose configuration is in ConfigMaps.
func withoutStore(t *testing.T, documents string) *fixture {
	t.Helper()
	f := &fixture{t: t, others: map[config.Key]config.Object{}}
	objects, problems := configtest.Decode("portcullis/hooks: hooks.yaml", []byte(documents))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		o.Source = "kubernetes"
		f.others[o.Key] = o
	}
	var err error
	f.Service, err = service.New(service.Options{
		Report: func() *configv1.DispatcherReport {
			return &configv1.DispatcherReport{Status: &configv1.DispatcherStatus{DispatcherId: "here", Judging: true}}
		},
		Sources: "the ConfigMaps",
		Live:    f, Operators: identity.Grant{Names: []string{"root"}}, Inspect: lint.Options{}.InspectOnly, Decoder: configtest.NewDecoder(),
		Identity: func(ctx context.Context) identity.Peer {
			who, _ := ctx.Value(caller{}).(string)
			return identity.Named(who)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestWithoutAStoreWritesNameTheirOrigin(t *testing.T) {
	f := withoutStore(t, rolesOfPeople+"\n---\n"+policy("p", "failurePolicy: Fail"))
	got, err := f.Get(f.as("viewer"), &configv1.GetRequest{Key: policyKey})
	if err != nil || got.GetObject().GetSource() != "kubernetes" || !strings.HasPrefix(got.GetObject().GetOrigin(), "portcullis/hooks: hooks.yaml:") {
		t.Errorf("%v: %v", got, err)
	}
	for _, c := range got.GetObject().GetConditions() {
		if c.GetStatus() != "True" {
			t.Errorf("condition %v", c)
		}
	}
	const none = "there is no store"
	for name, test := range map[string]struct {
		err  error
		code codes.Code
		says string
	}{
		"an operator":                     {second(f.apply("root", policy("p", ""))), codes.FailedPrecondition, none},
		"an operator, of a new object":    {second(f.apply("root", policy("new", ""))), codes.FailedPrecondition, "write the objects to the ConfigMaps"},
		"a viewer":                        {second(f.apply("viewer", policy("p", ""))), codes.PermissionDenied, "is a viewer"},
		"an author of other names":        {second(f.apply("author", policy("p", ""))), codes.PermissionDenied, "namePrefixes"},
		"a stranger":                      {second(f.apply("stranger", policy("p", ""))), codes.PermissionDenied, "has no role"},
		"an operator who deletes":         {second(f.Delete(f.as("root"), &configv1.DeleteRequest{Key: policyKey})), codes.FailedPrecondition, "portcullis/hooks: hooks.yaml:"},
		"a viewer who deletes":            {second(f.Delete(f.as("viewer"), &configv1.DeleteRequest{Key: policyKey})), codes.PermissionDenied, "is a viewer"},
		"a viewer who looks for changes":  {second(f.ListChanges(f.as("viewer"), &configv1.ListChangesRequest{})), codes.FailedPrecondition, "no history"},
		"a viewer who waits":              {f.Wait(&configv1.WaitRequest{}, &takes[configv1.WaitResponse]{ctx: f.as("viewer")}), codes.FailedPrecondition, none},
		"an operator who wants a backup":  {f.Backup(&configv1.BackupRequest{}, &takes[configv1.BackupResponse]{ctx: f.as("root")}), codes.FailedPrecondition, "back up"},
		"a viewer who wants a backup":     {f.Backup(&configv1.BackupRequest{}, &takes[configv1.BackupResponse]{ctx: f.as("viewer")}), codes.PermissionDenied, "is no operator"},
		"a stranger who lists":            {second(f.List(f.as("stranger"), &configv1.ListRequest{})), codes.PermissionDenied, "has no role"},
		"nobody":                          {second(f.List(f.as(""), &configv1.ListRequest{})), codes.Unauthenticated, "certificate"},
		"an operator who makes a dry run": {second(f.apply("root", policy("p", "failurePolicy: Ignore"), dryRun)), codes.OK, ""},
	} {
		if status.Code(test.err) != test.code || !strings.Contains(status.Convert(test.err).Message(), test.says) {
			t.Errorf("%s: %v, want %s and %q", name, test.err, test.code, test.says)
		}
	}
}

func TestWithoutAStoreADryRunComparesWithTheSources(t *testing.T) {
	f := withoutStore(t, policy("p", "failurePolicy: Ignore")+"\n---\n"+policy("q", "failurePolicy: Ignore"))
	a, err := f.apply("root", strings.Join([]string{policy("p", "failurePolicy: Ignore"), policy("q", "failurePolicy: Fail"), policy("r", "")}, "\n---\n"), dryRun)
	if err != nil || strings.Join(a.GetResults(), " ") != "unchanged updated created" {
		t.Errorf("%v: %v", a.GetResults(), err)
	}
	all, err := f.ListDispatchers(f.as("root"), &configv1.ListDispatchersRequest{})
	if err != nil || !all.GetNoStore() || len(all.GetDispatchers()) != 1 || len(all.GetBehind()) != 0 {
		t.Errorf("%v: %v", all, err)
	}
}

func second[T any](_ T, err error) error { return err }
