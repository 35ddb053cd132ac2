package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	k8sadmissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// laboratory runs experiments of one world: through kube-apiserver's plugins, and through a dispatcher. It runs one at a
// time.
type laboratory struct {
	t          *testing.T
	oracle     *oracle.Oracle
	named      func() *oracle.Oracle // whose hooks have no rules with wildcards for resources
	dispatcher *dispatcher.Dispatcher
	told       told
	log        *callLog
	ahead      map[string]bool // the calls of the last review ahead of their turn
	idle       []func()        // return when no handler runs any more

	mu  sync.Mutex
	on  map[string]*performance // by uid of the review: calls that were given up may come late
	uid int
}

// newLaboratory starts a world. It ends with the test.
func newLaboratory(t *testing.T, w *world) *laboratory {
	t.Helper()
	l := &laboratory{t: t, on: map[string]*performance{}, log: &callLog{}}
	l.oracle, l.named = l.newOracle(w), sync.OnceValue(func() *oracle.Oracle { return l.newOracle(w.named()) })
	k := tell(t, w)
	l.told = k
	options := dispatcher.Options{Capacity: idle{}}
	if !w.Custom {
		options.Codec = func(a conversion.Allowance) chain.Codec { return k.codec.NewPatchSession(a) }
	}
	if slices.ContainsFunc(w.Configurations, func(c configuration) bool { return c.HTTPS }) {
		options.Webhooks = traced{l.overHTTPS(), l.log}
	}
	if w.Streams {
		l.overStreams(w, k, options)
	} else {
		l.inProcess(k, options)
	}
	return l
}

// newOracle starts kube-apiserver's plugins with the configurations of a world.
func (l *laboratory) newOracle(w *world) *oracle.Oracle {
	l.t.Helper()
	o := oracle.Options{
		Namespaces: w.Namespaces, Scripts: map[string]oracle.Script{}, Custom: w.Custom,
		Equivalents: w.registry(), Definitions: []*apiextensionsv1.CustomResourceDefinition{w.Definition}, Authorizer: w.authorizer(),
	}
	for _, c := range w.Configurations {
		if c.Stage == validate {
			o.Validating = append(o.Validating, c.validating())
		} else {
			o.Mutating = append(o.Mutating, c.mutating())
		}
	}
	for _, stage := range []admissionv1.Stage{mutate, validate} {
		for _, h := range w.hooks(stage) {
			o.Scripts[h.key] = func(ctx context.Context, r *k8sadmissionv1.AdmissionRequest) oracle.Answer {
				return l.playOriginal(h.key, r, oracle.RequestInfoOf(ctx))
			}
		}
	}
	return oracle.New(l.t, o)
}

// inProcess has the hooks served by functions.
func (l *laboratory) inProcess(k told, options dispatcher.Options) {
	backend := inprocess.NewFunc(func(h *match.Hook) inprocess.Handler {
		return func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return verdict(ctx, l.play(keyOf(h), r))
		}
	})
	l.idle = append(l.idle, backend.Wait)
	options.Snapshots, options.Clusters, options.Streams = k, k, traced{backend, l.log}
	var err error
	if l.dispatcher, err = dispatcher.New(options); err != nil {
		l.t.Fatal(err)
	}
}

// overStreams has the hooks served by a host, over sessions in memory. Hosts tell hooks of one name apart by their
// configuration.
func (l *laboratory) overStreams(w *world, k told, options dispatcher.Options) {
	m := newMeshOf(l.t, k.snapshot, k, func(o *dispatcher.Options) {
		o.Webhooks, o.Codec, o.Capacity, o.Streams = options.Webhooks, options.Codec, options.Capacity, traced{o.Streams, l.log}
	})
	l.dispatcher = m.dispatcher
	if !slices.ContainsFunc(k.snapshot.Hooks(), func(h *match.Hook) bool { return h.Route.Stream }) {
		return
	}
	serve := func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		return respond(ctx, l.play(oracle.Key(r.Configuration, r.Hook, 0), r.Admission()))
	}
	var hooks []hostsdk.Hook
	for stage, hookOf := range map[admissionv1.Stage]func(string, hostsdk.Handler, ...hostsdk.HookOption) hostsdk.Hook{
		mutate: hostsdk.Mutate, validate: hostsdk.Validate,
	} {
		known := map[string]bool{}
		for _, hook := range w.hooks(stage) {
			if !hook.https && !known[hook.Name] {
				known[hook.Name] = true
				hooks = append(hooks, hookOf(hook.Name, serve, hostsdk.Speculate()))
			}
		}
	}
	m.host("one", hooks...)
}

