package registrar

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// BreakGlassAnnotation marks entries that an operator of the cluster has emptied. Its value is the reason. While either object has it,
// Apply changes neither.
const BreakGlassAnnotation = "portcullis.dev/break-glass"

const bothKinds = "validatingwebhookconfiguration,mutatingwebhookconfiguration "

// BreakGlassOn is the command by which an operator of a cluster takes the mesh off its writes, by the name of the entries. docs/operations.md
// has it too. It empties each object and marks it in one write, so no writer of entries can come between.
func BreakGlassOn(name string) string {
	return "kubectl patch " + bothKinds + name + ` --type=merge -p '{"webhooks":null,"metadata":{"annotations":{"` + BreakGlassAnnotation + `":"INC-42"}}}'`
}

// BreakGlassOff is the command that ends it.
func BreakGlassOff(name string) string {
	return "kubectl annotate " + bothKinds + name + " " + BreakGlassAnnotation + "-"
}

// ErrBreakGlass is the error about entries that an operator of the cluster has taken off the writes.
var ErrBreakGlass = errors.New("a break-glass is on in the cluster")

// CheckBreakGlass returns an error that wraps ErrBreakGlass if either object, as Read returns it, has the annotation.
func CheckBreakGlass(now registration.Objects) error {
	if m := now.Mutating; m != nil {
		if err := checkBreakGlass(m); err != nil {
			return fmt.Errorf("mutatingwebhookconfiguration/%s: %w", m.Name, err)
		}
	}
	if v := now.Validating; v != nil {
		if err := checkBreakGlass(v); err != nil {
			return fmt.Errorf("validatingwebhookconfiguration/%s: %w", v.Name, err)
		}
	}
	return nil
}

func checkBreakGlass(o metav1.Object) error {
	reason, on := o.GetAnnotations()[BreakGlassAnnotation]
	if !on {
		return nil
	}
	return fmt.Errorf("%w (%q), and the entries stay as they are: remove the annotation %s from both objects to end it",
		ErrBreakGlass, reason, BreakGlassAnnotation)
}
