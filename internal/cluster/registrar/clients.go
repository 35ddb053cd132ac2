package registrar

import (
	"cmp"
	"net/http"

	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
)

// clients is the part of kubernetes.Interface that a Registrar uses. The whole kubernetes.Interface links the clients of all groups: 7 MB.
type clients interface {
	AdmissionregistrationV1() admissionclient.AdmissionregistrationV1Interface
	AuthorizationV1() authorizationclient.AuthorizationV1Interface
	CoordinationV1() coordinationclient.CoordinationV1Interface
	CoreV1() coreclient.CoreV1Interface
	RbacV1() rbacclient.RbacV1Interface
}

// typedClients implements clients.
type typedClients struct {
	admission     *admissionclient.AdmissionregistrationV1Client
	authorization *authorizationclient.AuthorizationV1Client
	coordination  *coordinationclient.CoordinationV1Client
	core          *coreclient.CoreV1Client
	rbac          *rbacclient.RbacV1Client
}

func newClients(config *rest.Config, over *http.Client) (*typedClients, error) {
	c, errs := &typedClients{}, make([]error, 5)
	c.admission, errs[0] = admissionclient.NewForConfigAndClient(config, over)
	c.authorization, errs[1] = authorizationclient.NewForConfigAndClient(config, over)
	c.coordination, errs[2] = coordinationclient.NewForConfigAndClient(config, over)
	c.core, errs[3] = coreclient.NewForConfigAndClient(config, over)
	c.rbac, errs[4] = rbacclient.NewForConfigAndClient(config, over)
	return c, cmp.Or(errs...)
}

func (c *typedClients) AdmissionregistrationV1() admissionclient.AdmissionregistrationV1Interface {
	return c.admission
}

func (c *typedClients) AuthorizationV1() authorizationclient.AuthorizationV1Interface {
	return c.authorization
}

func (c *typedClients) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return c.coordination
}

func (c *typedClients) CoreV1() coreclient.CoreV1Interface { return c.core }

func (c *typedClients) RbacV1() rbacclient.RbacV1Interface { return c.rbac }
