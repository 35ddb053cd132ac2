// Package answers reads the answers of a cluster's API server. They count as hostile, as reviews do: the owner of a cluster chooses every
// byte. A [Transport] asks for JSON alone and refuses all else, bounds bytes, depth and number of the parts of each answer while it is
// read, books them to the cluster, follows no redirect, and quotes of an error its code, its reason and the start of its message. [Items] reads a
// list item by item.
//
// Every client of a cluster's API server uses a Transport, in a dispatcher, in a bridge and in a command. The operator who wrote the Cluster, or the kubeconfig
// of a command, chose the address.
package answers

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
)

// Bounds of one answer. A watch that has sent more than MaxListBytes begins again with a list.
const (
	// MaxBytes bounds an answer that is read whole, unpacked, in bytes. The discovery of 2,000 CustomResourceDefinitions has about 3 MiB.
	MaxBytes = 32 << 20
	// MaxObjectBytes bounds an answer with one object, such as a SubjectAccessReview or the metadata of a namespace, in bytes: as much as an API server takes.
	MaxObjectBytes = 3 << 20
	// MaxParts bounds the objects and arrays of such an answer.
	MaxParts = 250_000
	// MaxListBytes bounds a list that is read item by item, and a watch, in bytes: a list of 2,000 CustomResourceDefinitions has about 100 MiB.
	MaxListBytes = 256 << 20
	// MaxItems bounds the items of a list.
	MaxItems = 100_000
	// MaxItemBytes bounds an item of a list and an event of a watch, in bytes: an object of etcd has at most 1.5 MiB, and is larger as JSON.
	MaxItemBytes = 8 << 20
	// MaxItemParts bounds the objects and arrays of one: each property of a schema is an object.
	MaxItemParts = 50_000
	// MaxDepth bounds how deep objects and arrays lie in each other: a schema of 100 nested properties has 200.
	MaxDepth = 256
	// MaxContinueBytes bounds the token for the next part of a list, in bytes: it has the key of the last object.
	MaxContinueBytes = 4 << 10
	// MaxErrorBytes bounds an error, in bytes: of a longer one the code remains.
	MaxErrorBytes = 64 << 10
)

// mediaType is the only accepted media type: decoders of protobuf and CBOR do not bound the depth.
const mediaType = "application/json"

// Transport is a way to the API server of a cluster.
type Transport struct {
	http.RoundTripper

	// ItemByItem is for lists that [Items] reads: MaxListBytes, MaxItems, MaxItemBytes and MaxItemParts are the bounds.
	ItemByItem bool
	// WholeErrors keeps the messages of errors in one line, without quotation, within MaxErrorBytes: for commands, whose user reads them, and joins, which
	// read in them which webhook an API server has called.
	WholeErrors bool
	// Memory is where the answers are booked, to Cluster, while they are read; nil books nothing. A request with a reservation of its own
	// is booked there: see [Booked].
	Memory  *memory.Ledger
	Cluster string
	// Work has the parts of long answers read one at a time, and Cluster rest in between; nil has them read when they come. Answers of at most
	// readAtOnce bytes never wait, so that reviews do not wait for an honest API server longer than it takes.
	Work *turns.Queue
}

// readAtOnce is how much of an answer is read without a turn, in bytes: more than the metadata of a namespace or a SubjectAccessReview has.
const readAtOnce = 64 << 10

// bookedKey is the key of a reservation in a context.
type bookedKey struct{}

// Booked has the answers to requests of a context booked to a reservation, which its owner releases when it has decoded them.
func Booked(ctx context.Context, r *memory.Reservation) context.Context {
	return context.WithValue(ctx, bookedKey{}, r)
}

// reservation is where an answer is booked, and the end of that.
func (t Transport) reservation(ctx context.Context) (r *memory.Reservation, release func(), err error) {
	if given, ok := ctx.Value(bookedKey{}).(*memory.Reservation); ok || t.Memory == nil {
		return given, func() {}, nil
	}
	r, err = t.Memory.Reserve(t.Cluster, 0)
	return r, r.Release, err
}

// Bound has all clients that are made of a configuration read answers over such a Transport. Credentials are added above it, so that none is sent elsewhere.
func (t Transport) Bound(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		bound := t
		bound.RoundTripper = next
		return bound
	})
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
		err = fmt.Errorf("the API server answered HTTP %d, and redirects are not followed: write the address that answers into the kubeconfig", code)
	case code < http.StatusOK:
		err = fmt.Errorf("the API server answered HTTP %d to a request for JSON", code)
	case code > http.StatusPartialContent:
		return t.refusal(response), nil
	case response.ContentLength != 0 && !isJSON(response.Header):
		err = fmt.Errorf("the API server answered with the content type %.64q, and %s alone is read: is there an API server behind the address?",
			response.Header.Get("Content-Type"), mediaType)
	default:
		err = t.bound(r, response)
	}
	if err != nil {
		response.Body.Close()
		return nil, err
	}
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
