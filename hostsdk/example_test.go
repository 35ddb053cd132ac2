package hostsdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// A whole host. It runs until it gets SIGTERM, then it finishes its calls and leaves.
func Example() {
	if err := serve(); err != nil {
		fmt.Println(err)
	}
	// Output: hostsdk: client certificate: open tls.crt: no such file or directory
}

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	host, err := hostsdk.New(hostsdk.Options{
		Name:        "imagepolicy",
		Dispatchers: []string{"portcullis-hosts.portcullis-system.svc:8444"},
		TLS:         hostsdk.TLSFiles("tls.crt", "tls.key", "ca.crt"),
	}, hostsdk.Validate("imagepolicy.example.com", pinnedImages))
	if err != nil {
		return err
	}
	return host.Run(ctx)
}

// pinnedImages is a handler. It is called from many goroutines at once.
func pinnedImages(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	if bytes.Contains(r.RawObject(), []byte(":latest")) {
		return hostsdk.Deny("images must be pinned").WithCause("spec.containers", "an image is :latest"), nil
	}
	return hostsdk.Allow(), nil
}

// A handler is an ordinary function: most tests need nothing else.
func ExampleHandler() {
	request := hostsdk.NewRequest(hosttest.Create(`{"kind": "Pod", "spec": {"containers": [{"image": "a:latest"}]}}`))
	response, err := pinnedImages(context.Background(), request)
	fmt.Println(response.Allowed, response.Message, err)
	// Output: false images must be pinned <nil>
}

// A denial says why, to a person and to a program. A warning is shown whatever the verdict.
func ExampleDeny() {
	show("deny.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("image must come from registry.example.com").
			WithCode(422).WithReason("Invalid").
			WithCause("spec.containers[0].image", "is from docker.io").
			WithWarnings("see https://example.com/images"), nil
	})
	// Output: denied with 422: image must come from registry.example.com (warnings: [see https://example.com/images])
}

// An error is no denial: the hook's failurePolicy decides. Only the text of an Error leaves the process; its cause is
// logged here.
func ExampleError() {
	show("error.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return nil, hostsdk.NewError("the registry does not answer", errors.New("dial tcp 10.0.0.7:443: i/o timeout"))
	})
	// Output: failed: the registry does not answer
}

// The context of a handler ends with the time of the call. A handler that waits should heed it.
func ExampleRequest() {
	ctx, cancel := context.WithCancel(context.Background())
	showIn(ctx, "slow.example.com", func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		fmt.Printf("%s %s/%s by %s in %s\n", r.Operation(), r.Namespace(), r.Name(), r.Username(), r.Cluster())
		cancel() // The dispatcher no longer waits.
		<-ctx.Done()
		return nil, ctx.Err()
	})
	// Output:
	// CREATE default/a by hosttest in hosttest
	// cancelled
}

// show asks one validating handler and prints its verdict.
func show(hook string, handler hostsdk.Handler) { showIn(context.Background(), hook, handler) }

func showIn(ctx context.Context, hook string, handler hostsdk.Handler) {
	host, err := hostsdk.New(hostsdk.Options{Name: "example", Logger: quiet()}, hostsdk.Validate(hook, handler))
	if err != nil {
		fmt.Println(err)
		return
	}
	session, stop, err := hosttest.Connect(context.WithoutCancel(ctx), host)
	if err != nil {
		fmt.Println(err)
		return
	}
	verdict, err := session.Ask(ctx, hook, hosttest.Create(pod))
	response := verdict.GetResponse()
	switch {
	case err != nil:
		fmt.Println(err)
	case verdict.GetError() != nil:
		fmt.Printf("failed: %s\n", verdict.GetError().GetMessage())
	case verdict.GetCancelled() != nil:
		fmt.Println("cancelled")
	case response.GetAllowed():
		fmt.Println("allowed")
	default:
		fmt.Printf("denied with %d: %s (warnings: %s)\n",
			response.GetStatus().GetCode(), response.GetStatus().GetMessage(), response.GetWarnings())
	}
	if err := stop(); err != nil {
		fmt.Println(err)
	}
}
