package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Times of the client of an external etcd.
const (
	// dialTimeout bounds the dial of one member, with the TLS handshake. Members are dialled in parallel.
	dialTimeout = 5 * time.Second
	// tokenTimeout bounds the wait for the first token of a user: etcd compares passwords slowly by design, and slower beside other work.
	tokenTimeout = 10 * time.Second
	// keepAlive is the time without traffic after which gRPC pings a member, and the shortest it allows.
	keepAlive = 10 * time.Second
	// keepAliveTimeout bounds the answer to a ping, and the time that bytes to a member stay unacknowledged. A member or a dispatcher whose
	// machine is busy is late by seconds; each connection that is given up then adds a handshake to its work.
	keepAliveTimeout = 5 * time.Second
	// redialAfter bounds the pause between two dials of a member.
	redialAfter = time.Second
)

// requestHeadroom is the size that a message may have beyond the request that etcd bounds, in bytes.
const requestHeadroom = 512 << 10

// DialOptions configure the client of an external etcd.
type DialOptions struct {
	// Endpoints are the URLs of its members; at least one.
	Endpoints []string
	// CAFile, CertFile and KeyFile are PEM files: the authorities of the members, and a client certificate. Empty means the
	// authorities of the system, and no certificate. The certificate is read anew for each connection.
	CAFile, CertFile, KeyFile string
	// User and PasswordFile are for an etcd that asks for a password. Both or neither.
	User, PasswordFile string
}

// Dial returns a client of an external etcd, which the caller closes. Only with a user does it need etcd to be available, for the
// token.
func Dial(o DialOptions) (*clientv3.Client, error) {
	c := clientv3.Config{
		Endpoints: o.Endpoints, DialTimeout: tokenTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout,
		PermitWithoutStream: true, Username: o.User, Logger: zap.NewNop(),
		MaxCallSendMsgSize: MaxRequestBytes + requestHeadroom, // the client's own limit is higher, so etcd decides
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: redialAfter / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialAfter},
			MinConnectTimeout: dialTimeout,
		})},
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("our certificate and its key go together: give both or neither")
	}
	var err error
	if c.Password, err = o.password(); err != nil {
		return nil, err
	}
	if o.CAFile != "" || o.CertFile != "" {
		files := transport.TLSInfo{TrustedCAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile}
		if c.TLS, err = files.ClientConfig(); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	return client, nil
}

// failFast makes a call fail with the reason if no member can be reached. etcd's client would wait for one until the deadline.
//
//nolint:revive // the arguments are those that gRPC has for interceptors
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

func (o *DialOptions) password() (string, error) {
	if o.PasswordFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	password := strings.TrimSpace(string(data))
	if password == "" {
		return "", errors.New("password: " + o.PasswordFile + " is empty")
	}
	return password, nil
}
