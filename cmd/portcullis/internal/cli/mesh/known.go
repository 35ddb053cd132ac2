package mesh

import (
	"context"
	"fmt"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// Known returns an error if the mesh has no Cluster, or no hook in force, of a name. An empty name stands for all. Commands ask when nothing was
// found: a cluster that has been removed may have records still.
func Known(ctx context.Context, client configv1.ConfigServiceClient, cluster, hook string) error {
	if cluster != "" {
		if _, err := client.Get(ctx, &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: kinds.ClusterKind, Name: cluster}}); err != nil {
			return err
		}
	}
	if hook == "" {
		return nil
	}
	answer, err := client.ListHooks(ctx, &configv1.ListHooksRequest{})
	if err != nil {
		return err
	}
	var names []string
	for _, h := range answer.GetHooks() {
		if h.GetHook().GetName() == hook {
			return nil
		}
		names = append(names, h.GetHook().GetName())
	}
	return cli.Refused(fmt.Errorf("there is no hook %q in force: `portcullis get hooks` lists them, and `portcullis get` shows invalid objects%s",
		hook, suggest.DidYouMean(hook, names)))
}
