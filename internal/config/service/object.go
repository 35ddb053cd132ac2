package service

import (
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// objectOf returns an object as the contract has it. The record is nil for objects of other sources.
func objectOf(o *config.Object, r *etcdstore.Record) *configv1.ConfigObject {
	out := &configv1.ConfigObject{
		Key: keyOf(o.Key), ApiVersion: o.APIVersion, Source: o.Source, Origin: o.Origin(), Manifest: &admissionv1.Object{Raw: o.Manifest},
	}
	if r == nil {
		return out
	}
	out.Source, out.Origin = etcdstore.SourceName, ""
	out.Uid, out.Generation, out.ResourceVersion, out.Actor = r.UID, r.Generation, resourceVersion(r), r.Actor
	out.Changed, out.Removing = timestamppb.New(r.Changed), r.Removing
	out.Acknowledged = r.Acknowledged
	return out
}

// statusesOf returns the statuses of reports.
func statusesOf(all []*configv1.DispatcherReport) []*configv1.DispatcherStatus {
	out := make([]*configv1.DispatcherStatus, len(all))
	for i, d := range all {
		out[i] = d.GetStatus()
	}
	return out
}

func changeOf(c *etcdstore.Change) *configv1.Change {
	out := &configv1.Change{
		Revision: revisionText(c.Revision), At: timestamppb.New(c.At), Actor: c.Actor, Actions: c.Actions, Acknowledged: c.Acknowledged,
	}
	for _, key := range c.Keys {
		kind, name, _ := strings.Cut(key, "/")
		out.Keys = append(out.Keys, &configv1.ConfigKey{Kind: kind, Name: name})
	}
	return out
}
