package builtin_test

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// Each value of an object with unknown fields has a path: the paths of deep values below a long name were gigabytes.
func TestAnObjectWithVeryLongPathsStaysJSON(t *testing.T) {
	const levels = 4000
	object := `{"kind":"ControllerRevision","apiVersion":"apps/v1","revision":1,"unknown":1,"data":{"` + strings.Repeat("n", 100_000) + `":` +
		strings.Repeat(`{"a":`, levels) + "0" + strings.Repeat("}", levels) + `}}`
	var reasons []string
	c := builtin.New(builtin.Options{NotKnown: func(reason string) { reasons = append(reasons, reason) }})
	result, changed, err := c.Apply([]byte(object), []byte(`[{"op":"add","path":"/metadata","value":{"name":"a"}}]`))
	if err != nil || !changed || !strings.Contains(string(result), `"unknown":1`) {
		t.Errorf("changed %t, error %v", changed, err)
	}
	if len(reasons) != 1 || reasons[0] != builtin.ReasonAmbiguous {
		t.Errorf("told %v, want that it stays JSON", reasons)
	}
}
