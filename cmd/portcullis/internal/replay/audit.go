package replay

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/conversion"
)

// auditGroup is the beginning of the apiVersion of audit events.
const auditGroup = "audit.k8s.io/"

// event reads an audit event of Kubernetes. An update has the object before it from the latest earlier event about the object.
func (l *Log) event(e Entry, line []byte) error {
	var event auditv1.Event
	if err := json.Unmarshal(line, &event); err != nil {
		l.leave(LeftUnreadable)
		return nil //nolint:nilerr // it is counted
	}
	operation, subject := operationOf(event.Verb), event.ObjectRef
	switch {
	case event.Stage != auditv1.StageResponseComplete:
		l.leave(LeftUnfinished)
		return nil
	case operation == "" && event.Verb != "deletecollection", subject == nil:
		l.leave(LeftRead)
		return nil
	case operation == "":
		l.leave(LeftCollection)
		return nil
	case subject.Resource == "secrets" && subject.APIGroup == corev1.GroupName:
		l.leave(LeftSecret)
		return nil
	}
	code := http.StatusOK
	if event.ResponseStatus != nil && event.ResponseStatus.Code != 0 {
		code = int(event.ResponseStatus.Code)
	}
	if e.Denied = code >= http.StatusBadRequest; e.Denied && !isDenial(event.ResponseStatus.Message) {
		l.leave(LeftRefused)
		return nil
	}
	e.Time = event.StageTimestamp.Time
	w := &offline.Write{
		Cluster: l.Cluster, Operation: operation, Resource: resourceOf(subject), Namespace: subject.Namespace,
		User: event.User.Username, Groups: event.User.Groups, DryRun: isDryRun(event.RequestURI),
	}
	if u := event.ImpersonatedUser; u != nil {
		w.User, w.Groups = u.Username, u.Groups
	}
	e.Write = w
	return l.object(&e, &event)
}

// object gives a request of an audit event its objects.
func (l *Log) object(e *Entry, event *auditv1.Event) error {
	key, stored := keyOf(event.ObjectRef), rawOf(event.ResponseObject)
	before := l.objects.get(key)
	switch e.Write.Operation {
	case offline.OperationDelete:
		if e.Write.OldObject = before; before == nil {
			l.leave(LeftCollection)
			return nil
		}
	case offline.OperationUpdate:
		if e.Write.Object = rawOf(event.RequestObject); event.Verb == "patch" {
			e.Write.Object = stored
		}
		e.Write.OldObject = before
		if e.WithoutOld = !sameKind(before, e.Write.Object); e.WithoutOld {
			e.Write.OldObject = e.Write.Object
		}
	default:
		e.Write.Object = rawOf(event.RequestObject)
		if event.ObjectRef.Subresource != "" && e.Write.Object == nil { // a connection, whose options are in the URL
			l.leave(LeftCollection)
			return nil
		}
	}
	if e.Write.Object == nil && e.Write.Operation != offline.OperationDelete {
		l.leave(LeftWithout)
		return nil
	}
	if wrote := !e.Denied && !e.Write.DryRun; wrote && event.ObjectRef.Subresource == "" {
		if stored == nil {
			stored = e.Write.Object
		}
		l.objects.put(key, stored, e.Write.Operation == offline.OperationDelete)
	}
	return l.give(*e)
}

func operationOf(verb string) string {
	switch verb {
	case "create":
		return offline.OperationCreate
	case "update", "patch":
		return offline.OperationUpdate
	case "delete":
		return offline.OperationDelete
	}
	return ""
}

// isDenial reports an error of admission, in the words of kube-apiserver: "admission webhook ... denied the request", "... denied request: ...".
func isDenial(message string) bool {
	return strings.Contains(message, "denied the request") || strings.Contains(message, "denied request")
}

// resourceOf is a resource in the form of a Policy.
func resourceOf(o *auditv1.ObjectReference) string {
	parts := []string{o.Resource}
	if o.APIGroup != "" {
		parts = []string{o.APIGroup, o.APIVersion, o.Resource}
	}
	if o.Subresource != "" {
		parts = append(parts, o.Subresource)
	}
	return strings.Join(parts, "/")
}

func isDryRun(uri string) bool {
	u, err := url.ParseRequestURI(uri)
	return err == nil && u.Query().Get("dryRun") == "All"
}

// rawOf is an object of an event; nil for none, and for a Status, which is an answer without an object.
func rawOf(o *runtime.Unknown) []byte {
	if o == nil || len(o.Raw) == 0 || string(o.Raw) == "null" {
		return nil
	}
	var head struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(o.Raw, &head) != nil || head.Kind == "Status" || head.Kind == "DeleteOptions" {
		return nil
	}
	return o.Raw
}

// sameKind reports two objects of one kind and version. A subresource may have another kind than its resource, such as Scale.
func sameKind(a, b []byte) bool {
	kindOfA, errA := conversion.KindOf(a)
	kindOfB, errB := conversion.KindOf(b)
	return errA == nil && errB == nil && kindOfA == kindOfB
}

// objectKey names an object.
type objectKey struct{ group, resource, namespace, name string }

func keyOf(o *auditv1.ObjectReference) objectKey {
	return objectKey{o.APIGroup, o.Resource, o.Namespace, o.Name}
}

// Bounds of the objects that a log keeps to know the object before an update.
const (
	maxKept      = 200_000
	maxKeptBytes = 512 << 20
)

// history has the latest objects of a log. When it is full it forgets all: their next updates have no object before them.
type history struct {
	latest map[objectKey][]byte
	bytes  int
}

func (h *history) get(key objectKey) []byte { return h.latest[key] }

func (h *history) put(key objectKey, object []byte, gone bool) {
	if key.name == "" { // it was generated by the API server, after the event
		return
	}
	names := len(key.group) + len(key.resource) + len(key.namespace) + len(key.name)
	if before, kept := h.latest[key]; kept {
		h.bytes -= names + len(before)
		delete(h.latest, key)
	}
	if gone || names+len(object) > maxKeptBytes {
		return
	}
	if h.latest == nil || len(h.latest) == maxKept || h.bytes+names+len(object) > maxKeptBytes {
		h.latest, h.bytes = map[objectKey][]byte{}, 0
	}
	h.latest[key] = object
	h.bytes += names + len(object)
}
