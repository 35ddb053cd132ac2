package gateway

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

const (
	clustersPrefix = "/v1/clusters/"
	stagedSegment  = "staged"
	maxPathBytes   = 2048
	// maxWatch bounds the time of a watch; client-go asks for 5 to 10 minutes.
	maxWatch = time.Hour
)

// Serves reports whether this package serves a path.
func Serves(path string) bool {
	rest, ok := strings.CutPrefix(path, clustersPrefix)
	if !ok {
		return false
	}
	_, rest, _ = strings.Cut(rest, "/")
	return rest == stagedSegment || strings.HasPrefix(rest, stagedSegment+"/")
}

// target is an object that a path names, or without a name the objects of a resource.
type target struct {
	cluster         string
	resource        *admissionv1.GroupVersionResource
	namespace, name string
}

// parsePath reads the escaped path of a URL. It reports false for a path that is none of Kubernetes' paths of objects.
func parsePath(escaped string) (target, bool) {
	rest, ok := strings.CutPrefix(escaped, clustersPrefix)
	if !ok || len(escaped) > maxPathBytes {
		return target{}, false
	}
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		if parts[i], ok = segment(part); !ok {
			return target{}, false
		}
	}
	if len(parts) < 3 || parts[1] != stagedSegment {
		return target{}, false
	}
	t := target{cluster: parts[0], resource: &admissionv1.GroupVersionResource{}}
	switch root, parts := parts[2], parts[3:]; {
	case root == "api" && len(parts) > 1:
		t.resource.Version, parts = parts[0], parts[1:]
		return t.below(parts)
	case root == "apis" && len(parts) > 2:
		t.resource.Group, t.resource.Version, parts = parts[0], parts[1], parts[2:]
		return t.below(parts)
	}
	return target{}, false
}

// segment unescapes a segment of a path. Those that no name of Kubernetes can be are refused: they would mean another path to a proxy.
func segment(escaped string) (string, bool) {
	part, err := url.PathUnescape(escaped)
	if err != nil || part == "" || part == "." || part == ".." || strings.ContainsAny(part, "/%\x00") {
		return "", false
	}
	return part, true
}

// below reads the segments below the version.
func (t target) below(parts []string) (target, bool) {
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	switch len(parts) {
	case 1:
	case 2:
		t.name = parts[1]
	default: // subresources are not staged
		return target{}, false
	}
	t.resource.Resource = parts[0]
	return t, true
}

// key is the key of the object that the path names.
func (t target) key() *initializerv1.StagedKey {
	return &initializerv1.StagedKey{Cluster: t.cluster, Resource: t.resource, Namespace: t.namespace, Name: t.name}
}

// list asks for the objects of the path.
func (t target) list() *initializerv1.ListRequest {
	return &initializerv1.ListRequest{Cluster: t.cluster, Resource: t.resource, Namespace: t.namespace}
}

// query has the parameters that count here. The other parameters of Kubernetes (limit, continue, fieldManager, ...) change nothing.
type query struct {
	uninitialized   bool // uninitialized objects too
	watch           bool
	resourceVersion string
	bookmarks       bool
	initialEvents   bool // send the objects first, and say when they have been sent
	noInitialEvents bool
	timeout         time.Duration
	dryRun          bool
	labels          labels.Selector
	fields          fields.Selector
}

func parseQuery(values url.Values) (query, error) {
	q := query{resourceVersion: values.Get("resourceVersion"), timeout: maxWatch, labels: labels.Everything(), fields: fields.Everything()}
	for name, into := range map[string]*bool{
		"includeUninitialized": &q.uninitialized, "watch": &q.watch, "allowWatchBookmarks": &q.bookmarks, "sendInitialEvents": &q.initialEvents,
	} {
		text := values.Get(name)
		switch is, err := strconv.ParseBool(text); {
		case !values.Has(name):
		case text == "": // means true, as API servers read it
			*into = true
		case err != nil:
			return query{}, badRequest("query %s=%q: true or false is wanted", name, text)
		default:
			*into = is
		}
	}
	q.noInitialEvents = values.Has("sendInitialEvents") && !q.initialEvents
	q.dryRun = values.Get("dryRun") != ""
	if q.resourceVersion == "0" { // any, of which the latest is one
		q.resourceVersion = ""
	}
	if _, err := strconv.ParseUint(q.resourceVersion, 10, 63); err != nil && q.resourceVersion != "" {
		return query{}, badRequest("query resourceVersion=%q: want the version of a list, of an object or of a bookmark", q.resourceVersion)
	}
	if text := values.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return query{}, badRequest("query timeoutSeconds=%q: a number is wanted", text)
		}
		if asked := time.Duration(seconds) * time.Second; asked > 0 {
			q.timeout = min(asked, maxWatch)
		}
	}
	var err error
	if q.labels, err = labels.Parse(values.Get("labelSelector")); err != nil {
		return query{}, badRequest("query labelSelector: %v", err)
	}
	if q.fields, err = fields.ParseSelector(values.Get("fieldSelector")); err != nil {
		return query{}, badRequest("query fieldSelector: %v", err)
	}
	for _, r := range q.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return query{}, badRequest("query fieldSelector: %q cannot be selected by, metadata.name and metadata.namespace can", r.Field)
		}
	}
	return q, nil
}

// selects reports whether the selectors, and includeUninitialized, select an object.
func (q *query) selects(o *initializerv1.StagedObject) bool {
	if !q.uninitialized && (len(o.GetPending()) > 0 || o.GetResult() != nil) {
		return false
	}
	if !q.fields.Matches(fields.Set{"metadata.name": o.GetKey().GetName(), "metadata.namespace": o.GetKey().GetNamespace()}) {
		return false
	}
	return q.labels.Empty() || q.labels.Matches(labels.Set(labelsOf(o.GetObject().GetRaw())))
}

// details names the object or resource of the path, as errors of Kubernetes do.
func (t target) details() *metav1.StatusDetails {
	return &metav1.StatusDetails{Name: t.name, Group: t.resource.GetGroup(), Kind: t.resource.GetResource()}
}
