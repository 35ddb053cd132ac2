package kubernetes_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

const route = "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: %}\nspec: {configuration: p, stream: {}}\n"

func configMap(name, resourceVersion string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "mesh", UID: "uid", ResourceVersion: resourceVersion, Labels: map[string]string{kubernetes.Label: "true"},
		},
		Data: data,
	}
}

func newSource(t *testing.T, objects ...runtime.Object) (*kubernetes.Source, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	lists := listsOf(t, func(r *http.Request) (runtime.Object, error) {
		list, err := client.CoreV1().ConfigMaps("mesh").List(r.Context(), metav1.ListOptions{LabelSelector: r.URL.Query().Get("labelSelector")})
		if err != nil {
			return nil, err
		}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		return list, nil
	})
	s, err := kubernetes.New(kubernetes.Options{Client: client.CoreV1(), Lists: lists, Namespace: "mesh", Decoder: configtest.NewDecoder()})
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

var namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}}

func TestListReadsTheFilesOfLabelledConfigMaps(t *testing.T) {
	other := configMap("other", "1", map[string]string{"a.yaml": strings.Replace(route, "%", "not", 1)})
	other.Labels = nil
	s, client := newSource(t, namespace, other, configMap("hooks", "1", map[string]string{
		"a.yaml": strings.Replace(route, "%", "a", 1), "b.json": "{", "README": "text", "policy.rego": "package kubernetes.admission",
	}))
	l, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = l.Decoded()
	if len(l.Objects) != 1 || l.Objects[0].Origin() != "configmaps/mesh/hooks/a.yaml:1" {
		t.Errorf("objects %+v", l.Objects)
	}
	if text := l.Problems.Err().Error(); !strings.Contains(text, "configmaps/mesh/hooks/b.json") ||
		!strings.Contains(text, "policy.rego: a file .rego belongs to Open Policy Agent") || len(l.Problems) != 3 {
		t.Errorf("problems %v", l.Problems)
	}
	if again, err := s.List(t.Context()); err != nil || again.Revision != l.Revision {
		t.Errorf("nothing has changed, and %s became %s, %v", l.Revision, again.Revision, err)
	}
	next := configMap("hooks", "2", map[string]string{"a.yaml": strings.Replace(route, "%", "b", 1)})
	if _, err := client.CoreV1().ConfigMaps("mesh").Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.List(t.Context()); err != nil || changed.Revision == l.Revision || changed.Decoded().Objects[0].Name != "b" {
		t.Errorf("listed %+v, %v", changed, err)
	}
}

func TestWhatCannotBeReadIsNotEmpty(t *testing.T) {
	going := namespace.DeepCopy()
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"kubernetes"}
	for name, objects := range map[string][]runtime.Object{"a namespace that is not there": nil, "one that is going": {going}} {
		if s, _ := newSource(t, objects...); true {
			if _, err := s.List(t.Context()); err == nil {
				t.Errorf("%s is no error", name)
			}
		}
	}
	s, client := newSource(t, namespace)
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no role"))
	})
	if _, err := s.List(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want that it is forbidden", err)
	}
}

func TestWatchTellsOfChanges(t *testing.T) {
	s, client := newSource(t, namespace)
	ctx, stop := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 10), make(chan error, 1)
	go func() { ended <- s.Watch(ctx, func() { told <- struct{}{} }) }()
	<-told // that it has begun
	if _, err := client.CoreV1().ConfigMaps("mesh").Create(ctx, configMap("a", "1", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-told
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAWatchThatIsRefusedSaysWhy(t *testing.T) {
	s, client := newSource(t, namespace)
	client.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no role"))
	})
	if err := s.Watch(t.Context(), func() { t.Error("it watches") }); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want that it is forbidden", err)
	}
}

func TestAWatchThatTheServerEndsEnds(t *testing.T) {
	s, client := newSource(t, namespace)
	server := watch.NewFake()
	client.PrependWatchReactor("configmaps", clienttesting.DefaultWatchReactor(server, nil))
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(t.Context(), func() { server.Stop() }) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
