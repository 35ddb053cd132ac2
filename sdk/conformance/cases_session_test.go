package conformance_test

import (
	"crypto/tls"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// sessionCases are about how a host comes: Hello, Welcome and readiness.
func sessionCases() []testCase {
	return []testCase{{
		name:    "hello",
		asks:    "A host opens each session with Hello: who it is, what it offers, and how much it takes.",
		why:     "a dispatcher cannot grant hooks, nor bound what it sends",
		section: "hello-and-welcome",
		play: func(s *stage) {
			_, _, at := s.hostOf(settings{
				Zone: "z1", Clusters: []string{"c1", "c2"}, Validate: []string{"v.example.com", "both.example.com"},
				Mutate: []string{"m.example.com", "both.example.com"}, Speculate: []string{"m.example.com"},
			})
			h := at.hello
			equal(s, "host", h.GetHost(), "conformance")
			equal(s, "zone", h.GetZone(), "z1")
			equal(s, "clusters are right", slices.Equal(h.GetClusters(), []string{"c1", "c2"}), true)
			equal(s, "protocol_min", h.GetProtocolMin(), 1)
			equal(s, "protocol_max", h.GetProtocolMax(), 1)
			equal(s, "max_outstanding", h.GetMaxOutstanding(), 64)
			equal(s, "max_frame_bytes", h.GetMaxFrameBytes(), 16<<20)
			equal(s, "join_session", h.GetJoinSession(), "")
			for _, capability := range []string{"batches", "chunks"} {
				equal(s, "Hello names "+capability, slices.Contains(h.GetCapabilities(), capability), true)
			}
			equal(s, "Hello has an instance and an SDK with a version", h.GetInstance() != "" && h.GetSdk() != "" && h.GetSdkVersion() != "", true)
			offers := map[string]bool{}
			for _, o := range h.GetHooks() {
				offers[o.GetName()+" "+o.GetStage().String()] = o.GetSpeculate()
			}
			want := map[string]bool{
				"v.example.com STAGE_VALIDATE": false, "both.example.com STAGE_VALIDATE": false, "m.example.com STAGE_MUTATE": true, "both.example.com STAGE_MUTATE": false,
			}
			for offer, speculate := range want {
				got, ok := offers[offer]
				equal(s, "the host offers "+offer, ok, true)
				equal(s, "speculate of "+offer, got, speculate)
			}
			equal(s, "number of offers", len(h.GetHooks()), len(want))
		},
	}, {
		name:    "hello-limits",
		asks:    "A host announces the limits and the instance that its author has set.",
		why:     "the mesh sends more than the process can hold, or gives up one replica for another",
		section: "hello-and-welcome",
		play: func(s *stage) {
			_, at := s.host(settings{Instance: "i-1", MaxOutstanding: 7, MaxFrameBytes: 1 << 20})
			equal(s, "instance", at.hello.GetInstance(), "i-1")
			equal(s, "max_outstanding", at.hello.GetMaxOutstanding(), 7)
			equal(s, "max_frame_bytes", at.hello.GetMaxFrameBytes(), 1<<20)
		},
	}, {
		name:    "instance",
		asks:    "An instance is new at each start of a process, and stays for all its sessions.",
		why:     "a replica takes over the sessions of another one, or its own old session lives on beside the new one",
		section: "hello-and-welcome",
		play: func(s *stage) {
			d, _, first := s.hostOf(settings{})
			first.finish(codes.Unavailable, "the dispatcher stops")
			equal(s, "the instance of the next session", d.accept().hello.GetInstance(), first.hello.GetInstance())
			other := s.start(settings{Dispatchers: []string{d.addr}})
			equal(s, "another process has the same instance", d.accept().hello.GetInstance() == first.hello.GetInstance(), false)
			other.happened("ready", "", 1)
		},
	}, {
		name:    "ready-when-in-rotation",
		asks:    "A host is ready once each of its hooks is in rotation, as Welcome or HookState says.",
		why:     "a rollout goes on past a replica that the mesh does not ask",
		section: "hook-states-and-readiness",
		play: func(s *stage) {
			p, at := s.host(settings{}, func(w *hostv1.Welcome) {
				w.Hooks[0].State, w.Hooks[1].State = hostv1.State_STATE_PENDING, hostv1.State_STATE_NOT_AUTHORIZED
			})
			at.works()
			equal(s, "number of ready events", count(p.events.all(), "ready", ""), 0)
			at.hookState(state(at.hello.GetHooks()[0], hostv1.State_STATE_IN_ROTATION))
			at.works()
			equal(s, "number of ready events", count(p.events.all(), "ready", ""), 0)
			at.hookState(state(at.hello.GetHooks()[1], hostv1.State_STATE_IN_ROTATION))
			p.happened("ready", "", 1)
			at.hookState(state(at.hello.GetHooks()[1], hostv1.State_STATE_REMOVED))
			at.hookState(state(at.hello.GetHooks()[1], hostv1.State_STATE_IN_ROTATION))
			at.works()
			equal(s, "number of ready events", count(p.events.all(), "ready", ""), 1)
		},
	}, {
		name:    "probe",
		asks:    "A host answers a Probe by the readiness callback of the hook, with the author's reason; a hook without one is ready.",
		why:     "a new hook is asked before its cache is filled, or never",
		section: "hook-states-and-readiness",
		play: func(s *stage) {
			p, at := s.host(settings{Unready: []string{mutating}})
			equal(s, "the hook without a callback is ready", at.probe(validating).GetReady(), true)
			result := at.probe(mutating)
			equal(s, "the hook with a callback is ready", result.GetReady(), false)
			equal(s, "message", result.GetMessage(), "not ready")
			equal(s, "a hook that the host does not offer is ready", at.probe("x.example.com").GetReady(), false)
			p.do(map[string]string{"do": "ready", "hook": mutating})
			s.until("the hook is ready", func() bool { return at.probe(mutating).GetReady() })
			equal(s, "message", at.probe(mutating).GetMessage(), "")
		},
	}}
}

// identityCases are about dialling: who is who, and how often.
func identityCases() []testCase {
	refused := func(code codes.Code) func(s *stage) {
		return func(s *stage) {
			const refusals = 3
			d := s.dispatcher(scriptedOptions{refuse: func(n int) error {
				if n > refusals {
					return nil
				}
				return status.Error(code, "not you")
			}})
			s.start(settings{Dispatchers: []string{d.addr}})
			d.accept().works() // It is let in at last.
			dials := d.dials.all()
			var pauses []time.Duration
			for i := range refusals {
				pauses = append(pauses, dials[i+1].Sub(dials[i]))
			}
			if slices.Min(pauses) < 95*time.Millisecond {
				s.Errorf("the pauses between dials are %v, want 100 ms at least", pauses)
			}
			if slices.Max(pauses)-slices.Min(pauses) < time.Millisecond {
				s.Errorf("the pauses between dials are %v, want random ones", pauses)
			}
		}
	}
	return []testCase{{
		name:    "refused-unauthenticated",
		asks:    "A host that is refused with UNAUTHENTICATED dials again, with random pauses of 100 ms at least.",
		why:     "a certificate that comes late needs a restart, or refused hosts keep a dispatcher busy",
		section: "dialling-again",
		play:    refused(codes.Unauthenticated),
	}, {
		name:    "refused-permission-denied",
		asks:    "A host that is refused with PERMISSION_DENIED dials again, with random pauses of 100 ms at least.",
		why:     "a HookRoute that comes after its host needs a restart",
		section: "dialling-again",
		play:    refused(codes.PermissionDenied),
	}, {
		name:    "certificate-replaced",
		asks:    "A host reads its certificate and key at each dial.",
		why:     "a rotated certificate needs a restart, and an expired one ends the host",
		section: "transport-and-identity",
		play: func(s *stage) {
			t, shift := s.trust(), &shifting{}
			shift.set(t.server(serverName))
			d := s.dispatcher(scriptedOptions{creds: shift.creds()})
			s.start(settings{Dispatchers: []string{d.addr}, ServerName: serverName, TLS: t.files("spiffe://conformance.example/one")})
			first := d.accept()
			equal(s, "identity", first.identity, "spiffe://conformance.example/one")
			t.files("spiffe://conformance.example/two")
			first.works() // A session that stands is not disturbed.
			first.finish(codes.Unauthenticated, "the certificate has expired")
			second := d.accept()
			equal(s, "identity", second.identity, "spiffe://conformance.example/two")
			second.works()
		},
	}, {
		name:    "authority-replaced",
		asks:    "A host reads the authorities that it trusts at each dial.",
		why:     "hosts have to be restarted when the authority of a mesh changes",
		section: "transport-and-identity",
		play: func(s *stage) {
			t, shift := s.trust(), &shifting{}
			shift.set(t.server(serverName))
			d := s.dispatcher(scriptedOptions{creds: shift.creds()})
			s.start(settings{Dispatchers: []string{d.addr}, ServerName: serverName, TLS: t.files(hostIdentity)})
			first := d.accept()
			next := s.trust()
			shift.set(next.server(serverName))
			next.files(hostIdentity)
			first.finish(codes.Unavailable, "the dispatcher stops")
			d.accept().works()
		},
	}, {
		name:    "wrong-server-name",
		asks:    "A host says nothing to a dispatcher whose certificate carries another name.",
		why:     "a program with any certificate of the mesh can read and judge reviews",
		section: "transport-and-identity",
		play: func(s *stage) {
			s.trust().distrusted(func(t *trust) *tls.Config { return t.server("other.conformance.example") })
		},
	}, {
		name:    "wrong-authority",
		asks:    "A host says nothing to a dispatcher whose certificate comes from an authority that it does not trust.",
		why:     "a program in the way of a connection can judge reviews",
		section: "transport-and-identity",
		play: func(s *stage) {
			s.trust().distrusted(func(t *trust) *tls.Config {
				pair := must[certs.Pair](s)(s.trust().authority.Issue(certs.Spec{DNSNames: []string{serverName}, Server: true}))
				cert := must[tls.Certificate](s)(pair.TLS())
				return t.server(serverName, func(c *tls.Config) { c.Certificates = []tls.Certificate{cert} })
			})
		},
	}, {
		name:    "tls-1.3",
		asks:    "A host speaks TLS 1.3 only.",
		why:     "the identity of the host crosses the wire in clear text",
		section: "transport-and-identity",
		play: func(s *stage) {
			s.trust().distrusted(func(t *trust) *tls.Config {
				return t.server(serverName, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
			})
		},
	}}
}

// distrusted asks that a host opens no session while the dispatcher has the configuration of wrong, and does when it is
// right.
func (t *trust) distrusted(wrong func(t *trust) *tls.Config) {
	shift := &shifting{}
	shift.set(wrong(t))
	d := t.dispatcher(scriptedOptions{creds: shift.creds()})
	t.start(settings{Dispatchers: []string{d.addr}, ServerName: serverName, TLS: t.files(hostIdentity)})
	t.until("the host has tried twice", func() bool { return shift.handshakes.Load() >= 2 })
	equal(t.stage, "number of streams", len(d.dials.all()), 0)
	shift.set(t.server(serverName))
	at := d.accept()
	equal(t.stage, "identity", at.identity, hostIdentity)
	at.works()
}
