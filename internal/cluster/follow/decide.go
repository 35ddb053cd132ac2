package follow

// Conditions is how many webhooks of an original have the condition that switches them off.
type Conditions string

// The Conditions of an original.
const (
	// On: none has it, so the API server calls all of them.
	On Conditions = "On"
	// PartlyOff: some have it.
	PartlyOff Conditions = "PartlyOff"
	// Off: all have it, so the API server calls none of them.
	Off Conditions = "Off"
)

// Step is the next thing to do for one original and its copy.
type Step string

// The steps.
const (
	Nothing    Step = "Nothing"
	WriteCopy  Step = "WriteCopy"
	RemoveCopy Step = "RemoveCopy"
	SwitchOn   Step = "SwitchOn"
	SwitchOff  Step = "SwitchOff"
	WriteAgain Step = "WriteAgain"
)

// situation is the knowledge about one original and its copy at one moment.
type situation struct {
	// exists is whether the original is in the cluster, and conditions whether it is off.
	exists     bool
	conditions Conditions
	// wanted is whether it is to be followed: it is selected, and its copy was not refused.
	wanted bool
	// copied is whether the mesh has a copy, current whether that is a copy of the original as it is now, and reshaped whether they
	// differ in a field that decides which requests a webhook sees, so that the copy may leave some out.
	copied, current, reshaped bool
	// inForce is whether every dispatcher judges by the copy.
	inForce bool
	// covered is whether the entries of the cluster were made from the hooks of the copy in force here, and these decide.
	covered bool
	// known is whether each API server knows these entries: they were written once more since they have changed (package touch).
	known bool
	// settled is whether the original has been on for SettleTime, and each API server knows.
	settled bool
	// again is whether it is time to write the original once more after a change.
	again bool
	// held is whether its owner has switched it on so often that it stays on for a while.
	held bool
}

// next decides. A later write of the original waits for all other steps.
func (s situation) next() Step {
	step := s.change()
	if step == Nothing && s.exists && s.again {
		return WriteAgain
	}
	return step
}

// change picks the next change. The API server calls the original, unless the mesh calls the copy for the same requests. So the original is
// switched off last and on first; in between both are called.
func (s situation) change() Step {
	off := s.exists && s.conditions != On
	switch {
	case !s.exists && s.copied:
		return RemoveCopy
	case !s.exists:
		return Nothing
	case off && (!s.wanted || !s.copied || !s.covered || s.reshaped):
		return SwitchOn
	case !s.wanted && s.copied && s.settled:
		return RemoveCopy
	case !s.wanted:
		return Nothing
	case !s.copied || !s.current:
		return WriteCopy
	case !s.inForce || !s.covered || !s.known || s.held || s.conditions == Off:
		return Nothing
	}
	return SwitchOff
}
