package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Options are an audit.
type Options struct {
	// Cluster has the objects.
	Cluster *Cluster
	// Judge judges them.
	Judge Judge
	// Hooks are the policies and hooks by which it does: objects that they are not about are not listed.
	Hooks []*match.Hook
	// Modes are the modes of Policies, by KIND/NAME.
	Modes map[string]string
	// Resources are the resources that are listed, as kubectl or a Policy names them; none means all that the hooks are about.
	Resources []string
	// Namespaces are the namespaces that are listed, and nothing outside of them; none means all.
	Namespaces []string
	// User and Groups are who creates the objects.
	User   string
	Groups []string
	// DryRun is the field dryRun of each request.
	DryRun bool
	// PageSize is how many objects are asked for at a time; 0 is DefaultPageSize.
	PageSize int
	// Findings is how many findings of each policy are kept; 0 is DefaultFindings.
	Findings int
	// Workers is how many objects are judged at a time; 0 is as many as there are processors.
	Workers int
	// State is the file in which the audit is kept after each page, so that it can go on from there; empty for none. It is removed at the end.
	State string
	// Identity tells the audit from others: a state of another one is refused.
	Identity string
	// Progress is called after each page; nil for none.
	Progress func(p Progress)
	// Now is the clock.
	Now func() time.Time
}

// Progress is how far an audit is.
type Progress struct {
	// List is the list that is being read, the one at Index of all Lists.
	List         string
	Index, Lists int
	// Objects is how many objects were judged, and Denied how many of them are denied.
	Objects, Denied int
}

// run is an audit that goes on.
type run struct {
	Options

	state *auditState
	count *counter
	pages int
}

