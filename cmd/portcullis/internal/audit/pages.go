package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// Bounds of the lists of a cluster.
const (
	// DefaultPageSize is how many objects an API server is asked for at a time, as by kubectl, and MaxPageSize is the most.
	DefaultPageSize = 500
	MaxPageSize     = 5000
	// MaxPageBytes bounds the objects of a page, in bytes. A larger page is asked for again with half as many objects.
	MaxPageBytes = 32 << 20
	// MaxPages bounds the pages of an audit: an API server could go on without end.
	MaxPages = 1_000_000
	// maxTrailing bounds the bytes behind a list.
	maxTrailing = 1 << 10
	// maxRestarts bounds how often a list begins again.
	maxRestarts = 3
)

// list is a list of a cluster: a resource, in one namespace or in all.
type list struct {
	Resource

	namespace string
}

// String is the resource and the namespace of the list, by which a state that was kept finds it again.
func (l list) String() string {
	if l.namespace == "" {
		return l.Resource.String()
	}
	return l.Resource.String() + " in " + l.namespace
}

func (l list) path() []string {
	path := []string{"apis", l.Group, l.Version}
	if l.Group == "" {
		path = []string{"api", l.Version}
	}
	if l.namespace != "" {
		path = append(path, "namespaces", l.namespace)
	}
	return append(path, l.GroupVersionResource.Resource)
}

// position is a place in a list.
type position struct {
	// Continue is the token for the next page; empty at the beginning.
	Continue string `json:"continue,omitempty"`
	// Size is how many objects are asked for at a time, if pages were too large; 0 for as many as wanted.
	Size int `json:"size,omitempty"`
}

// page is a part of a list.
type page struct {
	items [][]byte
	next  position // without a token, the list is at its end
	// renewed: the earlier part of the list is of an older state of the cluster. restarted: it is the first page once more.
	renewed, restarted bool
}

// errPageTooLarge: the objects of a page have more than MaxPageBytes.
var errPageTooLarge = fmt.Errorf("its objects have more than %d bytes", MaxPageBytes)

// walk reads a list from a position on, and calls each with every page. When the API server no longer has the state of the cluster in which the list began,
// the list goes on with a newer state, or begins again.
func (c *Cluster) walk(ctx context.Context, l list, at position, size int, each func(page) error) error {
	var next page
	for restarts := 0; ; {
		limit := size
		if at.Size > 0 {
			limit = min(size, at.Size)
		}
		p, err := c.page(ctx, l, at.Continue, limit)
		switch status := apierrors.APIStatus(nil); {
		case errors.Is(err, errPageTooLarge) && limit > 1:
			at.Size = limit / 2
			continue
		case err != nil && at.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)):
			if restarts++; restarts > maxRestarts {
				return fmt.Errorf("the list has begun again %d times: %w", maxRestarts, err)
			}
			token := ""
			if errors.As(err, &status) {
				s := status.Status()
				token = s.Continue
			}
			at.Continue, next.renewed, next.restarted = token, true, token == ""
			continue
		case err != nil:
			return err
		}
		p.next.Size, p.renewed, p.restarted = at.Size, next.renewed, next.restarted
		at, next = p.next, page{}
		if err := each(p); err != nil || at.Continue == "" {
			return err
		}
	}
}

// page reads one page.
func (c *Cluster) page(ctx context.Context, l list, from string, limit int) (p page, err error) {
	request := c.lists.Get().AbsPath(l.path()...).SetHeader("Accept", runtime.ContentTypeJSON).Param("limit", strconv.Itoa(limit))
	if from != "" {
		request = request.Param("continue", from)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return p, withRule(err, l.GroupVersionResource.GroupResource(), "list")
	}
	defer body.Close()
	total := 0
	var meta metav1.ListMeta
	meta, err = answers.Page(body, func(raw []byte) error {
		if total += len(raw); total > MaxPageBytes {
			return errPageTooLarge
		}
		p.items = append(p.items, bytes.Clone(raw))
		return nil
	})
	if err != nil {
		return page{}, err
	}
	_, err = io.CopyN(io.Discard, body, maxTrailing) // to the end: an API server logs an answer that is not read
	if p.next.Continue = meta.Continue; errors.Is(err, io.EOF) {
		err = nil
	}
	return p, err
}

// withRule adds the rule of RBAC that grants a permission to an error if the permission is missing.
func withRule(err error, of schema.GroupResource, verbs string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w: give the user of the kubeconfig a ClusterRole with the rule {apiGroups: [%q], resources: [%s], verbs: [%s]}",
		err, of.Group, of.Resource, verbs)
}

// ofList reports whether an error is about one list, so that the others can still be read.
func ofList(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return errors.Is(err, errPageTooLarge)
	}
	s := status.Status()
	return s.Code >= http.StatusBadRequest && s.Code < http.StatusInternalServerError && s.Code != http.StatusUnauthorized && s.Code != http.StatusTooManyRequests
}
