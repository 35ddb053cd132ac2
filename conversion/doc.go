// Package conversion turns AdmissionReview JSON into messages and back, encodes requests for hosts, and applies and makes JSON patches. It is pure:
// bytes and messages in, bytes and messages out; no I/O, no clock, nothing logged. Every function may be called from any goroutine at once.
//
// # Ownership of bytes
//
// Objects are never copied. [DecodeReview] returns them as sub-slices of the body, [EncodeBody] refers to them, and [ApplyPatch] may return its
// argument. The caller gives up the bytes that it hands in: they must not be written any more, and live as long as anything made from them.
//
// # Accepted reviews
//
// [DecodeReview] accepts the same reviews as Kubernetes' own decoder: UniversalDeserializer of k8s.io/apimachinery/pkg/runtime/serializer over
// k8s.io/api/admission/{v1,v1beta1}, without strictness. Some of its rules surprise, and are kept:
//
//   - Fields are matched by exact case. Only the kind and the apiVersion of the review itself are found whatever their
//     case, since Kubernetes sniffs them with another decoder (serializer/json, SimpleMetaFactory.Interpret).
//   - Of duplicate keys the last one wins, but structures merge: a second "request" adds to the first. A null takes back
//     a "request", "requestKind" or "dryRun", and leaves strings and objects (object, oldObject, options) as they were.
//   - Unknown fields are skipped, whatever valid JSON they hold. A known field of another JSON type refuses the review,
//     also within a "response", which is not used.
//   - object, oldObject and options take any JSON value, a string for example; null means absent.
//   - Strings may hold invalid UTF-8 and lone surrogates, which are read as U+FFFD.
//   - Arrays and objects nest at most 10,000 deep.
//
// It differs on purpose in these points:
//
//   - A body that does not begin with "{" is refused. Kubernetes' deserializer would go on to try YAML and protobuf; API
//     servers send JSON to webhooks and nothing else, and an HTTP edge that guesses formats is an attack surface.
//   - Kinds other than AdmissionReview, which Kubernetes' scheme also knows in the group (ListOptions, for example), are
//     refused, and so are reviews without a request or without a uid: they could not be judged or not be answered.
//   - object, oldObject and options are well-formed Unicode ([CheckText]): strict webhooks could not read the review otherwise. API
//     servers write each object anew.
//
// # Reviews of Kubernetes 1.7 and 1.8
//
// admission.k8s.io/v1alpha1 is read by the same rules and the types of its time, which no module has any more: the request lies under "spec", the
// verdict under "status", and both are structures, so that null changes nothing. There is no uid, since an answer belongs to the connection that it
// comes by; no patch, for its webhooks only validated; and no word of the client's own version, options or dryRun. A spec has to be there.
//
// # Patches
//
// [ApplyPatch] is RFC 6902 as gopkg.in/evanphx/json-patch.v4 applies it, the library that kube-apiserver uses, with kube-apiserver's limit on the
// bytes that copy operations add, and limits of ours on the number of operations and the bytes that they move. Members of objects that a patch path
// goes through come out sorted by name, and only the last of duplicate ones; everything else keeps its bytes, but for white space, the escaping of <,
// > and &, and U+FFFD in the place of bytes that are no text. Both sides of [DiffPatch] are read as Kubernetes reads untyped objects, so that numbers
// keep their spelling.
//
// [Raw] is for objects without a Go type; package builtin has the Go types of Kubernetes. [Rebase] carries a change back to the object itself: a
// change of another version of it, or by a program that knows fewer of its fields.
package conversion
