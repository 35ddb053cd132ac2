package match

// NamedOnly reports whether hooks see requests about a resource only if a rule names it, so that wildcards do not cover it.
// Leases keep nodes and leaders alive and are written all the time; events are written by the thousand, while something else
// happens. Who writes "every resource" does not mean to have the cluster stop for want of these.
func NamedOnly(group, resource string) bool {
	switch resource {
	case "leases":
		return group == "coordination.k8s.io"
	case "events":
		return group == "" || group == "events.k8s.io"
	}
	return false
}
