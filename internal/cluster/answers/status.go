package answers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// kindScan recognises an object of kind Status while its bytes come, at the level of its members. An escape in the name of a member or in a kind
// counts as one too: no API server writes any.
type kindScan struct {
	token  []byte // the start of the last text
	odd    bool   // it has an escape
	value  bool   // the value of a member comes
	kind   bool   // of the member kind
	status bool   // it is a Status
}

// scan takes a byte of that level. text and escaped tell whether it is inside of a text, and behind a backslash.
func (k *kindScan) scan(c byte, text, escaped bool) {
	switch {
	case escaped:
	case text && c == '"' && k.value:
		k.status = k.status || k.kind && (k.odd || string(k.token) == "Status")
	case text && c == '"':
		k.kind = k.odd || string(k.token) == "kind"
	case text && c == '\\':
		k.odd = true
	case text:
		if len(k.token) < len("Status")+1 {
			k.token = append(k.token, c)
		}
	case c == '"':
		k.token, k.odd = k.token[:0], false
	case c == ':':
		k.value = true
	case c == ',':
		k.value = false
	}
}

// shortened shortens the body of an answer without an HTTP error if it is the Status of a failure, as the body of an HTTP error: client-go makes
// an error of either. It reads the start of the answer.
func shortened(r *http.Response, body *boundedBody) error {
	start, err := io.ReadAll(io.LimitReader(body, MaxErrorBytes+1))
	if err != nil {
		return err
	}
	rest := io.Reader(body)
	if body.kind.status && len(start) <= MaxErrorBytes { // a longer one is an error of Read
		rest = http.NoBody
		var said metav1.Status
		if json.Unmarshal(start, &said) == nil && said.Status != metav1.StatusSuccess {
			start, _ = json.Marshal(trimmed(&said, r.StatusCode)) //nolint:errchkjson // strings and numbers alone
			r.ContentLength = int64(len(start))
		}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), body}
	return nil
}

// Shortened is a watch whose events of errors are as short as errors are. It ends with w, or when it is stopped.
func Shortened(w watch.Interface) watch.Interface {
	s := &shortWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	go s.pass()
	return s
}

type shortWatch struct {
	watch.Interface

	events  chan watch.Event
	stopped chan struct{}
	stop    func()
}

// ResultChan implements [watch.Interface].
func (s *shortWatch) ResultChan() <-chan watch.Event { return s.events }

// Stop implements [watch.Interface].
func (s *shortWatch) Stop() {
	s.stop()
	s.Interface.Stop()
}

// pass passes the events on until the watch below ends, or this one is stopped.
func (s *shortWatch) pass() {
	defer close(s.events)
	for e := range s.Interface.ResultChan() {
		select {
		case s.events <- short(e):
		case <-s.stopped:
			return
		}
	}
}

// short is an event as short as an error.
func short(e watch.Event) watch.Event {
	if e.Type != watch.Error {
		return e
	}
	said := metav1.Status{Code: http.StatusInternalServerError}
	if s := apierrors.APIStatus(nil); errors.As(apierrors.FromObject(e.Object), &s) { // of another object nothing is quoted
		said = s.Status()
	}
	e.Object = trimmed(&said, int(said.Code))
	return e
}
