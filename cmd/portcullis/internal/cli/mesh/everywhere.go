package mesh

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

const (
	// askedAtOnce is how many dispatchers are asked at the same time.
	askedAtOnce = 8
	// otherTimeout bounds the answer of each other dispatcher at each of its addresses.
	otherTimeout = 5 * time.Second
)

// Clients call the services of one dispatcher.
type Clients struct {
	Config       configv1.ConfigServiceClient
	Analysis     analysisv1.AnalysisServiceClient
	Initializers initializerv1.InitializerServiceClient
}

// Mesh reaches all dispatchers.
type Mesh struct {
	// Clients are of the dispatcher at the address that was given.
	Clients

	// Dial opens a channel to another dispatcher, at its listener for hosts, and the caller closes it; nil if the others are not asked.
	Dial func(address string) (Clients, io.Closer, error)
	// Notes receives a line about dispatchers that do not answer.
	Notes io.Writer
}

// New returns the mesh at an address, with a connection to it.
func New(conn grpc.ClientConnInterface, address *connect.MeshAddress, notes io.Writer) Mesh {
	clients := func(conn grpc.ClientConnInterface) Clients {
		return Clients{configv1.NewConfigServiceClient(conn), analysisv1.NewAnalysisServiceClient(conn), initializerv1.NewInitializerServiceClient(conn)}
	}
	dial := func(another string) (Clients, io.Closer, error) {
		other, err := address.Other(another)
		if err != nil {
			return Clients{}, nil, err
		}
		return clients(other), other, nil
	}
	return Mesh{Clients: clients(conn), Dial: dial, Notes: notes}
}

// fromDispatcher is an answer that names the dispatcher that gave it.
type fromDispatcher interface{ GetDispatcherId() string }

// Everywhere asks the dispatcher at the other end of the client, and the others at their addresses. It notes the dispatchers that do not
// answer, and returns the answers of the rest. The first answer is the client's.
func Everywhere[T fromDispatcher](ctx context.Context, m Mesh, ask func(context.Context, Clients) (T, error)) ([]T, error) {
	first, err := ask(ctx, m.Clients)
	if err != nil {
		return nil, err
	}
	answers := []T{first}
	all, err := m.Config.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	switch {
	case err != nil:
		fmt.Fprintf(m.Notes, "this is of dispatcher %s alone: the others are not known (%s)\n", printer.Text(first.GetDispatcherId()), reason(err))
		return answers, nil
	case all.GetNoStore():
		fmt.Fprintf(m.Notes, "this is of dispatcher %s alone: there is no store, by which it would know others\n", printer.Text(first.GetDispatcherId()))
		return answers, nil
	}
	asked, failed := make([]*T, len(all.GetDispatchers())), make([]error, len(all.GetDispatchers()))
	var g errgroup.Group
	g.SetLimit(askedAtOnce)
	for i, d := range all.GetDispatchers() {
		if d.GetDispatcherId() == first.GetDispatcherId() {
			continue
		}
		g.Go(func() error {
			asked[i], failed[i] = askOther(ctx, m, d, ask)
			return nil
		})
	}
	_ = g.Wait() // failed has the errors
	var silent []string
	for i, d := range all.GetDispatchers() {
		switch {
		case asked[i] != nil:
			answers = append(answers, *asked[i])
		case failed[i] != nil:
			silent = append(silent, fmt.Sprintf("%s %s", printer.Text(d.GetDispatcherId()), reason(failed[i])))
		}
	}
	if len(silent) > 0 {
		fmt.Fprintf(m.Notes, "this is of %d of %d dispatchers: %s\n", len(answers), len(answers)+len(silent), strings.Join(silent, "; "))
	}
	return answers, nil
}

// askOther asks a dispatcher at its addresses, one after the other.
func askOther[T fromDispatcher](
	ctx context.Context, m Mesh, d *configv1.DispatcherStatus, ask func(context.Context, Clients) (T, error),
) (*T, error) {
	if len(d.GetAddresses()) == 0 || m.Dial == nil {
		return nil, fmt.Errorf("has no address (serve --advertise-hosts)")
	}
	var last error
	for _, address := range d.GetAddresses() {
		answer, err := askAt(ctx, m, address, ask)
		switch {
		case err != nil:
			last = fmt.Errorf("does not answer at %s: %s", address, reason(err))
		case answer.GetDispatcherId() != d.GetDispatcherId():
			last = fmt.Errorf("is not at %s: %s answers there", address, answer.GetDispatcherId())
		default:
			return &answer, nil
		}
	}
	return nil, last
}

func askAt[T any](ctx context.Context, m Mesh, address string, ask func(context.Context, Clients) (T, error)) (answer T, err error) {
	clients, closer, err := m.Dial(address)
	if err != nil {
		return answer, err
	}
	defer func() { _ = closer.Close() }()
	ctx, cancel := context.WithTimeout(ctx, otherTimeout)
	defer cancel()
	return ask(ctx, clients)
}

// reason is an error without the words of gRPC, safe to print.
func reason(err error) string { return printer.Text(status.Convert(err).Message()) }
