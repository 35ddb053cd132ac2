// Package answers reads what the API server of a cluster answers, which counts as hostile as a review does: the owner of a cluster chooses every
// byte of it. A [Transport] asks for JSON alone and refuses all else, bounds bytes, depth and number of the parts of each answer while it is
// read, follows no redirect, and quotes of an error its code, its reason and the start of its message.
//
// Every client of a cluster's API server goes over one. The address of an API server is the operator's own, who wrote the Cluster.
package answers

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// Bounds of one answer. A watch that has sent more than MaxBytes begins again with a list.
const (
	// MaxBytes bounds an answer, unpacked, in bytes: a list of 2,000 CustomResourceDefinitions has about 100 MiB.
	MaxBytes = 256 << 20
	// MaxEventBytes bounds one event of a watch, in bytes: an object of etcd has at most 1.5 MiB, and is larger as JSON.
	MaxEventBytes = 8 << 20
	// MaxDepth bounds how deep objects and arrays lie in each other: a schema of 100 nested properties has 200.
	MaxDepth = 256
	// MaxParts bounds the objects and arrays of a list or an event: each takes up to a kilobyte once it is decoded.
	MaxParts = 4 << 20
	// MaxErrorBytes bounds an error, in bytes: of a longer one the code remains.
	MaxErrorBytes = 64 << 10
)

// mediaType is the only one that is read: decoders of protobuf and CBOR have no bound of depth.
const mediaType = "application/json"

// Transport is a way to the API server of a cluster.
type Transport struct {
	http.RoundTripper

	// MaxBytes and MaxParts are in the place of the constants; 0 means these.
	MaxBytes int64
	MaxParts int
}

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", acceptable(r.Header.Values("Accept")))
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Header.Del("Warning") // client-go logs each
	switch code := response.StatusCode; {
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		response.Body.Close()
		return nil, fmt.Errorf("the API server answered HTTP %d, and redirects are not followed: write the address that answers into the kubeconfig", code)
	case code < http.StatusOK:
		response.Body.Close()
		return nil, fmt.Errorf("the API server answered HTTP %d to a request for JSON", code)
	case code > http.StatusPartialContent:
		return refusal(response), nil
	case response.ContentLength != 0 && !isJSON(response.Header):
		response.Body.Close()
		return nil, fmt.Errorf("the API server answered with the content type %.64q, and %s alone is read: is there an API server behind the address?",
			response.Header.Get("Content-Type"), mediaType)
	}
	response.Body = t.bounded(response.Body, r.URL.Query().Has("watch"))
	return response, nil
}

// WrappedRoundTripper has client-go find the transport below, whose idle connections it closes.
func (t Transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// acceptable is the part of an Accept header that asks for JSON.
func acceptable(values []string) string {
	var clauses []string
	for clause := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if isMediaType(clause) {
			clauses = append(clauses, strings.TrimSpace(clause))
		}
	}
	if len(clauses) == 0 {
		return mediaType
	}
	return strings.Join(clauses, ",")
}

func isJSON(h http.Header) bool { return isMediaType(h.Get("Content-Type")) }

func isMediaType(text string) bool {
	found, _, err := mime.ParseMediaType(text)
	return err == nil && found == mediaType
}
