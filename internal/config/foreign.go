package config

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Documents of Kubernetes and of the mesh that replace documents of another engine, for messages.
const (
	nearestValidating = "a Policy of " + kinds.APIVersion + " or a " + validatingPolicyKind
	nearestMutating   = "a " + mutatingPolicyKind
)

// RegoExt ends the names of files in the language of Open Policy Agent.
const RegoExt = ".rego"

// foreignGroups are the groups of documents that another policy engine judges, by the end of the group. The first that fits counts.
var foreignGroups = []struct { //nolint:gochecknoglobals // a table, never written
	suffix  string
	engine  string
	nearest string // the documents that replace it
	anchor  string // in docs/coming-from.md
}{
	{"kyverno.io", "Kyverno", nearestValidating + " or " + nearestMutating, "kyverno"},
	{"mutations.gatekeeper.sh", "Gatekeeper", nearestMutating, "gatekeeper"},
	{"gatekeeper.sh", "Gatekeeper", nearestValidating, "gatekeeper"},
	{"kubewarden.io", "Kubewarden", nearestValidating + " or " + nearestMutating, "kubewarden"},
}

// foreign is the error about a document of another policy engine; empty if no engine is known by the group.
func foreign(h head) string {
	group, _, _ := strings.Cut(h.APIVersion, "/")
	for _, of := range foreignGroups {
		if group == of.suffix || strings.HasSuffix(group, "."+of.suffix) {
			return foreignTo(h.Kind+" of "+h.APIVersion, of.engine, of.nearest, of.anchor)
		}
	}
	return ""
}

// foreignFile is the error about a file of Open Policy Agent, which has no documents; empty for another file.
func foreignFile(file string, data []byte) string {
	var what string
	switch {
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		return "the file is a gzip archive, which is not read: unpack it; of Open Policy Agent's bundles nothing is judged here " +
			"(docs/coming-from.md#open-policy-agent)"
	case path.Ext(file) == RegoExt:
		what = "a file " + RegoExt
	case isRego(data):
		what = "a module in Rego"
	default:
		return ""
	}
	return foreignTo(what, "Open Policy Agent", nearestValidating, "open-policy-agent")
}

func foreignTo(what, engine, nearest, anchor string) string {
	return fmt.Sprintf("%s belongs to %s and is not judged here: write %s, or keep it in %s, whose webhook the mesh can call (docs/coming-from.md#%s)",
		what, engine, nearest, engine, anchor)
}

// isRego reports whether a text begins as a module in Rego does, after its comments. No document begins so.
func isRego(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return bytes.HasPrefix(line, []byte("package ")) && !bytes.ContainsAny(line, ":{\"'")
		}
	}
	return false
}
