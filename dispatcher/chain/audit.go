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

// Limits of the audit annotations of one answer. Kubernetes knows only that of keys. An API server that bounds its audit
// events discards an event that is still too long without its objects, by default at 100 KiB: a request that meets six
// entries of ours must not lose its event.
const (
	// maxAuditKey is the most characters of a key: the API server stores it as <entry>/<key> and takes at most 63 behind the
	// slash (SEMANTICS C42).
	maxAuditKey = 63
	// maxAuditBytes is the most bytes of all keys and values.
	maxAuditBytes = 16 << 10
	// maxCallAuditBytes is the most bytes of those of one call, so that one hook does not use up the room of all.
	maxCallAuditBytes = 8 << 10
	// maxAuditOperations is how many operations of a patch are listed; the digest covers all.
	maxAuditOperations = 32
	// maxAuditPath is the most bytes of a path that is listed.
	maxAuditPath = 128
)

// AuditRevision is the key of the annotation that every answer has: the revision of the configuration that judged.
const AuditRevision = "revision"

// Keys of our own annotations. No hook's can be one of them: those begin with the hook's name, of three segments at
// least and without an underscore.
const (
	auditFailedOpen = "failed-open." // + type + place: openAudit
	auditPending    = "pending."     // + type + place: pendingAudit
	auditMutation   = "mutation."    // + place: mutationAudit
	auditPatch      = "patch."       // + place: patchAudit
	auditOmitted    = "omitted"      // how many annotations found no room
)

// openAudit says which call had no verdict and was let pass.
type openAudit struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Kind          string `json:"kind"`
}

// pendingAudit says which hook was not asked because it has not been in rotation yet.
type pendingAudit struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
}

// mutationAudit says which call changed the object, as MutationAuditAnnotation of kube-apiserver's mutating plugin does.
type mutationAudit struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

// patchAudit is kube-apiserver's PatchAuditAnnotation without the values of the patch, which may be secrets: annotations
// of hooks are stored at the level Metadata.
type patchAudit struct {
	Configuration string           `json:"configuration"`
	Webhook       string           `json:"webhook"`
	Patch         []patchOperation `json:"patch"`
	Omitted       int              `json:"omitted,omitempty"` // operations that are not listed
	PatchType     string           `json:"patchType"`
	Digest        string           `json:"digest"` // of the patch as the hook wrote it
}

// patchOperation is what an operation of a patch does, and where.
type patchOperation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	From string `json:"from,omitempty"`
}

// annotations are the audit annotations of an answer in the making.
type annotations struct {
	values  map[string]string
	bytes   int
	omitted int
}

// annotationsOf is what the audit log is to know of a review. What is most needed to understand it comes first, so that it
// is there when there is too much: what was judged by, what was not checked, and who changed the object; then what hooks
// say themselves, also those that deny (SEMANTICS C43), and last where they changed it.
func annotationsOf(o *Options, calls []*call) map[string]string {
	a := &annotations{values: make(map[string]string, 1)}
	a.add(AuditRevision, o.Revision)
	for _, c := range calls {
		id := c.hook.ID
		switch effect, why := c.effect(); {
		case effect == FailedOpen:
			a.add(auditFailedOpen+auditType(c.hook)+place(o.Hooks, c), encoded(openAudit{id.Configuration, id.Name, c.result.Failure.Kind.String()}))
		case effect == Skipped && why == match.SkipPending:
			a.add(auditPending+auditType(c.hook)+place(o.Hooks, c), encoded(pendingAudit{id.Configuration, id.Name}))
		}
	}
	for _, c := range calls {
		if c.patched {
			a.add(auditMutation+place(o.Hooks, c), encoded(mutationAudit{c.hook.ID.Configuration, c.hook.ID.Name, true}))
		}
	}
	for _, c := range calls {
		a.addOwn(c)
	}
	for _, c := range calls {
		if c.patched {
			a.add(auditPatch+place(o.Hooks, c), encoded(patchOf(c)))
		}
	}
	if a.omitted > 0 {
		a.values[auditOmitted] = strconv.Itoa(a.omitted)
	}
	return a.values
}

// auditType tells failures of both stages apart, which one answer may have, as kube-apiserver's keys do.
func auditType(h *match.Hook) string {
	if h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return "validating."
	}
	return "mutation."
}

// place is where a call stands in a review, in kube-apiserver's words. The index counts the hooks whose rules cover the
// request.
func place(hooks []*match.Hook, c *call) string {
	return fmt.Sprintf("round_%d_index_%d", c.round, slices.Index(hooks, c.hook))
}

// addOwn adds what a hook says itself.
func (a *annotations) addOwn(c *call) {
	own := c.spoken().GetAuditAnnotations()
	if len(own) == 0 {
		return
	}
	room := maxCallAuditBytes
	for _, key := range slices.Sorted(maps.Keys(own)) {
		name, value := auditKey(c.hook.ID.Name, key), own[key]
		if size := len(name) + len(value); size > room {
			a.omitted++
		} else if a.add(name, value) {
			room -= size
		}
	}
}

// add adds an annotation if there is room, and reports whether it did. The first value of a key stays (SEMANTICS C42).
func (a *annotations) add(key, value string) bool {
	if _, taken := a.values[key]; taken {
		return false
	}
	// Room is left for the one that says what is missing.
	if a.bytes+len(key)+len(value) > maxAuditBytes-len(auditOmitted)-len("999999") {
		a.omitted++
		return false
	}
	a.bytes += len(key) + len(value)
	a.values[key] = value
	return true
}

// encoded is a value of ours as JSON.
func encoded(v any) string {
	raw, _ := json.Marshal(v) //nolint:errchkjson // strings and numbers can always be written
	return string(raw)
}

// patchOf is what a call that changed the object says about its patch.
func patchOf(c *call) patchAudit {
	patch := c.result.Verdict.GetPatch()
	sum := sha256.Sum256(patch)
	out := patchAudit{
		Configuration: c.hook.ID.Configuration, Webhook: c.hook.ID.Name, Patch: []patchOperation{},
		PatchType: c.result.Verdict.GetPatchType(), Digest: "sha256:" + hex.EncodeToString(sum[:]),
	}
	var operations []patchOperation
	if err := json.Unmarshal(patch, &operations); err != nil {
		return out // it was applied: the digest stands for it
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

// firstBytes is the beginning of a text, in whole characters.
func firstBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// auditKey makes a key that the API server accepts of a hook's name and its own key, whatever they are: other characters
// become "_", and when both are too long together the name is cut first, and a digest tells it apart. A review never
// fails over a key.
func auditKey(hook, key string) string {
	whole := hook + "." + key
	clean := strings.Trim(qualified(whole), "-_.")
	if clean != "" && len(clean) <= maxAuditKey {
		return clean
	}
	const digestBytes, keyRoom = 6, 32
	sum := sha256.Sum256([]byte(whole))
	digest := hex.EncodeToString(sum[:digestBytes])
	key = qualified(key)
	tail := "." + key[:min(len(key), keyRoom)]
	hook = qualified(hook)
	head := hook[:min(len(hook), maxAuditKey-len("-")-len(digest)-len(tail))]
	return strings.Trim(head+"-"+digest+tail, "-_.")
}

// qualified is a text with characters of qualified names alone.
func qualified(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, text)
}
