package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/test/bench/https"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// webhooks is an ordinary webhook for all hooks, which parses nothing: only the rest is measured. It is served over HTTPS for the
// dispatcher, or over a unix socket for hosts.
type webhooks struct {
	calls     *atomic.Int64
	authority []byte

	server   *https.Server    // nil for hosts
	outbound *outbound.Client // likewise

	directory string // of the socket; empty for the dispatcher
	socket    *http.Server
	served    chan error
	remote    *remote.Webhook
}

func startWebhooks(ctx context.Context, m *Mesh, kind Hosts) (*webhooks, error) {
	w := &webhooks{calls: &m.calls, authority: m.keys.Authority()}
	var err error
	if kind == Webhooks {
		w.server, err = https.Serve(ctx, m.keys, w)
		return w, err
	}
	if w.directory, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	at := remote.Address{URL: url.URL{Scheme: "http", Host: "localhost", Path: "/"}, Socket: filepath.Join(w.directory, "s")}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", at.Socket)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.directory))
	}
	w.socket = &http.Server{Handler: w, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	w.served = make(chan error, 1)
	go func() { w.served <- w.socket.Serve(listener) }() // Ends with close.
	w.remote, err = remote.New(remote.Options{Address: at, MaxConnections: maxOutstanding})
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// client says where a hook is for the dispatcher.
func (w *webhooks) client(hook int) admissionregistrationv1.WebhookClientConfig {
	at := w.server.URL() + "/" + scenario.Hook(hook)
	return admissionregistrationv1.WebhookClientConfig{URL: &at, CABundle: w.authority}
}

// adapted is the handler of a host.
func (w *webhooks) adapted(hook string) hostsdk.Handler {
	return adapt.Forward(w.remote, &url.URL{Scheme: "http", Host: "localhost", Path: "/" + hook}, adapt.Options{})
}

// ServeHTTP implements http.Handler.
func (w *webhooks) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	body, err := https.ReadAll(r)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	w.calls.Add(1)
	_, rest, _ := bytes.Cut(body, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(rest, []byte(`"`))
	answer.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(answer, fmt.Sprintf(
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%s","allowed":true}}`, uid))
}

func (w *webhooks) close() error {
	if w.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) //nolint:forbidigo // the end has no other
		defer cancel()
		var err error
		if w.outbound != nil {
			err = w.outbound.Close(ctx)
		}
		return errors.Join(err, w.server.Close())
	}
	if w.remote != nil {
		w.remote.CloseIdleConnections()
	}
	err := w.socket.Close()
	if ended := <-w.served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, os.RemoveAll(w.directory))
}
