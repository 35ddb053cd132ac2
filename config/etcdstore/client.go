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
	// dialTimeout bounds the dial of one member; others are asked meanwhile.
	dialTimeout = 2 * time.Second
	// keepAlive is after what silence a member is asked whether it lives. gRPC asks no sooner than this; [attempt] does not
	// wait for it.
	keepAlive = 10 * time.Second
	// keepAliveTimeout is how long it may take to say so, and how long bytes may be on their way to a member that is cut off.
	keepAliveTimeout = time.Second
	// redialAfter bounds the pause between two dials of a member that is not there.
	redialAfter = time.Second
)

// requestHeadroom is what a message may have beside the request that etcd bounds, in bytes.
const requestHeadroom = 512 << 10

// DialOptions say how an external etcd is reached.
type DialOptions struct {
	// Endpoints are the URLs of its members; at least one.
	Endpoints []string
	// CAFile, CertFile and KeyFile are PEM files: the authorities of the members, and a certificate of ours. Empty means
	// those of the system, and none. Our certificate is read anew for each connection.
	CAFile, CertFile, KeyFile string
	// User and PasswordFile are for an etcd that asks for a password. Both or neither.
	User, PasswordFile string
}

// Dial returns a client of an external etcd, which the caller closes. Without a user nothing is asked yet, and etcd need
// not be there; with one it has to be, since it gives a token for the password.
func Dial(o DialOptions) (*clientv3.Client, error) {
	c := clientv3.Config{
		Endpoints: o.Endpoints, DialTimeout: dialTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout,
		PermitWithoutStream: true, Username: o.User, Logger: zap.NewNop(),
		MaxCallSendMsgSize: MaxRequestBytes + requestHeadroom, // beyond what the client would send by itself, etcd decides
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

// failFast has a call fail when no member can be reached, with the reason why. etcd's client would wait for one instead, and
// know nothing in the end but that the time is over.
//
//nolint:revive // the arguments are those that gRPC has for interceptors
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// password reads the password.
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
