package touch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission/configuration"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
)

// resync is the interval of kube-apiserver's informers (CreateConfig, k8s.io/kubernetes/pkg/controlplane/apiserver).
const resync = 10 * time.Minute

// TestKubeAPIServerMissesAChangeUntilTheNextOne has its code compile the webhooks of a list from before a change, and end after it.
func TestKubeAPIServerMissesAChangeUntilTheNextOne(t *testing.T) {
	for name, tt := range map[string]struct {
		then   func(t *testing.T, c *fake.Clientset)
		healed bool
	}{
		"nothing more happens": {func(*testing.T, *fake.Clientset) { <-time.After(resync - time.Second) }, false},
		"the informers resync": {func(*testing.T, *fake.Clientset) { <-time.After(resync) }, true},
		"another object is written": {func(t *testing.T, c *fake.Clientset) {
			write(t, c, "other", "https://other", "2")
		}, false},
		"an annotation changes": {func(t *testing.T, c *fake.Clientset) { write(t, c, "entries", "https://after", "2") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fake.NewClientset()
				source, slow := watching(t, c)
				write(t, c, "entries", "https://before", "1")
				write(t, c, "other", "https://other", "1")
				if got := called(source, "entries"); got != "https://before" {
					t.Fatalf("it calls %q", got)
				}

				slow.hold = make(chan struct{}) // a compilation of the list that is now, for a change of the other object and of this one
				write(t, c, "entries", "https://before", "1 again")
				ended := make(chan struct{})
				go func() { source.Webhooks(); close(ended) }()
				synctest.Wait()
				write(t, c, "entries", "https://after", "1 again")
				close(slow.hold)
				<-ended
				slow.hold = nil
				if got := called(source, "entries"); got != "https://before" {
					t.Fatalf("the change was not missed: it calls %q", got)
				}

				tt.then(t, c)
				synctest.Wait()
				if got := called(source, "entries"); (got == "https://after") != tt.healed {
					t.Errorf("it calls %q", got)
				}
			})
		})
	}
}

// write puts an object with one webhook, and has the informers see it.
func write(t *testing.T, c *fake.Clientset, name, url, annotation string) {
	t.Helper()
	objects := c.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	o := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{Annotation: annotation}},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}}},
	}
	if _, err := objects.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		if _, err := objects.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// called is the address of the webhook of an object as the API server calls it.
func called(source generic.Source, name string) string {
	for _, w := range source.Webhooks() {
		if v, ok := w.GetValidatingWebhook(); ok && v.Name == name {
			return *v.ClientConfig.URL
		}
	}
	return ""
}

// watching is kube-apiserver's knowledge of validating webhooks, and the lister that it compiles from.
func watching(t *testing.T, c *fake.Clientset) (generic.Source, *slowLister) {
	t.Helper()
	f := informers.NewSharedInformerFactory(c, resync)
	slow := &slowLister{}
	source := configuration.NewValidatingWebhookConfigurationManager(&slowFactory{f, slow})
	ctx, stop := context.WithCancel(t.Context())
	f.StartWithContext(ctx)
	t.Cleanup(func() {
		stop()
		f.Shutdown()
	})
	synctest.Wait()
	return source, slow
}

// slowFactory is a factory whose lister of validating webhook configurations holds its result back.
type slowFactory struct {
	informers.SharedInformerFactory

	slow *slowLister
}

func (f *slowFactory) Admissionregistration() admissionregistration.Interface {
	return &slowGroup{f.SharedInformerFactory.Admissionregistration(), f.slow}
}

type slowGroup struct {
	admissionregistration.Interface

	slow *slowLister
}

func (g *slowGroup) V1() admissioninformers.Interface { return &slowVersion{g.Interface.V1(), g.slow} }

type slowVersion struct {
	admissioninformers.Interface

	slow *slowLister
}

func (v *slowVersion) ValidatingWebhookConfigurations() admissioninformers.ValidatingWebhookConfigurationInformer {
	return &slowInformer{v.Interface.ValidatingWebhookConfigurations(), v.slow}
}

type slowInformer struct {
	admissioninformers.ValidatingWebhookConfigurationInformer

	slow *slowLister
}

func (i *slowInformer) Lister() listers.ValidatingWebhookConfigurationLister {
	i.slow.ValidatingWebhookConfigurationLister = i.ValidatingWebhookConfigurationInformer.Lister()
	return i.slow
}

// slowLister holds a list until hold is closed, unless that is nil.
type slowLister struct {
	listers.ValidatingWebhookConfigurationLister

	hold chan struct{}
}

func (l *slowLister) List(s labels.Selector) ([]*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	all, err := l.ValidatingWebhookConfigurationLister.List(s)
	if l.hold != nil {
		<-l.hold
	}
	return all, err
}
