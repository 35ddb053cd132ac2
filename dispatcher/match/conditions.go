package match

import "context"

// conditions are the compiled matchConditions of a hook.
type conditions struct{}

// conditionInput is what conditions see of a request, decoded once.
type conditionInput struct{}

func (h *Hook) matchConditions(_ context.Context, _ *Attributes) Decision {
	return Decision{Match: true}
}
