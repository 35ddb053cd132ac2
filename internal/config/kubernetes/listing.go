package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Limits of a source: of all ConfigMaps together, and of the custom resources of all kinds together.
const (
	// MaxObjects bounds the objects of a source.
	MaxObjects = 20_000
	// MaxBytes bounds their documents, in bytes, with objectBytes for each ConfigMap and custom resource.
	MaxBytes = 64 << 20
	// MaxListed bounds the ConfigMaps or custom resources of one listing. A page that others follow counts as a full one.
	MaxListed = 100_000
	// MaxListedBytes bounds the answers of one listing, in bytes: with managed fields, statuses, and keys that are no documents.
	MaxListedBytes = 512 << 20
	// pageSize is how many are asked for at a time, and firstPage at first.
	pageSize  = 500
	firstPage = 16
	// maxPageBytes bounds a page, in bytes. Fewer are asked for where it is larger. It has at least firstPage items of the API server.
	maxPageBytes = 64 << 20
	// objectBytes is the memory of an object beside its document, in bytes.
	objectBytes = 512
)

// bounds are the limits of a source: of the parts that count, and of a listing.
type bounds struct {
	kept        size
	listed      int
	listedBytes int64
	page        int64
}

func defaultBounds() bounds {
	return bounds{size{MaxObjects, MaxBytes}, MaxListed, MaxListedBytes, maxPageBytes}
}

// Clients ask the API server that holds configuration, over an [answers.Transport]. They share their connections, and may be used concurrently.
type Clients struct {
	// Config has the address and the limit of requests of each client, and HTTP makes the requests.
	Config *rest.Config
	HTTP   *http.Client
	// Lists reads lists item by item.
	Lists rest.Interface
}

// NewClients returns clients of an API server. It asks nothing.
func NewClients(config *rest.Config) (*Clients, error) {
	over, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	answers.LimitBuffers(over)
	of := func(over answers.Transport) *http.Client {
		return &http.Client{Transport: over, Timeout: config.Timeout}
	}
	c := &Clients{Config: config, HTTP: of(answers.Transport{RoundTripper: over})}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion() // of errors
	c.Lists, err = rest.UnversionedRESTClientForConfigAndClient(config, of(answers.Transport{RoundTripper: over, ItemByItem: true}))
	return c, err
}

// tooMuchError is the error of a listing beyond its bounds.
type tooMuchError struct{ text string }

func (e *tooMuchError) Error() string { return e.text }

// reading is one listing of a source. It is for one goroutine.
type reading struct {
	lists  rest.Interface
	bounds bounds

	listed int
	bytes  int64
	page   int64 // bytes of this page
}

// errLargePage is the error of a page of more than maxPageBytes.
var errLargePage = errors.New("a page of the list is too large")

// pages lists everything at a path, a page at a time, as of one moment: the returned resource version. item gets the JSON of each item, which it may not keep.
func (r *reading) pages(ctx context.Context, path string, options metav1.ListOptions, item func(raw []byte) error) (resourceVersion string, err error) {
	options.Limit = firstPage
	for known := 0; ; { // items behind the token that were read
		before, n := r.listed, 0
		page, err := r.one(ctx, path, options, func(raw []byte) error {
			if n++; n <= known {
				return nil
			}
			return r.count(raw, item)
		})
		switch {
		case errors.Is(err, errLargePage) && options.Limit > 1: // the token has the moment: the same items come again
			options.Limit, known = max(options.Limit/2, 1), max(known, n)
			continue
		case err != nil:
			return "", err
		case page.Continue == "":
			return page.ResourceVersion, nil
		}
		r.listed = max(r.listed, before+int(options.Limit)) // else empty pages could follow each other without end
		if err := r.check(); err != nil {
			return "", err
		}
		if r.page < r.bounds.page/4 {
			options.Limit = min(2*options.Limit, pageSize)
		}
		known = max(known-n, 0)
		options.Continue, options.ResourceVersion, options.ResourceVersionMatch = page.Continue, "", "" // the token has it
	}
}

// count counts an item before it is read.
func (r *reading) count(raw []byte, item func(raw []byte) error) error {
	r.listed++
	if err := r.check(); err != nil {
		return err
	}
	return item(raw)
}

// one reads one page.
func (r *reading) one(ctx context.Context, path string, options metav1.ListOptions, item func(raw []byte) error) (metav1.ListMeta, error) {
	r.page = 0
	request := r.lists.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON)
	body, err := request.SpecificallyVersionedParams(&options, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer body.Close()
	return answers.Page(&counted{body, r, options.Continue != ""}, item)
}

// check returns an error beyond the bounds.
func (r *reading) check() error {
	if r.listed > r.bounds.listed || r.bytes > r.bounds.listedBytes {
		return &tooMuchError{fmt.Sprintf("the API server lists more than %d objects or %d bytes: remove some", r.bounds.listed, r.bounds.listedBytes)}
	}
	return nil
}

// counted counts the bytes of a page.
type counted struct {
	io.Reader

	to    *reading
	again bool // it can be asked for again
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.to.bytes += int64(n)
	if c.to.page += int64(n); c.again && c.to.page > c.to.bounds.page {
		return 0, errLargePage
	}
	if over := c.to.check(); over != nil {
		return 0, over
	}
	return n, err
}

// frozen is the listing in the place of a listing beyond the bounds: the objects in force stay as they are. Before the first listing it is an error,
// since there may be no objects in force.
func frozen(first bool, err error) (config.Listing, error) {
	over := (*tooMuchError)(nil)
	if first || !errors.As(err, &over) {
		return config.Listing{}, err
	}
	return config.Listing{Revision: over.Error(), Problems: config.Problems{{
		Severity: match.SeverityError, Code: config.CodeLimit, Message: err.Error() + ": all objects stay as they are",
	}}}, nil
}

// watchAll calls notify once it watches, and for each change, until a watch ends or ctx does.
func watchAll(ctx context.Context, notify func(), begin ...func(context.Context) (watch.Interface, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	var begun []watch.Interface
	defer func() {
		for _, w := range begun {
			w.Stop()
		}
	}()
	for _, one := range begin {
		w, err := one(ctx)
		if err != nil {
			return err
		}
		begun = append(begun, w)
	}
	notify() // for changes from before
	changed, ended := make(chan struct{}), make(chan struct{})
	for _, w := range begun {
		g.Go(func() error { return forward(ctx, w, changed) })
	}
	go func() {
		defer close(ended)
		_ = g.Wait() // only whether
	}()
	for {
		select {
		case <-changed:
			notify()
		case <-ended:
			return nil
		}
	}
}

// errEnded is the error of a watch that has ended, so that the others end too.
var errEnded = fmt.Errorf("the watch has ended")

// forward tells of each event of a watch until that ends, or ctx does.
func forward(ctx context.Context, w watch.Interface, changed chan<- struct{}) error {
	for {
		select {
		case _, ok := <-w.ResultChan():
			if !ok {
				return errEnded
			}
		case <-ctx.Done():
			return nil
		}
		select {
		case changed <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
	}
}
