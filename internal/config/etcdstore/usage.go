package etcdstore

import (
	"cmp"
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// defaultQuota is etcd's own, in bytes, of a member that does not tell its quota: one before 3.6.
const defaultQuota = 2 << 30

// Usage is how full the database of etcd is.
type Usage struct {
	// InUse are the bytes of the database that hold something: also old versions of keys, until they are compacted.
	InUse int64
	// Quota is the most bytes that the database may have (--quota-backend-bytes).
	Quota int64
	// Full is true while etcd has its alarm NOSPACE: it takes no write until there is room and the alarm is disarmed.
	Full bool
}

// ReadUsage asks the first member that answers. It makes no more than one attempt at each.
func ReadUsage(ctx context.Context, client *clientv3.Client) (Usage, error) {
	endpoints := client.Endpoints()
	if len(endpoints) == 0 {
		endpoints = []string{""} // an embedded etcd
	}
	var answer *clientv3.StatusResponse
	var err error
	for _, endpoint := range endpoints {
		if answer, err = client.Status(ctx, endpoint); err == nil {
			break
		}
	}
	if err != nil {
		return Usage{}, fmt.Errorf("asking etcd for its size: %w", err)
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("asking etcd for its alarms: %w", err)
	}
	u := Usage{InUse: answer.DbSizeInUse, Quota: cmp.Or(answer.DbSizeQuota, defaultQuota)}
	for _, a := range alarms.Alarms {
		u.Full = u.Full || a.GetAlarm() == etcdserverpb.AlarmType_NOSPACE
	}
	return u, nil
}
