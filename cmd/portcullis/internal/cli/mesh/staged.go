package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// StagedArg is the argument of commands that stands for staged objects.
const StagedArg = "staged"

const stagedKind = "StagedObject"

// Staged shows objects of CREATE requests that are held until initializers have acted: those that names select, and all without a
// name. Dispatchers with a store know each other's objects.
func (s *Show) Staged(ctx context.Context, names []string) error {
	if s.Watch {
		return s.watchStaged(ctx, names)
	}
	all, err := s.listStaged(ctx)
	if err != nil {
		return err
	}
	found, err := selectStaged(all, names)
	if err != nil && len(found) == 0 {
		return err
	}
	if len(found) == 0 {
		fmt.Fprintln(s.Notes, "nothing is staged")
	}
	list, failed := listOf(stagedKind, found, StagedName)
	if failed == nil {
		failed = s.printList(list, stagedColumns(), stagedRows(found, time.Now()))
	}
	return cmp.Or(failed, err)
}

// DescribeStaged shows one staged object in detail.
func (s *Show) DescribeStaged(ctx context.Context, name string) error {
	o, err := s.oneStaged(ctx, name)
	if err != nil {
		return err
	}
	list, err := listOf(stagedKind, []*initializerv1.StagedObject{o}, StagedName)
	if err != nil {
		return err
	}
	return printer.Print(s.Out, s.Format, list.Items[0].Object, func() error {
		return printer.WriteRows(s.Out, "", described(o, time.Now()))
	})
}

// DeleteStaged ends the hold of an object with this name, and of this version unless that is empty: its creation fails. With dry it only
// prints the name.
func (s *Show) DeleteStaged(ctx context.Context, name, version string, dry bool) error {
	o, err := s.oneStaged(ctx, name)
	if err != nil {
		return err
	}
	result := "would be deleted (dry run)"
	if !dry {
		result = "is deleted: its creation fails"
		if _, err := s.Initializers.Delete(ctx, &initializerv1.DeleteRequest{Key: o.GetKey(), Uid: o.GetUid(), ResourceVersion: version}); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(s.Out, "%s %s\n", printer.Text(StagedName(o)), result)
	return err
}

func (s *Show) listStaged(ctx context.Context) ([]*initializerv1.StagedObject, error) {
	answer, err := s.Initializers.List(ctx, &initializerv1.ListRequest{})
	return answer.GetObjects(), err
}

// one is the object that a name selects.
func (s *Show) oneStaged(ctx context.Context, name string) (*initializerv1.StagedObject, error) {
	all, err := s.listStaged(ctx)
	if err != nil {
		return nil, err
	}
	found, err := selectStaged(all, []string{name})
	if err != nil {
		return nil, err
	}
	if len(found) > 1 {
		names := make([]string, 0, len(found))
		for _, o := range found {
			names = append(names, StagedName(o))
		}
		return nil, fmt.Errorf("%d staged objects have the name %q, say which: %s", len(found), name, strings.Join(names, ", "))
	}
	return found[0], nil
}

// StagedName is how the command line names a staged object: CLUSTER/RESOURCE/NAMESPACE/NAME, without the namespace where there is none.
func StagedName(o *initializerv1.StagedObject) string {
	key := o.GetKey()
	resource := key.GetResource().GetResource()
	if group := key.GetResource().GetGroup(); group != "" {
		resource += "." + group
	}
	return strings.Join(slices.DeleteFunc([]string{key.GetCluster(), resource, key.GetNamespace(), key.GetName()}, func(part string) bool {
		return part == ""
	}), "/")
}

// stagedNamed reports whether a name of the command line matches an object: its whole name, or the end of it from a "/" on.
func stagedNamed(o *initializerv1.StagedObject, name string) bool {
	whole := StagedName(o)
	return whole == name || strings.HasSuffix(whole, "/"+name)
}

// selectStaged returns the objects that names select, and the error of the first that selects none.
func selectStaged(all []*initializerv1.StagedObject, names []string) (found []*initializerv1.StagedObject, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(o *initializerv1.StagedObject) bool { return stagedNamed(o, name) }) && err == nil {
			err = status.Errorf(codes.NotFound, "no object %q is staged", name)
		}
	}
	for _, o := range all {
		if slices.ContainsFunc(names, func(name string) bool { return stagedNamed(o, name) }) {
			found = append(found, o)
		}
	}
	return found, err
}

