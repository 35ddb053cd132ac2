package service

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// objectOf is an object as the contract has it. The record is nil for objects of other sources.
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
