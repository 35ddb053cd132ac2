package chain

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Limits of the audit annotations of one answer. Kubernetes limits the keys alone. An API server that bounds its audit events discards an event that
// is still too long without its objects, by default at 100 KiB: a request that meets six entries of ours must not lose its event.
const (
	// maxAuditKey is the most characters of a key: the API server stores it as <entry>/<key> and takes at most 63 behind the
	// slash (SEMANTICS C42).
	maxAuditKey = 63
	// maxAnswerAuditBytes is the most bytes of all keys and values of an answer, ReservedAuditBytes included.
	maxAnswerAuditBytes = 16 << 10
	// ReservedAuditBytes is the most bytes of the annotations that the dispatcher adds.
	ReservedAuditBytes = 3 << 10
	// maxAuditBytes is the most bytes of the others.
	maxAuditBytes = maxAnswerAuditBytes - ReservedAuditBytes
	// maxCallAuditBytes is the most bytes of the annotations of one call, so that one hook does not use up the space of all.
	maxCallAuditBytes = 8 << 10
	// maxAuditOperations is the most operations of a patch that are listed; the digest covers all.
	maxAuditOperations = 32
	// maxAuditPath is the most bytes of a path that is listed.
	maxAuditPath = 128
)

// AuditRevision is the key of the annotation that every answer has: the revision of the configuration that judged.
const AuditRevision = "revision"

// Keys of our own annotations. A hook's key never equals any of them: it begins with the hook's name, of three segments at least and without an
// underscore.
const (
	auditFailedOpen = "failed-open." // + type + place: failOpenAudit
	auditPending    = "pending."     // + type + place: auditedHook
	auditMutation   = "mutation."    // + place: mutationAudit
	auditPatch      = "patch."       // + place: patchAudit
	auditOmitted    = "omitted"      // number of annotations that did not fit
)

// auditedHook names the hook of a call: the value of auditPending, and a part of the others.
type auditedHook struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Stage         string `json:"stage,omitempty"` // of an initializer: the same answer has annotations of mutating hooks
}

// failOpenAudit names a call that failed open.
type failOpenAudit struct {
	auditedHook

	Kind   string `json:"kind"`
	Bypass string `json:"bypass,omitempty"` // match.BypassFailOpen for a fail-closed hook
	Where  string `json:"where"`            // culprit
}

// mutationAudit names a call that changed the object, as MutationAuditAnnotation of kube-apiserver's mutating plugin does.
type mutationAudit struct {
	auditedHook

	Mutated bool `json:"mutated"`
}

// patchAudit is kube-apiserver's PatchAuditAnnotation without the values of the patch, which may be secrets: annotations
// of hooks are stored at the level Metadata.
type patchAudit struct {
	auditedHook

	Patch     []patchOperation `json:"patch"`
	Omitted   int              `json:"omitted,omitempty"` // operations that are not listed
	PatchType string           `json:"patchType"`
	Digest    string           `json:"digest"` // of the patch as the hook wrote it
}

// patchOperation is the kind and the place of one operation of a patch.
type patchOperation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	From string `json:"from,omitempty"`
}

// annotations collects the audit annotations of an answer within maxAuditBytes.
type annotations struct {
	hooks   []*match.Hook // the candidates
	values  map[string]string
	bytes   int
	omitted int
}

// annotationsOf returns the audit annotations of an answer, the most important first, since the last ones may find no space:
// the revision, hooks that failed open or are pending, and calls that changed the object; then the annotations of the hooks
// themselves, also of those that deny (SEMANTICS C43), and last the operations of the patches.
func annotationsOf(o *Options, calls []*call) map[string]string {
	a := &annotations{hooks: o.Hooks, values: make(map[string]string, 1)}
	a.add(AuditRevision, o.Revision)
	for _, c := range calls {
		switch effect, reason := c.effect(); {
		case effect == FailedOpen:
			a.addAt(auditFailedOpen+auditType(c.Hook), c, failOpenAudit{c.audited(), c.result.Failure.Kind.String(), bypassOf(c.Hook), culprit(c, identified(o))})
		case effect == Skipped && reason == match.SkipPending:
			a.addAt(auditPending+auditType(c.Hook), c, c.audited())
		}
	}
	for _, c := range calls {
		if c.patched {
			a.addAt(auditMutation, c, mutationAudit{c.audited(), true})
		}
	}
	for _, c := range calls {
		a.addOwn(c)
	}
	for _, c := range calls {
		if c.patched {
			a.addAt(auditPatch, c, patchOf(c))
		}
	}
	if a.omitted > 0 {
		a.values[auditOmitted] = strconv.Itoa(a.omitted)
	}
	return a.values
}

