// Package hostile plays tenants who do all that they may to exhaust a mesh: its memory, processors, disk, names, connections and time. Each
// role attacks `portcullis serve` in 1 GiB, while a victim in another cluster has reviews judged. The process has to live, each review of the
// victim has to be judged as its hook says, and nothing may be left when the tenant has gone. The inputs of the roles are the rows of the table
// of trust in docs/security.md.
//
//	go test -v ./hostile                                         # 2 s a role
//	PORTCULLIS_SOAK=1 go test -v -timeout=30m ./hostile          # 30 s a role, as in make soak
//	HOSTILE_PROFILES=/tmp/profiles go test -v ./hostile          # a profile of the processors for each role
//	HOSTILE_REPORT=/tmp/report.md go test -v ./hostile           # the report as a file
//
// The report says role by role the peak of memory, the size of the store, the series of metrics, the latency of the victim beside that in a
// quiet mesh, and the outcomes of the tenant's acts.
package hostile
