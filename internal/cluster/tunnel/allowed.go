package tunnel

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// allowed reports whether package cluster makes a request: discovery, reads of namespaces, CustomResourceDefinitions and
// APIServices, and SubjectAccessReviews. Nothing else of the cluster can be reached through a bridge, whatever its
// credentials allow.
func allowed(r *http.Request) bool {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path != path.Clean("/"+r.URL.Path), r.URL.RawPath != "":
		return false // written in another way than client-go does
	case r.Method == http.MethodPost:
		return r.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	case r.Method != http.MethodGet:
		return false
	}
	return discovery(segments) || readable(segments)
}

// discovery reports whether a path is /version, /api, /api/v1, /apis, /apis/GROUP or /apis/GROUP/VERSION.
func discovery(segments []string) bool {
	switch segments[0] {
	case "version":
		return len(segments) == 1
	case "api":
		return len(segments) <= 2
	case "apis":
		return len(segments) <= 3
	}
	return false
}

// readable reports whether a path names a list, or an object, of the resources that dispatchers read.
func readable(segments []string) bool {
	for _, resource := range [][]string{
		{"api", "v1", "namespaces"},
		{"apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions"},
		{"apis", "apiregistration.k8s.io", "v1", "apiservices"},
	} {
		if n := len(resource); len(segments) >= n && len(segments) <= n+1 && slices.Equal(segments[:n], resource) {
			return true
		}
	}
	return false
}
