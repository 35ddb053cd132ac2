package conversion

import admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

// request is an AdmissionRequest and the messages around it and in it, so that they are allocated at once.
type request struct {
	admissionv1.AdmissionRequest
	parts struct {
		review                     admissionv1.ReviewRequest
		kind, requestKind          admissionv1.GroupVersionKind
		resource, requestResource  admissionv1.GroupVersionResource
		user                       admissionv1.UserInfo
		object, oldObject, options admissionv1.Object
		dryRun                     bool
	}
}

// readRequest reads the request. In v1alpha1 it is no pointer in Kubernetes' type, and null changes nothing.
func (d *decoder) readRequest() {
	if d.null() {
		if !d.alpha {
			d.request = nil
		}
		return
	}
	if d.Next() != '{' {
		d.mismatch("an object", d.asked())
		return
	}
	if d.request == nil {
		d.request = new(request)
	}
	for name := range d.Members {
		if d.alpha && !inV1alpha1(name) {
			d.Skip()
			continue
		}
		d.readRequestField(d.request, name)
	}
}

// readRequestField reads the member called name of AdmissionRequest in k8s.io/api/admission/v1.
func (d *decoder) readRequestField(r *request, name []byte) {
	switch string(name) {
	case "uid":
		d.readString(&r.Uid, d.asked(), "uid")
	case "kind":
		if d.readKind(&r.parts.kind, "kind") {
			r.Kind = &r.parts.kind
		}
	case "resource":
		if d.readResource(&r.parts.resource, "resource") {
			r.Resource = &r.parts.resource
		}
	case "subResource":
		d.readString(&r.SubResource, d.asked(), "subResource")
	case "requestKind": // a pointer in Kubernetes' type: null takes back earlier values
		if d.Next() == 'n' {
			r.RequestKind = nil
			r.parts.requestKind.Reset()
		}
		if d.readKind(&r.parts.requestKind, "requestKind") {
			r.RequestKind = &r.parts.requestKind
		}
	case "requestResource": // likewise
		if d.Next() == 'n' {
			r.RequestResource = nil
			r.parts.requestResource.Reset()
		}
		if d.readResource(&r.parts.requestResource, "requestResource") {
			r.RequestResource = &r.parts.requestResource
		}
	case "requestSubResource":
		d.readString(&r.RequestSubResource, d.asked(), "requestSubResource")
	case "name":
		d.readString(&r.Name, d.asked(), "name")
	case "namespace":
		d.readString(&r.Namespace, d.asked(), "namespace")
	case "operation":
		d.readString(&r.Operation, d.asked(), "operation")
	case "userInfo":
		d.readUser(r)
	case "object":
		d.readObject(&r.Object, &r.parts.object)
	case "oldObject":
		d.readObject(&r.OldObject, &r.parts.oldObject)
	case "dryRun":
		d.readDryRun(r)
	case "options":
		d.readObject(&r.Options, &r.parts.options)
	default:
		d.Skip()
	}
}

func (d *decoder) readKind(k *admissionv1.GroupVersionKind, field string) bool {
	return d.readNames(field, "kind", &k.Group, &k.Version, &k.Kind)
}

func (d *decoder) readResource(r *admissionv1.GroupVersionResource, field string) bool {
	return d.readNames(field, "resource", &r.Group, &r.Version, &r.Resource)
}

// readNames reads group, version and a third member into the given texts, and reports whether there was an object.
func (d *decoder) readNames(field, third string, group, version, name *string) bool {
	if !d.enterable(field) {
		return false
	}
	for member := range d.Members {
		switch string(member) {
		case "group":
			d.readString(group, d.asked(), field, "group")
		case "version":
			d.readString(version, d.asked(), field, "version")
		case third:
			d.readString(name, d.asked(), field, third)
		default:
			d.Skip()
		}
	}
	return true
}

// enterable reports whether the next value is an object; it consumes any other. null leaves a structure as it is.
func (d *decoder) enterable(field string) bool {
	if d.null() {
		return false
	}
	if d.Next() != '{' {
		d.mismatch("an object", d.asked(), field)
		return false
	}
	return true
}

// readUser reads UserInfo of k8s.io/api/authentication/v1.
func (d *decoder) readUser(r *request) {
	if !d.enterable("userInfo") {
		return
	}
	user := &r.parts.user
	r.UserInfo = user
	for name := range d.Members {
		switch string(name) {
		case "username":
			d.readString(&user.Username, d.asked(), "userInfo", "username")
		case "uid":
			d.readString(&user.Uid, d.asked(), "userInfo", "uid")
		case "groups":
			user.Groups = d.readStrings(user.Groups, d.asked(), "userInfo", "groups")
		case "extra":
			user.Extra = readMap(d, user.Extra, func() *admissionv1.ExtraValue {
				return &admissionv1.ExtraValue{Items: d.readStrings(nil, d.asked(), "userInfo", "extra")}
			}, d.asked(), "userInfo", "extra")
		default:
			d.Skip()
		}
	}
}

// readObject keeps the bytes of any value but null, which leaves the field as it is: RawExtension.UnmarshalJSON of
// k8s.io/apimachinery/pkg/runtime.
func (d *decoder) readObject(field **admissionv1.Object, o *admissionv1.Object) {
	if d.null() {
		return
	}
	o.Raw = d.Skip()
	*field = o
}

// readDryRun reads a pointer in Kubernetes' type.
func (d *decoder) readDryRun(r *request) {
	switch d.Next() {
	case 'n':
		r.DryRun = nil
		d.Skip()
	case 't', 'f':
		r.parts.dryRun = d.Next() == 't'
		r.DryRun = &r.parts.dryRun
		d.Skip()
	default:
		d.mismatch("a boolean", d.asked(), "dryRun")
	}
}