// begin starts a performance for a review, and returns the uid of the review.
func (l *laboratory) begin(p *performance) (uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uid++
	uid = fmt.Sprintf("uid-%d", l.uid)
	l.on[uid] = p
	return uid
}

// end makes the calls of a review that come from now on be nobody's.
func (l *laboratory) end(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.on, uid)
}

// of is the performance of a review; nil after the review has ended.
func (l *laboratory) of(uid string) *performance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.on[uid]
}

// reviewKey is where a request through kube-apiserver, which gives each call a uid of its own, says which it is of.
const reviewKey = "test.dev/review"

// playOriginal answers a call of kube-apiserver.
func (l *laboratory) playOriginal(key string, r *k8sadmissionv1.AdmissionRequest, came oracle.RequestInfo) oracle.Answer {
	var uid string
	for _, value := range r.UserInfo.Extra[reviewKey] {
		uid = value
	}
	delete(r.UserInfo.Extra, reviewKey)
	if p := l.of(uid); p != nil {
		return p.play(key, r, came)
	}
	return oracle.Allow()
}

// play answers a call of the dispatcher. The test compares the request in the form that an ordinary webhook would see.
func (l *laboratory) play(key string, r *admissionv1.AdmissionRequest) oracle.Answer {
	p := l.of(r.GetUid())
	if p == nil {
		return oracle.Allow()
	}
	seen, err := seenBy(r)
	if err != nil {
		l.t.Errorf("the request of hook %s cannot be written as JSON: %v", key, err)
		return oracle.Allow()
	}
	return p.play(key, seen, oracle.RequestInfo{})
}

// kubernetes is the outcome of e in kube-apiserver, with the edits of the hooks' answers.
func (l *laboratory) kubernetes(e *experiment, edits ...edit) outcome {
	l.t.Helper()
	p := newPerformance(e, edits...)
	uid := l.begin(p)
	defer l.end(uid)
	request := cloneRequest(e.Request)
	request.UserInfo.Extra[reviewKey] = &admissionv1.ExtraValue{Items: []string{uid}}
	ctx, done := e.context(l.t)
	defer done()
	asked := l.oracle
	if e.named {
		asked = l.named()
	}
	got, err := asked.Run(ctx, e.Stage, request)
	if err != nil {
		l.t.Fatalf("no API server would send this: %v\n%s", err, e)
	}
	got.FinalObject = []byte(l.read(e, got.FinalObject))
	return fromKubernetes(e, got, p.recorded())
}

// portcullis is the outcome of e in the dispatcher.
func (l *laboratory) portcullis(e *experiment) outcome {
	l.t.Helper()
	p := newPerformance(e)
	uid := l.begin(p)
	defer l.end(uid)
	sent := l.sent(e, uid)
	ctx, done := e.context(l.t)
	defer done()
	speculates := e.world.speculates(e.Stage)
	l.log.begin()
	l.dispatcher.Trust(l.told.snapshot)
	answer, err := l.dispatcher.Review(ctx, &review.Request{Stage: e.Stage, Admission: sent, Explain: e.Explain || speculates})
	if err != nil {
		l.t.Fatalf("no answer: %v\n%s", err, e)
	}
	for _, wait := range l.idle {
		wait()
	}
	if answer.Response.GetUid() != uid {
		l.t.Errorf("the answer has uid %q, want %q", answer.Response.GetUid(), uid)
	}
	received := p.recorded()
	if l.ahead = nil; speculates {
		l.ahead = l.log.tally(answer)
		received = l.log.inTurn(answer, received)
	}
	return fromPortcullis(e, l.finalObject(e, sent, answer.Response), answer, received)
}

