package connect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// Usage is the part of a help text about finding the mesh.
const Usage = `
The mesh is found by the ready file that "portcullis dev --ready-file" writes, or by the address of the listener for hosts
(serve --listen-hosts) and a client certificate whose identity has a role: --operator of serve names the first one, and
Roles the others. --context takes both from the settings file: "portcullis config --help" shows it.
`

// MeshAddress is a running mesh and how to be let in.
type MeshAddress struct {
	readyFile     string
	Server        string       // host:port
	CA, cert, key string       // PEM files
	bridge        string       // URL of the listener for API servers, of the ready file
	name          string       // that the certificate has to have; empty means the host of Server
	credentials   *Credentials // of the newest Dial
}

// Bind makes the flags.
func (t *MeshAddress) Bind(f *pflag.FlagSet) {
	f.StringVar(&t.readyFile, "ready-file", "", "file that a running mesh wrote; it sets the flags below that are not given")
	f.StringVar(&t.Server, "server", "", "host:port of the mesh's listener for hosts")
	f.StringVar(&t.CA, "ca", "", "PEM file of the authorities of its certificate")
	f.StringVar(&t.cert, "cert", "", "PEM file of our certificate, by whose identity the mesh knows who calls")
	f.StringVar(&t.key, "key", "", "PEM file of its key")
}

// Given reports whether a flag names the mesh.
func (t *MeshAddress) Given() bool { return t.readyFile != "" || t.Server != "" }

func (t *MeshAddress) complete() error {
	if t.readyFile != "" {
		if err := t.fromReadyFile(); err != nil {
			return err
		}
	}
	t.Server = strings.TrimSuffix(strings.TrimPrefix(t.Server, "https://"), "/")
	switch {
	case t.Server == "":
		return errors.New("say which mesh: --ready-file FILE (`portcullis dev --ready-file FILE` writes it), or --server, --ca, --cert and --key, " +
			"or a --context of the settings (`portcullis config --help`)")
	case t.CA == "":
		return errors.New("--ca is missing: the certificate of the mesh has to be checked")
	case t.cert == "" || t.key == "":
		return errors.New("--cert and --key are missing: the mesh has to know who calls (`portcullis certs issue client` makes them)")
	}
	if _, port, err := net.SplitHostPort(t.Server); err != nil || port == "" {
		return fmt.Errorf("--server %q: name host and port, for example mesh.example.com:8444", t.Server)
	}
	return nil
}

func (t *MeshAddress) fromReadyFile() error {
	data, err := os.ReadFile(t.readyFile)
	if err != nil {
		return fmt.Errorf("ready file: %w: is the mesh running, and was it told to write the file?", err)
	}
	var info struct { // the part that commands read
		Hosts      string `json:"hosts"`
		Bridge     string `json:"bridge"`
		CA         string `json:"ca"`
		ClientCert string `json:"clientCert"`
		ClientKey  string `json:"clientKey"`
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return fmt.Errorf("ready file %s: %w", t.readyFile, err)
	}
	if t.Server == "" && info.Hosts == "" {
		return fmt.Errorf("ready file %s: it names no listener for hosts: did a running mesh write it?", t.readyFile)
	}
	t.Server, t.bridge = cmp.Or(t.Server, info.Hosts), info.Bridge
	t.CA = cmp.Or(t.CA, info.CA)
	if t.cert == "" && t.key == "" {
		t.cert, t.key = info.ClientCert, info.ClientKey
	}
	return nil
}

// Other opens a channel to another dispatcher of the mesh, whose address this one knows, with the same files. Its certificate is checked by
// the host of Server, as hosts do. The caller closes the channel. Dial has to have been called.
func (t *MeshAddress) Other(address string) (*grpc.ClientConn, error) {
	other := *t
	other.readyFile, other.Server, other.name = "", address, t.serverName()
	return other.Dial(maxConfigurationBytes)
}

