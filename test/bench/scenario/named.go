package scenario

import "time"

const (
	// many is how many hooks are configured where few match.
	many = 10_000
	// handling is how long a hook takes that does something, and a slow one among quick replicas.
	handling, quick, slow = 5 * time.Millisecond, 2 * time.Millisecond, 20 * time.Millisecond
	// replicas is the number of hosts of a hook with a slow host.
	replicas = 3
	// policy is the hook of examples/imagepolicy, which is the same in all languages.
	policy = "imagepolicy.example.com"
)

// Languages are those that hosts are compared in with webhooks.
func Languages() []string { return []string{"go", "python", "typescript", "java", "rust"} }

// Policy is one validating hook that allows a Pod, in a program of a language. It looks at the images of a created Pod, and at
// nothing of a deleted Pod.
func Policy(language string, bytes int, deleting bool) Scenario {
	return Scenario{Stage: Validate, Hooks: 1, Hosts: 1, Bytes: bytes, Language: language, Deleting: deleting}
}

// Among are 8 validating hooks that match, among 10,000 that are configured.
func Among() Scenario {
	return Scenario{Stage: Validate, Hooks: 8, Hosts: 8, Bytes: Small, Configured: many}
}

// Patching are 8 mutating hooks, of which the first ones patch.
func Patching(patching int) Scenario {
	return Scenario{Stage: Mutate, Hooks: 8, Hosts: 8, Bytes: Small, Patching: patching}
}

// Taking are mutating hooks that take 5 ms each and patch nothing.
func Taking(hooks int, speculate bool) Scenario {
	return Scenario{Stage: Mutate, Hooks: hooks, Hosts: hooks, Bytes: Small, Takes: handling, Speculate: speculate}
}

// Replicas is one validating hook that takes 2 ms, with three replicas, of which one may take ten times as long.
func Replicas(oneSlow, hedge bool) Scenario {
	s := Scenario{Stage: Validate, Hooks: 1, Hosts: 1, Bytes: Small, Takes: quick, Replicas: replicas, Hedge: hedge}
	if oneSlow {
		s.OneTakes = slow
	}
	return s
}