func stagedColumns() printer.Columns {
	return printer.Heads("STAGED", "WAITING FOR", "WAITED", "REMAINING", "HELD", "DISPATCHER").Wide("THEN", "CREATED BY", "UID", "VERSION")
}

func stagedRows(all []*initializerv1.StagedObject, now time.Time) [][]string {
	rows := make([][]string, 0, len(all))
	for _, o := range all {
		rows = append(rows, stagedRow(o, now))
	}
	return rows
}

func stagedRow(o *initializerv1.StagedObject, now time.Time) []string {
	first, then := waitingFor(o)
	return []string{
		StagedName(o), first, span(o.GetWaiting(), now), remaining(o), age(o.GetCreated(), now), o.GetDispatcherId(),
		cmp.Or(strings.Join(then, ","), "-"), cmp.Or(o.GetCreator().GetUsername(), "-"), o.GetUid(), o.GetResourceVersion(),
	}
}

// waitingFor are the initializers that have to act now, of which only hosts act at the same time, and those after them.
func waitingFor(o *initializerv1.StagedObject) (now string, then []string) {
	switch pending := o.GetPending(); {
	case o.GetResult() != nil:
		return "no controller: it is refused", nil
	case len(pending) == 0:
		return "no controller: it is initialized", nil
	default:
		first := min(max(1, int(o.GetTogether())), len(pending))
		return strings.Join(pending[:first], ","), pending[first:]
	}
}

func span(since *timestamppb.Timestamp, now time.Time) string {
	if since == nil {
		return "-"
	}
	return duration.HumanDuration(now.Sub(since.AsTime()))
}

func remaining(o *initializerv1.StagedObject) string {
	return duration.HumanDuration(time.Duration(o.GetRemainingMs()) * time.Millisecond)
}

// described are the lines of Describe.
func described(o *initializerv1.StagedObject, now time.Time) [][]string {
	since := func(t *timestamppb.Timestamp) string {
		return t.AsTime().UTC().Format(time.RFC3339) + ", " + age(t, now)
	}
	first, then := waitingFor(o)
	kind := strings.Trim(o.GetKind().GetGroup()+"/"+o.GetKind().GetVersion(), "/") + " " + o.GetKind().GetKind()
	rows := [][]string{
		{"Name:", StagedName(o)},
		{"Type:", kind},
		{"Waiting for:", first},
		{"Since:", since(o.GetWaiting())},
		{"Then:", cmp.Or(strings.Join(then, ", "), "nobody")},
		{"Remaining:", remaining(o) + ", until " + o.GetExpires().AsTime().UTC().Format(time.RFC3339)},
		{"Held since:", since(o.GetCreated())},
		{"Dispatcher:", o.GetDispatcherId()},
		{"Created by:", strings.TrimSpace(o.GetCreator().GetUsername() + " " + groups(o.GetCreator().GetGroups()))},
		{"Review:", o.GetReviewUid()},
		{"UID:", o.GetUid()},
		{"Version:", o.GetResourceVersion()},
	}
	if r := o.GetResult(); r != nil {
		rows = append(rows, []string{"Refused:", strings.TrimSpace(fmt.Sprintf("%d %s: %s", r.GetCode(), r.GetReason(), r.GetMessage()))})
	}
	return rows
}

func groups(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// StagedNames returns the names of staged objects if arguments are "staged NAME..." or "staged/NAME...".
func StagedNames(args []string) (names []string, ok bool) {
	if len(args) > 0 && args[0] == StagedArg {
		return args[1:], true
	}
	for _, arg := range args {
		name, is := strings.CutPrefix(arg, StagedArg+"/")
		if !is {
			return nil, false
		}
		names = append(names, name)
	}
	return names, len(names) > 0
}

// OneStaged returns the name of the one staged object that a command takes.
func OneStaged(names []string) (string, error) {
	if len(names) != 1 || names[0] == "" {
		return "", errors.New("say which object: staged NAME (`portcullis get staged` shows the names)")
	}
	return names[0], nil
}