// sent is the request as an API server sends it: with its objects encoded anew, and read by the JSON edge.
func (l *laboratory) sent(e *experiment, uid string) *admissionv1.AdmissionRequest {
	l.t.Helper()
	attributes, err := l.oracle.Attributes(e.Request)
	if err != nil {
		l.t.Fatalf("%v: %s", err, e.Request)
	}
	versioned, err := admission.NewVersionedAttributes(attributes, attributes.GetKind(), admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme))
	if err != nil {
		l.t.Fatal(err)
	}
	original := webhookrequest.CreateV1AdmissionReview("u", versioned, &generic.WebhookInvocation{
		Kind: attributes.GetKind(), Resource: attributes.GetResource(), Subresource: attributes.GetSubresource(),
	})
	original.SetGroupVersionKind(k8sadmissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(original)
	if err != nil {
		l.t.Fatal(err)
	}
	decoded, err := conversion.DecodeReview(body)
	if err != nil {
		l.t.Fatal(err)
	}
	sent := proto.CloneOf(decoded.GetRequest())
	sent.Uid, sent.Cluster = uid, "c"
	return sent
}

// finalObject is the object after the API server has applied the answer, as canonical JSON.
func (l *laboratory) finalObject(e *experiment, sent *admissionv1.AdmissionRequest, r *admissionv1.AdmissionResponse) string {
	l.t.Helper()
	patched, err := conversion.ApplyPatch(sent.GetObject().GetRaw(), r.GetPatch())
	switch {
	case !r.GetAllowed():
		return ""
	case err != nil:
		return err.Error()
	case (len(r.GetPatch()) > 0) != (r.GetPatchType() == "JSONPatch"):
		return "patch without a type or a type without a patch: " + r.String()
	}
	return l.read(e, patched.Raw)
}

// read is an object as the API server of the world reads it, and writes it again, as canonical JSON.
func (l *laboratory) read(e *experiment, raw []byte) string {
	l.t.Helper()
	if raw == nil || !e.typed() {
		return canonicalJSON(raw)
	}
	of := e.clone()
	of.Request = cloneRequest(e.Request)
	of.Request.Object = &admissionv1.Object{Raw: raw}
	return canonicalJSON(l.sent(of, "").GetObject().GetRaw())
}

// context bounds the review as its caller would.
func (e *experiment) context(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	if e.Deadline == 0 {
		return context.WithTimeout(t.Context(), time.Hour) // so that only deadlines of experiments ever pass
	}
	return context.WithTimeout(t.Context(), e.Deadline)
}

// judgement is the comparison of both.
type judgement struct {
	want, got  outcome
	authorized bool            // the authorizer was asked
	ahead      map[string]bool // the calls ahead of their turn
	deviations []string        // that explain how they differ
	difference string          // that nothing explains
}

// patience is how much longer the deadline gets before a difference counts: a busy machine is no difference.
const patience = 20

// judge runs an experiment through both.
func (l *laboratory) judge(e *experiment) judgement {
	l.t.Helper()
	j := l.compare(e)
	if j.difference != "" && e.hurried() {
		j = l.compare(e)
	}
	if j.difference != "" && e.Deadline > 0 {
		e = e.clone()
		e.Deadline *= patience
		j = l.compare(e)
	}
	return j
}

// hurried reports whether a hook has so little time that a busy machine may use it up.
func (e *experiment) hurried() bool {
	return slices.ContainsFunc(e.world.hooks(e.Stage), func(h scripted) bool { return h.TimeoutSeconds != nil && *h.TimeoutSeconds == oneSecond })
}

func (l *laboratory) compare(e *experiment) judgement {
	l.t.Helper()
	j := judgement{want: l.kubernetes(e), got: l.portcullis(e)}
	j.authorized, j.ahead = l.told.asked.Swap(false), l.ahead
	j.difference = differ(j.want, j.got)
	if j.difference == "" {
		return j
	}
	x := &explanation{lab: l, experiment: e, want: j.want, got: j.got}
	for _, d := range deviations() {
		if d.explains(x) {
			j.deviations = append(j.deviations, d.id)
		}
		if x.settled() {
			j.difference = ""
			return j
		}
	}
	j.deviations = nil
	return j
}