// auditType distinguishes the stages in keys, as kube-apiserver does: one answer may have failures of both.
func auditType(h *match.Hook) string {
	if h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return "validating."
	}
	return "mutation."
}

// addAt adds an annotation about a call. Its key ends with round and index of the call as kube-apiserver spells them. The index
// is that among the candidates.
func (a *annotations) addAt(key string, c *call, value any) {
	raw, _ := json.Marshal(value) //nolint:errchkjson // strings and numbers never fail
	a.add(fmt.Sprintf("%sround_%d_index_%d", key, c.Round, slices.Index(a.hooks, c.Hook)), string(raw))
}

// bypassOf returns the kind of the bypass by which a call of a hook has failed open; empty if that was its failure policy.
func bypassOf(h *match.Hook) string {
	if h.FailsClosed() {
		return match.BypassFailOpen
	}
	return ""
}

func (c *call) audited() auditedHook {
	return auditedHook{c.Hook.ID.Configuration, c.Hook.ID.Name, OwnStage(c.Hook)}
}

// addOwn adds the annotations of the hook of a call, within maxCallAuditBytes.
func (a *annotations) addOwn(c *call) {
	own := c.reportedVerdict().GetAuditAnnotations()
	if len(own) == 0 {
		return
	}
	remaining := maxCallAuditBytes
	for _, key := range slices.Sorted(maps.Keys(own)) {
		name, value := auditKey(c.Hook.ID.Name, key), own[key]
		if size := len(name) + len(value); size > remaining {
			a.omitted++
		} else if a.add(name, value) {
			remaining -= size
		}
	}
}

// add adds an annotation if it fits, and reports whether it did. The first value of a key stays (SEMANTICS C42).
func (a *annotations) add(key, value string) bool {
	if _, taken := a.values[key]; taken {
		return false
	}
	// auditOmitted has to fit too.
	if a.bytes+len(key)+len(value) > maxAuditBytes-len(auditOmitted)-len("999999") {
		a.omitted++
		return false
	}
	a.bytes += len(key) + len(value)
	a.values[key] = value
	return true
}

func patchOf(c *call) patchAudit {
	patch := c.result.Verdict.GetPatch()
	sum := sha256.Sum256(patch)
	out := patchAudit{
		auditedHook: c.audited(), Patch: []patchOperation{},
		PatchType: c.result.Verdict.GetPatchType(), Digest: "sha256:" + hex.EncodeToString(sum[:]),
	}
	var operations []patchOperation
	if err := json.Unmarshal(patch, &operations); err != nil {
		return out // it was applied: only the digest is known
	}
	for _, o := range operations[:min(len(operations), maxAuditOperations)] {
		listed := patchOperation{Op: firstBytes(o.Op, maxAuditPath), Path: firstBytes(o.Path, maxAuditPath)}
		if o.Op == "move" || o.Op == "copy" {
			listed.From = firstBytes(o.From, maxAuditPath)
		}
		out.Patch = append(out.Patch, listed)
	}
	out.Omitted = len(operations) - len(out.Patch)
	return out
}

// firstBytes returns the first n bytes of a text, in whole characters.
func firstBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// auditKey makes a key that the API server accepts from the name of a hook and a key of the hook: other characters become "_",
// and if it is too long, the name is cut and a digest added. It accepts any input, so that no review fails for a key.
func auditKey(hook, key string) string {
	whole := hook + "." + key
	clean := strings.Trim(qualifiedName(whole), "-_.")
	if clean != "" && len(clean) <= maxAuditKey {
		return clean
	}
	const digestBytes, keyBytes = 6, 32
	sum := sha256.Sum256([]byte(whole))
	digest := hex.EncodeToString(sum[:digestBytes])
	key = qualifiedName(key)
	tail := "." + key[:min(len(key), keyBytes)]
	hook = qualifiedName(hook)
	head := hook[:min(len(hook), maxAuditKey-len("-")-len(digest)-len(tail))]
	return strings.Trim(head+"-"+digest+tail, "-_.")
}

// qualifiedName replaces the characters that qualified names do not have.
func qualifiedName(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, text)
}
