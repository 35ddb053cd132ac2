package etcdstore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/config"
)

// Record is one object as it is stored: what its author wrote, and what is known about that. It is immutable once it was
// read.
type Record struct {
	// Key is the object.
	Key config.Key `json:"-"`
	// Manifest is what the author wrote, as JSON.
	Manifest json.RawMessage `json:"manifest"`
	// UID tells apart two objects of one name, one of which was made after the other had been deleted.
	UID string `json:"uid"`
	// Generation counts the versions of the manifest, from 1.
	Generation int64 `json:"generation"`
	// Actor is the identity that wrote it last.
	Actor string `json:"actor"`
	// Created and Changed are when it was written first and last.
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	// Acknowledged is who took which danger upon itself, by code.
	Acknowledged map[string]string `json:"acknowledged,omitempty"`
	// Pending are the names of hooks of it that have not been in rotation yet, sorted. No mark means in rotation: what is lost
	// closes, and never opens.
	Pending []string `json:"pending,omitempty"`
	// Removing says that it is to be deleted once no review is judged by it any more.
	Removing bool `json:"removing,omitempty"`

	// Revision is etcd's, of the last change of the record.
	Revision int64 `json:"-"`
	// Fault is why it cannot be read; nothing but Key and Revision is known then. Somebody else has written it.
	Fault error `json:"-"`
}

// Change is who changed what in one transaction.
type Change struct {
	// ID is set by Commit, by which it knows its own change.
	ID string `json:"id,omitempty"`
	// Revision is etcd's, of the transaction. Set when it is read.
	Revision int64 `json:"-"`
	// At is when.
	At time.Time `json:"at"`
	// Actor is the identity that asked for it.
	Actor string `json:"actor"`
	// Actions are what was done, a sentence each.
	Actions []string `json:"actions"`
	// Keys are the objects that it was about, as KIND/NAME.
	Keys []string `json:"keys"`
	// Acknowledged are the codes of dangers that the actor took upon itself.
	Acknowledged []string `json:"acknowledged,omitempty"`
}

// decodeRecord reads a stored object.
func decodeRecord(key config.Key, value []byte, revision int64) *Record {
	r := &Record{}
	if err := json.Unmarshal(value, r); err != nil {
		r = &Record{Fault: fmt.Errorf("etcd holds it in a form that cannot be read, which no portcullis has written: %w", err)}
	}
	r.Key, r.Revision = key, revision
	return r
}