func (t *MeshAddress) serverName() string {
	if t.name != "" {
		return t.name
	}
	host, _, _ := net.SplitHostPort(t.Server)
	return host
}

// Dial opens a channel to the mesh, over which an answer may have so many bytes; nothing is sent before the first call. The
// caller closes it.
func (t *MeshAddress) Dial(largest int) (*grpc.ClientConn, error) {
	if err := t.complete(); err != nil {
		return nil, err
	}
	files, err := certs.OpenReloader(certs.ReloaderOptions{
		CertFile: t.cert, KeyFile: t.key, CAFile: t.CA,
	})
	if err != nil {
		return nil, fmt.Errorf("certificates for %s: %w; %s", t.Server, err, lookFurther)
	}
	t.credentials = NewCredentials(files, t.serverName())
	conn, err := grpc.NewClient("passthrough:///"+t.Server,
		grpc.WithTransportCredentials(t.credentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)))
	if err != nil {
		return nil, fmt.Errorf("--server %s: %w", t.Server, err)
	}
	return conn, nil
}

// MaxAnswerBytes is the largest answer about one review that is read: a patch may carry a whole object, twice, in base64.
const MaxAnswerBytes = 32 << 20

// maxConfigurationBytes is the largest answer about the configuration that is read: all objects at once.
const maxConfigurationBytes = 1 << 30

// Config calls use with a client of ConfigService and a context that lasts for the timeout; 0 sets none. It returns the error of use
// in the words of the command line.
func (t *MeshAddress) Config(
	ctx context.Context, timeout time.Duration, use func(context.Context, configv1.ConfigServiceClient) error,
) error {
	return t.Use(ctx, timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		return use(ctx, configv1.NewConfigServiceClient(conn))
	})
}

// Use is Config for any service.
func (t *MeshAddress) Use(ctx context.Context, timeout time.Duration, use func(context.Context, grpc.ClientConnInterface) error) error {
	conn, err := t.Dial(maxConfigurationBytes)
	if err != nil {
		return err
	}
	defer conn.Close()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err = use(ctx, conn)
	s, ok := status.FromError(err)
	switch {
	case err == nil || !ok:
		return err
	case t.Refusal(err) != nil:
		return t.Refusal(err)
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("%s does not know this call: it is older than this command", t.Server)
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("%s has not answered in time (--timeout): %s", t.Server, s.Message())
	case s.Code() == codes.Unavailable:
		return fmt.Errorf("%s does not answer: %s", t.Server, s.Message())
	}
	told := errors.New(s.Message())
	if saysNo(s.Code()) {
		return cli.Refused(told)
	}
	return told
}

// Refusal is why a call over the channel of Dial had no answer, if that was the TLS of the connection or an address of another listener, and else nil.
func (t *MeshAddress) Refusal(err error) error {
	if speaksHTTP(status.Convert(err).Message()) {
		return fmt.Errorf("%s is a listener for HTTP, as that for the JSON of API servers is (serve --listen, often port 8443): "+
			"--server wants the listener for hosts (serve --listen-hosts, often port 8444)", t.Server)
	}
	if code := status.Code(err); t.credentials == nil || code != codes.Unavailable && code != codes.DeadlineExceeded {
		return nil
	}
	if refused := t.credentials.Err(); refused != nil {
		return fmt.Errorf("%s: %w; %s", t.Server, refused, lookFurther)
	}
	return nil
}

const lookFurther = "`portcullis check` with the same flags looks at all certificates"

// speaksHTTP reports whether an error of gRPC comes from a server of HTTP that knows no gRPC.
func speaksHTTP(message string) bool {
	return slices.ContainsFunc([]string{
		"unexpected HTTP status code received from server", "received unexpected content-type", "missing selected ALPN property",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// saysNo reports whether a code of gRPC is an answer, and not the lack of one.
func saysNo(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.Aborted:
		return true
	default:
		return false
	}
}
