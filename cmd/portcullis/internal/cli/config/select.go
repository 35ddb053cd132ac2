package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// allKinds is the argument that stands for every kind.
const allKinds = "all"

// selection are the objects that arguments name. The zero value is all of them.
type selection struct {
	kinds []string
	keys  []*configv1.ConfigKey // of those kinds; without any, all objects of the kinds
	one   bool                  // the arguments name one object

	labels labels.Selector // of -l; nil is all objects
}

// labelled is the selection of the objects whose labels a selector of kubectl selects.
func (s selection) labelled(selector string) (selection, error) {
	if selector == "" {
		return s, nil
	}
	if len(s.keys) > 0 {
		return s, errors.New("-l and names: select objects by labels or by names")
	}
	var err error
	if s.labels, err = labels.Parse(selector); err != nil {
		return s, fmt.Errorf("-l %q: %w", selector, err)
	}
	return s, nil
}

// matches reports whether -l selects an object.
func (s selection) matches(o *configv1.ConfigObject) bool {
	if s.labels == nil {
		return true
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(o.GetManifest().GetRaw(), &object); err != nil {
		return false
	}
	return s.labels.Matches(labels.Set(object.GetLabels()))
}

// selected parses arguments as kubectl does: KIND[,KIND], KIND[,KIND] NAME..., KIND/NAME..., all, or nothing.
func selected(args []string) (s selection, err error) {
	if len(args) == 0 {
		return s, nil
	}
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			key, err := keyNamed([]string{arg})
			if err != nil {
				return s, err
			}
			s.keys = append(s.keys, key)
		}
		s.one = len(s.keys) == 1
		return s, nil
	}
	if s.kinds, err = kindsNamed(args[0]); err != nil {
		return s, err
	}
	if len(args) > 1 && len(s.kinds) == 0 {
		return s, fmt.Errorf("%q names no kind: say KIND NAME, or KIND/NAME", args[0])
	}
	for _, kind := range s.kinds {
		for _, name := range args[1:] {
			if name == "" || strings.Contains(name, "/") {
				return s, fmt.Errorf("%q is no name of a %s: say KIND NAME, or KIND/NAME", name, kind)
			}
			s.keys = append(s.keys, &configv1.ConfigKey{Kind: kind, Name: name})
		}
	}
	s.one = len(s.keys) == 1
	return s, nil
}

// kindsNamed are the kinds of a list with commas; none for all.
func kindsNamed(text string) (kinds []string, err error) {
	for name := range strings.SplitSeq(text, ",") {
		if strings.EqualFold(name, allKinds) {
			return nil, nil
		}
		kind, err := kindNamed(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

// keysNamed are the objects that arguments name, at least one.
func keysNamed(args []string) ([]*configv1.ConfigKey, error) {
	s, err := selected(args)
	if err == nil && len(s.keys) == 0 {
		return nil, errors.New("say which object: KIND NAME, or KIND/NAME")
	}
	return s.keys, err
}

// kind is the kind of all objects of the selection; empty if there are several.
func (s selection) kind() string {
	if len(s.kinds) == 1 {
		return s.kinds[0]
	}
	return ""
}

// request is the narrowest request for a watch of the selection.
func (s selection) request() *configv1.WatchRequest {
	if s.one {
		return &configv1.WatchRequest{Kind: s.keys[0].GetKind(), Name: s.keys[0].GetName()}
	}
	return &configv1.WatchRequest{Kind: s.kind()}
}

// has reports whether the selection contains an object.
func (s selection) has(key *configv1.ConfigKey) bool {
	if len(s.keys) > 0 {
		return slices.ContainsFunc(s.keys, func(k *configv1.ConfigKey) bool {
			return k.GetKind() == key.GetKind() && k.GetName() == key.GetName()
		})
	}
	return len(s.kinds) == 0 || slices.Contains(s.kinds, key.GetKind())
}

// get returns the objects, with findings about the configuration as a whole. Where a named object is not there, it returns the
// others and the error of the first that is not.
func (s selection) get(ctx context.Context, client configv1.ConfigServiceClient) (found []*configv1.ConfigObject, findings []*configv1.Finding, err error) {
	if len(s.keys) > 0 {
		for _, key := range s.keys {
			answer, missing := client.Get(ctx, &configv1.GetRequest{Key: key})
			switch {
			case missing == nil:
				found = append(found, answer.GetObject())
			case err == nil:
				err = missing
			}
		}
		return found, nil, err
	}
	answer, err := client.List(ctx, &configv1.ListRequest{Kind: s.kind()})
	if err != nil {
		return nil, nil, err
	}
	for _, o := range answer.GetObjects() {
		if s.has(o.GetKey()) && s.matches(o) {
			found = append(found, o)
		}
	}
	return found, answer.GetFindings(), nil
}
