package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// DefaultCluster is the cluster of cases that name none.
const DefaultCluster = "dev"

// document is a value of a case: an object, or the name of a file with one, relative to the case file.
func (s *Suite) document(value json.RawMessage) (json.RawMessage, error) {
	if !bytes.HasPrefix(value, []byte(`"`)) {
		return value, nil
	}
	var name string
	if err := json.Unmarshal(value, &name); err != nil {
		return nil, err
	}
	data, err := readFile(beside(s.File, name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return asJSON(name, data)
}

// object is a document of a case, decoded; nil for none.
func (s *Suite) object(field string, value json.RawMessage) (object map[string]any, err error) {
	raw, err := s.document(value)
	if err == nil && raw != nil {
		err = utiljson.Unmarshal(raw, &object)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return object, nil
}

// request is the request of a case.
func (s *Suite) request(ctx context.Context, m *offline.Mesh, c *Case) (*admissionv1.AdmissionRequest, error) {
	if c.Review != nil {
		raw, err := s.document(c.Review)
		if err != nil {
			return nil, fmt.Errorf("review: %w", err)
		}
		request, err := decodeReview(raw)
		if err != nil {
			return nil, fmt.Errorf("review: %w", err)
		}
		request.Cluster = c.cluster()
		return request, nil
	}
	object, old, err := s.objects(c)
	if err != nil {
		return nil, err
	}
	return m.Request(ctx, &offline.Write{
		Cluster: c.cluster(), Operation: c.Operation, Object: object, OldObject: old, Resource: c.Resource, Namespace: c.Namespace, User: c.User,
		Groups: c.Groups, DryRun: c.DryRun,
	})
}

// objects are the objects of the request of a case.
func (s *Suite) objects(c *Case) (object, old []byte, err error) {
	written, err := s.object("object", c.Object)
	if err != nil {
		return nil, nil, err
	}
	before, err := s.object("oldObject", c.OldObject)
	if err != nil {
		return nil, nil, err
	}
	if c.OldWith != nil {
		if before == nil {
			before = written
		}
		if before, err = c.OldWith.apply(before); err != nil {
			return nil, nil, fmt.Errorf("oldWith: %w", err)
		}
	}
	if c.With != nil {
		if written == nil {
			return nil, nil, errors.New("with: there is no object that it changes")
		}
		if written, err = c.With.apply(written); err != nil {
			return nil, nil, fmt.Errorf("with: %w", err)
		}
	}
	if object, err = encode(written); err != nil {
		return nil, nil, err
	}
	old, err = encode(before)
	return object, old, err
}

func encode(object map[string]any) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	return json.Marshal(object)
}

// decodeReview reads an AdmissionReview, or a bare AdmissionRequest. A request without a uid is given one.
func decodeReview(raw []byte) (*admissionv1.AdmissionRequest, error) {
	var review struct {
		APIVersion string                     `json:"apiVersion"`
		Kind       json.RawMessage            `json:"kind"`
		Request    map[string]json.RawMessage `json:"request"`
	}
	if err := json.Unmarshal(raw, &review); err != nil {
		return nil, err
	}
	if review.Request == nil {
		if err := json.Unmarshal(raw, &review.Request); err != nil {
			return nil, err
		}
		review.APIVersion, review.Kind = reviewVersion, json.RawMessage(`"AdmissionReview"`)
	}
	if review.Request["uid"] == nil {
		review.Request["uid"] = json.RawMessage(`"` + uuid.NewString() + `"`)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(review); err != nil {
		return nil, err
	}
	decoded, err := conversion.DecodeReview(out.Bytes())
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	request := decoded.GetRequest()
	if request.GetOperation() == "" || request.GetResource().GetResource() == "" {
		return nil, errors.New("its request has no operation or no resource: no policy is about it")
	}
	return request, nil
}

// facts are the facts about the cluster of a case.
func (s *Suite) facts(c *Case, request *admissionv1.AdmissionRequest) (*offline.Facts, error) {
	f := &offline.Facts{Authorizer: permissions(c.Authorizer)}
	if c.NamespaceLabels != nil {
		f.Namespaces = map[string]map[string]string{request.GetNamespace(): c.NamespaceLabels}
	}
	for _, of := range []struct {
		field   string
		objects []json.RawMessage
	}{{"existing", c.Existing}, {"params", c.Params.objects}} {
		for i, value := range of.objects {
			all, err := s.listed(value)
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", of.field, i, err)
			}
			f.Objects = append(f.Objects, all...)
		}
	}
	return f, nil
}

// permissions answers authorizer checks.
type permissions []permission

var _ authorizer.Authorizer = permissions(nil)

// Authorize implements [authorizer.Authorizer].
func (p permissions) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for i := range p {
		if !p[i].fits(a) {
			continue
		}
		if p[i].Allowed == nil || *p[i].Allowed {
			return authorizer.DecisionAllow, "", nil
		}
		break
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (p *permission) check() error {
	if p.Resource != "" && p.Path != "" {
		return errors.New("path: a URL is no resource")
	}
	if p.Resource == "" {
		return nil
	}
	if _, err := kinds.ParsePolicyResource(p.Resource); err != nil {
		return fmt.Errorf("resource: %q %w", p.Resource, err)
	}
	return nil
}

// fits reports whether an answer is about a check.
func (p *permission) fits(a authorizer.Attributes) bool {
	for _, field := range [][2]string{
		{p.User, a.GetUser().GetName()}, {p.Verb, a.GetVerb()}, {p.Namespace, a.GetNamespace()}, {p.Name, a.GetName()},
	} {
		if field[0] != "" && field[0] != field[1] {
			return false
		}
	}
	if p.Path != "" {
		return !a.IsResourceRequest() && p.Path == a.GetPath()
	}
	if p.Resource == "" {
		return true
	}
	r, err := kinds.ParsePolicyResource(p.Resource)
	return err == nil && a.IsResourceRequest() && r.Group == a.GetAPIGroup() && r.Resource == a.GetResource() && r.Subresource == a.GetSubresource()
}
