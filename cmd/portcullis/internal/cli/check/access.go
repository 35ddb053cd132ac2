package check

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
)

// accessAge is the age past which a token of dispatchers is warned of. Nothing but its removal ends it.
const accessAge = 90 * 24 * time.Hour

// accessTokens checks the age of the tokens that `cluster join --access` made for dispatchers, for entries of some names. It reads
// no token: the API server is asked for metadata.
func (r *report) accessTokens(ctx context.Context, a *apiServer, names map[string]bool) {
	tokens, err := a.tokens(ctx)
	if err != nil {
		r.warn(apiServerCategory, "the tokens of dispatchers are young", "not known: "+err.Error(),
			"a user who may list Secrets in "+registrar.AccessNamespace+" sees how old they are")
		return
	}
	for i := range tokens {
		account := tokens[i].Annotations[corev1.ServiceAccountNameKey]
		if !names[account] {
			continue
		}
		age := r.now.Sub(tokens[i].CreationTimestamp.Time)
		description := fmt.Sprintf("the token of dispatchers in secret/%s/%s is young", registrar.AccessNamespace, tokens[i].Name)
		detail := fmt.Sprintf("it is %d days old", age/(24*time.Hour))
		if age < accessAge {
			r.ok(apiServerCategory, description, detail)
			continue
		}
		r.warn(apiServerCategory, description, detail+" and does not expire", "replace it: docs/clusters.md, the token of dispatchers")
	}
}

// tokens returns the Secrets of service accounts in the namespaces of the dispatchers' accounts.
func (a *apiServer) tokens(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(registrar.AccessNamespace).
		List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
