package telemetry

import (
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
)

// profilesPath is where Go's tools look for profiles.
const profilesPath = "/debug/pprof/"

// profiles are the profiles of net/http/pprof but for the command line. The runtime makes one CPU profile and one trace at
// a time.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(profilesPath, pprof.Index)
	mux.HandleFunc(profilesPath+"cmdline", http.NotFound)
	mux.HandleFunc(profilesPath+"profile", pprof.Profile)
	mux.HandleFunc(profilesPath+"symbol", pprof.Symbol)
	mux.HandleFunc(profilesPath+"trace", pprof.Trace)
	return mux
}

// localOnly refuses callers on other machines, since the admin port asks for no identity. A Host that is no loopback address is refused too:
// a page in a browser on this machine could otherwise read profiles through a name that it controls (DNS rebinding).
func localOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.RemoteAddr) || !loopback(r.Host) {
			plain(w, http.StatusForbidden,
				"profiles are for this machine alone: ask 127.0.0.1 here, or through `kubectl port-forward` to the Pod or `ssh -L`\n")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// loopback reports whether an address, perhaps with a port, can be reached from this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
