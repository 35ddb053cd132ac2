package etcdstore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Record is one object as it is stored: the manifest and its history. It is immutable once it was read.
type Record struct {
	// Key is the object.
	Key config.Key `json:"-"`
	// Manifest is the author's, as JSON.
	Manifest json.RawMessage `json:"manifest"`
	// UID distinguishes objects of one name of which one was created after the other was deleted.
	UID string `json:"uid"`
	// Generation counts the versions of the manifest, from 1.
	Generation int64 `json:"generation"`
	// Actor is the identity that wrote it last.
	Actor string `json:"actor"`
	// Created and Changed are when it was written first and last.
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	// Acknowledged holds the identity that acknowledged a danger, by code.
	Acknowledged map[string]string `json:"acknowledged,omitempty"`
	// Pending are the names of its hooks that have not been in rotation yet, sorted. A name that is lost puts its hook in rotation,
	// which is the safe side.
	Pending []string `json:"pending,omitempty"`
	// Removing means that it is deleted once no review uses it any more.
	Removing bool `json:"removing,omitempty"`

	// Revision is etcd's, of the last change of the record.
	Revision int64 `json:"-"`
	// Fault is why it cannot be read: another program has written it. Only Key and Revision are set then.
	Fault error `json:"-"`
}

// Change describes one transaction.
type Change struct {
	// ID is set by Commit, which recognises its own change by it.
	ID string `json:"id,omitempty"`
	// Revision is etcd's, of the transaction. Set when it is read.
	Revision int64 `json:"-"`
	// At is the time of the change.
	At time.Time `json:"at"`
	// Actor is the identity that asked for it.
	Actor string `json:"actor"`
	// Actions describe it, a sentence each.
	Actions []string `json:"actions"`
	// Keys are the changed objects, as KIND/NAME.
	Keys []string `json:"keys"`
	// Acknowledged are the codes of dangers that the actor acknowledged.
	Acknowledged []string `json:"acknowledged,omitempty"`
}

func decodeRecord(key config.Key, value []byte, revision int64) *Record {
	r := &Record{}
	if err := json.Unmarshal(value, r); err != nil {
		r = &Record{Fault: fmt.Errorf("etcd holds it in a form that cannot be read, which no portcullis has written: %w", err)}
	}
	r.Key, r.Revision = key, revision
	return r
}
