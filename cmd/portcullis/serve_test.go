package main

import "testing"

func TestFilesOfTheHostsListenerAreFilledUp(t *testing.T) {
	bridge := tlsFiles{cert: "tls.crt", key: "tls.key", ca: "ca.crt"}
	for name, tc := range map[string]struct{ hosts, want tlsFiles }{
		"nothing given: the bridge's":                    {tlsFiles{}, bridge},
		"everything given: nothing of the bridge's":      {tlsFiles{"h.crt", "h.key", "h.ca"}, tlsFiles{"h.crt", "h.key", "h.ca"}},
		"other authorities: the bridge's certificate":    {tlsFiles{ca: "h.ca"}, tlsFiles{"tls.crt", "tls.key", "h.ca"}},
		"another certificate: the bridge's authorities":  {tlsFiles{cert: "h.crt", key: "h.key"}, tlsFiles{"h.crt", "h.key", "ca.crt"}},
		"a certificate without its key is not completed": {tlsFiles{cert: "h.crt"}, tlsFiles{"h.crt", "", "ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.hosts.orElse(bridge); got != tc.want {
				t.Errorf("files = %+v, want %+v", got, tc.want)
			}
		})
	}
}
