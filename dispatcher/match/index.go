package match

import (
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// index finds hooks by what their rules name.
type index struct {
	byStage map[admissionv1.Stage][]*Hook
}

// lookup returns at least the hooks of the stage whose rules cover the request, in order, each once.
func (x *index) lookup(cluster string, stage admissionv1.Stage, _ *Attributes) []*Hook {
	var found []*Hook
	for _, h := range x.byStage[stage] {
		if h.serves(cluster) {
			found = append(found, h)
		}
	}
	return found
}
