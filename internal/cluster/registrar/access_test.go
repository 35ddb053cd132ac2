package registrar

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// withTokens is an API server with a token controller.
func withTokens(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewSimpleClientset(objects...)
	client.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(clienttesting.CreateActionImpl); ok {
			if secret, ok := create.Object.(*corev1.Secret); ok {
				secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte("token-of-" + secret.Annotations[corev1.ServiceAccountNameKey])}
			}
		}
		return false, nil, nil
	})
	return client
}

func actions(changes []Diff) map[string]Action {
	all := map[string]Action{}
	for _, c := range changes {
		all[c.Object] = c.Action
	}
	return all
}

func TestAccessIsGrantedOnceAndTakenAway(t *testing.T) {
	r := newRegistrar(withTokens())
	each := func(a Action) map[string]Action {
		return map[string]Action{
			"serviceaccount/kube-system/portcullis-access": a, "clusterrole/portcullis-access": a,
			"clusterrolebinding/portcullis-access": a, "secret/kube-system/portcullis-access": a,
			"role/kube-system/portcullis-access": a, "rolebinding/kube-system/portcullis-access": a,
		}
	}
	for _, want := range []Action{Created, Unchanged} {
		token, changes, err := r.Grant(t.Context(), GrantOptions{Cluster: "prod-1", Name: "portcullis", Entries: true})
		if err != nil || token != "token-of-portcullis-access" {
			t.Fatalf("token %q, %v", token, err)
		}
		if diff := cmp.Diff(each(want), actions(changes)); diff != "" {
			t.Errorf("granted (-want +got):\n%s", diff)
		}
	}
	if _, _, err := r.Grant(t.Context(), GrantOptions{Cluster: "prod-2", Name: "portcullis"}); !errors.Is(err, ErrForeign) {
		t.Errorf("for another cluster: %v", err)
	}
	if changes, err := r.Leave(t.Context(), "prod-2", "portcullis", false); err != nil || len(changes) > 0 {
		t.Errorf("another cluster has left: %v, %v", changes, err)
	}
	changes, err := r.Leave(t.Context(), "prod-1", "portcullis", false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(each(Deleted), actions(changes)); diff != "" {
		t.Errorf("taken away (-want +got):\n%s", diff)
	}
	for i := range changes {
		if changes[i].Before != nil {
			t.Errorf("%s: the change has the object, perhaps with a token", changes[i].Object)
		}
	}
	if changes, err := r.Leave(t.Context(), "prod-1", "portcullis", false); err != nil || len(changes) > 0 {
		t.Errorf("again: %v, %v", changes, err)
	}
}

func TestAnObjectThatTheCallerMayNotReadIsNamed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("get", "clusterroles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}, "portcullis-access", errors.New("no"))
	})
	changes, err := newRegistrar(client).Leave(t.Context(), "prod-1", "portcullis", false)
	if diff := cmp.Diff(map[string]Action{"clusterrole/portcullis-access": Unreadable}, actions(changes)); diff != "" || err != nil {
		t.Errorf("%v, changes (-want +got):\n%s", err, diff)
	}
}

// An account of the same name that was not made for the cluster stays as it is.
func TestAForeignServiceAccountStays(t *testing.T) {
	own := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "portcullis-access", Namespace: AccessNamespace}}
	r := newRegistrar(withTokens(own))
	if _, changes, err := r.Grant(t.Context(), GrantOptions{Cluster: "prod-1", Name: "portcullis"}); !errors.Is(err, ErrForeign) || len(changes) > 0 {
		t.Errorf("%v, %v", changes, err)
	}
	if _, err := r.Leave(t.Context(), "prod-1", "portcullis", false); err != nil {
		t.Error(err)
	}
	if _, err := r.client.CoreV1().ServiceAccounts(AccessNamespace).Get(t.Context(), own.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

func TestADispatcherKeepsEntriesWhileItHoldsTheLease(t *testing.T) {
	holder, seconds := "dispatcher-1", int32(30)
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "portcullis-entries-portcullis", Namespace: "kube-system"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: renewed}},
		}
	}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    bool
	}{
		"none": {},
		"held": {[]runtime.Object{lease(holder, time.Now())}, true},
		"over": {[]runtime.Object{lease(holder, time.Now().Add(-time.Minute))}, false},
	} {
		r := newRegistrar(fake.NewSimpleClientset(tc.objects...))
		if got, err := r.Kept(t.Context(), "portcullis"); got != tc.want || err != nil {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tc.want)
		}
		changes, err := r.Leave(t.Context(), "prod-1", "portcullis", false)
		if err != nil || len(changes) != len(tc.objects) {
			t.Errorf("%s: the Lease is not removed: %v, %v", name, changes, err)
		}
	}
}