// Run audits a cluster. Beside an error there is the report so far, unless nothing was read.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.PageSize, o.Findings, o.Workers = orDefault(o.PageSize, DefaultPageSize), orDefault(o.Findings, DefaultFindings), orDefault(o.Workers, runtime.GOMAXPROCS(0))
	chosen, err := o.Cluster.choose(ctx, o.Hooks, o.Resources)
	if err != nil {
		return nil, err
	}
	lists, err := chosen.lists(o.Namespaces)
	if err != nil {
		return nil, err
	}
	r := &run{Options: o}
	if r.state, err = readState(o.State, o.Identity); err != nil {
		return nil, err
	}
	report := &r.state.Report
	if report.Begun.IsZero() {
		report.Cluster, report.Begun = o.Cluster.name, o.Now().UTC()
	} else {
		report.Notes = append(report.Notes, fmt.Sprintf("it went on at %s with the state of an audit that was interrupted", o.Now().UTC().Format(time.RFC3339)))
	}
	report.Unaudited = slices.Concat(chosen.failed, chosen.unaudited)
	r.count = newCounter(report, o.Findings, o.Modes)
	for i, l := range lists {
		if slices.Contains(r.state.Done, l.String()) {
			continue
		}
		if err = r.list(ctx, l, i, len(lists)); err != nil {
			break
		}
	}
	report.Complete = err == nil && len(chosen.failed) == 0
	r.count.end(o.Now().UTC())
	if err == nil {
		err = removeState(o.State)
	}
	return report, err
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// list judges the objects of a list. The error ends the audit; an error about this list alone is in the report.
func (r *run) list(ctx context.Context, l list, index, lists int) error {
	if r.state.Current != l.String() {
		if err := r.state.begin(l.String()); err != nil {
			return err
		}
		r.count.Resources = append(r.count.Resources, &ResourceReport{Name: l.Resource.String(), Version: l.GroupVersion().String(), Namespace: l.namespace})
	}
	err := r.Cluster.walk(ctx, l, r.state.At, r.PageSize, func(p page) error {
		if r.pages++; r.pages > MaxPages {
			return fmt.Errorf("the API server has sent more than %d pages", MaxPages)
		}
		if err := r.renew(l, p); err != nil {
			return err
		}
		if err := r.page(ctx, l, p.items); err != nil {
			return err
		}
		if r.state.At = p.next; p.next.Continue == "" {
			r.state.end()
		}
		if r.Progress != nil {
			r.Progress(Progress{l.String(), index + 1, lists, r.count.Objects, r.count.Denied})
		}
		return r.state.write(r.State, r.Identity)
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case ofList(err):
		r.count.resource().Error = short(err.Error())
		r.state.end()
		return r.state.write(r.State, r.Identity)
	}
	r.count.resource().Error = short(err.Error())
	return fmt.Errorf("%s: %w", l, err)
}

// renew notes that a list goes on with a newer state of the cluster. If it begins again, its objects so far are forgotten.
func (r *run) renew(l list, p page) error {
	switch {
	case p.restarted:
		if err := r.state.restart(); err != nil {
			return err
		}
		r.count = newCounter(&r.state.Report, r.Findings, r.Modes)
		r.count.Resources = append(r.count.Resources, &ResourceReport{Name: l.Resource.String(), Version: l.GroupVersion().String(), Namespace: l.namespace})
		r.count.note(fmt.Sprintf("%s: the API server no longer had the state of the list, which began again", l))
	case p.renewed:
		r.count.note(fmt.Sprintf("%s: the API server no longer had the state of the list, which went on with a newer one: "+
			"objects that were written meanwhile may be missing", l))
	}
	return nil
}

// head is the part of an object that a report names.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string                  `json:"name"`
		Namespace       string                  `json:"namespace"`
		UID             string                  `json:"uid"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
}

// finding has the names of an object.
func (h *head) finding(r Resource) *Finding {
	f := &Finding{
		APIVersion: r.GroupVersion().String(), Kind: r.Kind, Namespace: short(h.Metadata.Namespace), Name: short(h.Metadata.Name), UID: short(h.Metadata.UID),
	}
	for _, o := range h.Metadata.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			f.Owner = short(o.Kind + "/" + o.Name)
		}
	}
	return f
}

// judged is an object with the verdicts about it.
type judged struct {
	of       *Finding
	verdicts []Verdict
	err      error
}

// page judges the objects of a page.
func (r *run) page(ctx context.Context, l list, items [][]byte) error {
	all := make([]judged, len(items))
	work := make(chan int)
	var workers sync.WaitGroup
	for range min(r.Workers, len(items)) {
		workers.Go(func() {
			for i := range work {
				all[i] = r.judge(ctx, l.Resource, items[i])
			}
		})
	}
	for i := range items {
		work <- i
	}
	close(work)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i := range all { // a page counts as a whole or not at all
		if stop := (*StopError)(nil); errors.As(all[i].err, &stop) {
			return all[i].err
		}
	}
	for i := range all {
		if err := all[i].err; err != nil {
			all[i].verdicts = []Verdict{{Result: Failed, Message: err.Error()}}
		}
		r.count.object(all[i].of, all[i].verdicts)
	}
	return nil
}

// judge judges an object.
func (r *run) judge(ctx context.Context, of Resource, raw []byte) judged {
	var h head
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &h); err != nil || h.Metadata.Name == "" {
		return judged{of: h.finding(of), err: errors.New("the API server has sent something that is no object")}
	}
	if h.APIVersion == "" { // items of lists of built-in kinds have no type
		raw = slices.Concat(fmt.Appendf(nil, `{"apiVersion":%s,"kind":%s,`, strconv.Quote(of.GroupVersion().String()), strconv.Quote(of.Kind)), raw[1:])
	}
	request := requestOf(of, &h)
	request.Uid, request.Cluster, request.DryRun = uuid.NewString(), r.Cluster.name, &r.DryRun
	request.Object = &admissionv1.Object{ContentType: "application/json", Raw: raw}
	request.Options = &admissionv1.Object{ContentType: "application/json", Raw: json.RawMessage(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)}
	request.UserInfo = &admissionv1.UserInfo{Username: r.User, Groups: r.Groups}
	verdicts, err := r.Judge.Judge(ctx, request)
	return judged{h.finding(of), verdicts, err}
}
