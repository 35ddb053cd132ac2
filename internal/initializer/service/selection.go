package service

import (
	"slices"
	"strconv"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// selection is the part of the staged objects that a reader of a list or a watch asks for and sees.
type selection struct {
	*view

	r *initializerv1.ListRequest
}

// has reports whether an object belongs to the selection.
func (s selection) has(o *initializerv1.StagedObject) bool {
	if first := s.r.GetFirstPending(); first != "" && (len(o.GetPending()) == 0 || initializer.NameOf(o.GetPending()[0]) != first) {
		return false
	}
	return s.names(o.GetKey()) && s.sees(o)
}

// names reports whether the selection is about objects of a key.
func (s selection) names(key *initializerv1.StagedKey) bool {
	if c := s.r.GetCluster(); c != "" && c != key.GetCluster() {
		return false
	}
	if n := s.r.GetNamespace(); n != "" && n != key.GetNamespace() {
		return false
	}
	want, got := s.r.GetResource(), key.GetResource()
	return want == nil || want.GetGroup() == got.GetGroup() && want.GetResource() == got.GetResource() &&
		(want.GetVersion() == "" || want.GetVersion() == got.GetVersion())
}

// message returns a change as the reader sees it; nil if it does not.
func (s selection) message(e staged.Event) *initializerv1.WatchResponse {
	if e.Type == initializerv1.EventType_EVENT_TYPE_BOOKMARK {
		return bookmark(strconv.FormatInt(e.Revision, 10))
	}
	gone, added := e.Type == initializerv1.EventType_EVENT_TYPE_DELETED, e.Type == initializerv1.EventType_EVENT_TYPE_ADDED
	unknown := e.Previous == nil && !added // the reader may have been sent the object before it came back
	before := e.Previous != nil && s.has(e.Previous)
	switch now := !gone && s.has(e.Object); {
	case now && (before || unknown):
		return &initializerv1.WatchResponse{Type: initializerv1.EventType_EVENT_TYPE_MODIFIED, Object: s.show(e.Object)}
	case now:
		return &initializerv1.WatchResponse{Type: initializerv1.EventType_EVENT_TYPE_ADDED, Object: s.show(e.Object)}
	case before:
		last := s.show(e.Previous)
		last.ResourceVersion = e.Object.GetResourceVersion()
		return &initializerv1.WatchResponse{Type: initializerv1.EventType_EVENT_TYPE_DELETED, Object: last}
	case unknown && s.names(e.Object.GetKey()) && s.mayHaveSeen(e.Object):
		return &initializerv1.WatchResponse{Type: initializerv1.EventType_EVENT_TYPE_DELETED, Object: bare(e.Object)}
	}
	return nil
}

// mayHaveSeen reports whether the reader may have seen an object in an earlier state: it is granted any initializer of the cluster.
func (s selection) mayHaveSeen(o *initializerv1.StagedObject) bool {
	return s.sees(o) || slices.ContainsFunc(s.Initializers, func(i Initializer) bool { return i.in(o.GetKey().GetCluster()) })
}

// bare returns an object with nothing but its identity.
func bare(o *initializerv1.StagedObject) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: o.GetKey(), Uid: o.GetUid(), ResourceVersion: o.GetResourceVersion(), Kind: o.GetKind(), Created: o.GetCreated(),
	}
}

// bookmark is the message that follows everything up to a version.
func bookmark(version string) *initializerv1.WatchResponse {
	return &initializerv1.WatchResponse{
		Type: initializerv1.EventType_EVENT_TYPE_BOOKMARK, Object: &initializerv1.StagedObject{ResourceVersion: version},
	}
}
