// Package hostile plays tenants who do all that they may to exhaust a mesh: its memory, processors, disk, names, connections and time. Each
// role of docs/security.md attacks `portcullis serve` in 1 GiB, while a victim in another cluster has reviews judged. The process has to
// live, each review of the victim to be judged as its hook says, and nothing may be left when the tenant has gone.
//
//	go test ./hostile -v            # 3 s a role
//	PORTCULLIS_SOAK=1 go test ./hostile -v -timeout=30m
//
// The report says role by role the peak of memory, the victim's latency and how its reviews of a quiet mesh compare, and the outcomes of
// the tenant's acts.
package hostile
