package match

import (
	"errors"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Object is one webhook configuration or one policy: exactly one field among Validating, Mutating and Policy is set.
type Object struct {
	// Scope is the cluster that the configuration is for; empty for all clusters.
	Scope string
	// Except are the clusters that a policy without a Scope is not for: it has an object of its own for each of them, or none.
	Except []string
	// Source is where the object was read from, for findings, for example a file name.
	Source string
	// Digest stands for the whole content of the configuration: equal name and digest mean equal content. If it is empty, the object is compiled anew
	// each time.
	Digest string
	// Pending are the names of hooks that have not been in rotation yet; names that it does not have mean nothing.
	Pending []string
	// Conditions are the expressions of matchConditions, compiled, by webhook and by condition. Missing ones are compiled.
	Conditions [][]*Expression
	// Validating holds validating hooks.
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration
	// Mutating holds mutating hooks, or initializers.
	Mutating *admissionregistrationv1.MutatingWebhookConfiguration
	// Policy is a policy with its bindings. Digest stands for all of them.
	Policy Policy
	// Route is how Policy is called without a RouteBinding: Clusters and Shadow count.
	Route Route
	// Initializes is true if Mutating is an InitializerConfiguration, which holds initializers.
	Initializes bool
}

// objectKey identifies an object.
type objectKey struct {
	scope string
	stage admissionv1.Stage
	name  string
}

// String is kind and name, and the cluster if there is one. A policy is one document, whichever clusters its objects are for.
func (k objectKey) String() string {
	kind := "ValidatingWebhookConfiguration/"
	switch {
	case strings.Contains(k.name, "/"):
		kind = "" // Policy.ID has it
	case k.stage == admissionv1.Stage_STAGE_INITIALIZE:
		kind = "InitializerConfiguration/"
	case k.stage == admissionv1.Stage_STAGE_MUTATE:
		kind = "MutatingWebhookConfiguration/"
	}
	if k.scope != "" && kind != "" {
		return k.scope + ": " + kind + k.name
	}
	return kind + k.name
}

func (o Object) key() objectKey {
	switch {
	case o.Policy != nil:
		return objectKey{o.Scope, o.Policy.Stage(), o.Policy.ID()}
	case o.Mutating != nil && o.Initializes:
		return objectKey{o.Scope, admissionv1.Stage_STAGE_INITIALIZE, o.Mutating.Name}
	case o.Mutating != nil:
		return objectKey{o.Scope, admissionv1.Stage_STAGE_MUTATE, o.Mutating.Name}
	case o.Validating != nil:
		return objectKey{o.Scope, admissionv1.Stage_STAGE_VALIDATE, o.Validating.Name}
	}
	return objectKey{scope: o.Scope}
}

func (o Object) check() error {
	set := 0
	for _, isSet := range [...]bool{o.Mutating != nil, o.Validating != nil, o.Policy != nil} {
		if isSet {
			set++
		}
	}
	if set != 1 {
		return errors.New("the object must be a validating configuration, a mutating configuration or a policy")
	}
	return nil
}

// webhook is a webhook of either kind of configuration.
type webhook struct {
	admissionregistrationv1.ValidatingWebhook

	stage        admissionv1.Stage
	reinvocation *admissionregistrationv1.ReinvocationPolicyType
	index        int // HookID.Index
}

func (o Object) webhooks() []webhook {
	var all []webhook
	if o.Policy != nil {
		return []webhook{webhookOf(o.Policy)}
	}
	if o.Validating != nil {
		for _, w := range o.Validating.Webhooks {
			all = append(all, webhook{ValidatingWebhook: w, stage: admissionv1.Stage_STAGE_VALIDATE})
		}
	} else {
		for _, w := range o.Mutating.Webhooks {
			all = append(all, webhook{ValidatingWebhook: common(&w), stage: o.key().stage, reinvocation: w.ReinvocationPolicy})
		}
	}
	names := map[string]int{}
	for i := range all {
		all[i].index = names[all[i].Name]
		names[all[i].Name]++
	}
	return all
}

// common are the fields that mutating webhooks share with validating ones: all but the reinvocation policy.
func common(w *admissionregistrationv1.MutatingWebhook) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    w.Name,
		ClientConfig:            w.ClientConfig,
		Rules:                   w.Rules,
		FailurePolicy:           w.FailurePolicy,
		MatchPolicy:             w.MatchPolicy,
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		MatchConditions:         w.MatchConditions,
	}
}
