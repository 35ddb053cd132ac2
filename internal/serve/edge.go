package serve

import (
	"net/http"
	"strings"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/config/gateway"
)

// edge is what the listener for API servers serves: reviews, and beside them ConfigService as JSON where there is a store.
type edge struct {
	*bridge.Bridge

	control *controlPlane
}

// ServeHTTP is part of http.Handler.
func (e edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.control.gateway != nil && strings.HasPrefix(r.URL.Path, gateway.Prefix) {
		e.control.gateway.ServeHTTP(w, r)
		return
	}
	e.Bridge.ServeHTTP(w, r)
}

// Drain begins the stop. Streams of operators end first, on both listeners: nothing has to wait for them.
func (e edge) Drain() {
	if e.control.service != nil {
		e.control.service.Drain()
	}
	e.Bridge.Drain()
}
