package netns_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/netns"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// echoOn, when set, makes this test binary a server on that address that
// says every line again.
const echoOn = "NETNS_TEST_ECHO_ON"

func TestMain(m *testing.M) {
	if address := os.Getenv(echoOn); address != "" {
		if err := echo(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func echo(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(conn, conn) }() // until the caller has enough
	}
}

// talk is a connection to an echo in another namespace.
type talk struct {
	net.Conn
	lines *bufio.Reader
	there *netns.Namespace
}

func newTalk(t *testing.T) (*netns.Link, talk) {
	t.Helper()
	network := netns.New(t)
	here, there := network.Here(), network.Namespace(t)
	link := network.Link(t, here, there)
	address := net.JoinHostPort(there.Address(), "7")
	path, args := there.Command(os.Args[0], nil)
	server, err := process.Start(process.Command{
		Path: path, Args: args, Env: []string{echoOn + "=" + address}, LogFile: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			return link, talk{conn, bufio.NewReader(conn), there}
		}
		select {
		case <-server.Exited():
			t.Fatal(server.Tail(10))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// hears says a line and waits that long for its echo.
func (c talk) hears(line string, patience time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return err
	}
	return c.listen(line)
}

func (c talk) listen(line string) error {
	got, err := c.lines.ReadString('\n')
	if err == nil && got != line+"\n" {
		err = fmt.Errorf("heard %q, want %q", got, line)
	}
	return err
}

func TestALinkThatIsCutDropsPacketsUntilItIsMended(t *testing.T) {
	citest.Gate(t, "needs root and TUN devices")
	link, talk := newTalk(t)
	if err := talk.hears("hello", time.Minute); err != nil {
		t.Fatal(err)
	}

	link.Cut()
	if err := talk.hears("nobody hears me", 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the link is cut: %v, want silence", err)
	}

	link.Mend()
	if err := talk.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := talk.listen("nobody hears me"); err != nil { // TCP has sent it again
		t.Fatal(err)
	}
}

func TestALinkThatIsCutInOneDirectionCarriesTheOther(t *testing.T) {
	citest.Gate(t, "needs root and TUN devices")
	link, talk := newTalk(t)
	for name, cut := range map[string]func(*netns.Namespace){"mute": link.Mute, "deaf": link.Deafen} {
		if err := talk.hears("hello", time.Minute); err != nil {
			t.Fatal(err)
		}
		cut(talk.there)
		carried := link.Carried(talk.there)
		if err := talk.hears(name, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: %v, want silence", name, err)
		}
		if passes := link.Carried(talk.there) > carried; passes != (name == "mute") {
			t.Errorf("%s: what goes there passes: %t", name, passes)
		}
		link.Mend()
		if err := talk.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := talk.listen(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASlowLinkTakesItsTime(t *testing.T) {
	citest.Gate(t, "needs root and TUN devices")
	const delay = 50 * time.Millisecond
	link, talk := newTalk(t)
	link.Slow(delay, 1<<20)

	begun := time.Now()
	if err := talk.hears("hello", time.Minute); err != nil {
		t.Fatal(err)
	}
	// Not a measurement: there and back is never faster than twice the delay.
	if took := time.Since(begun); took < 2*delay {
		t.Errorf("there and back in %v, with a delay of %v each way", took, delay)
	}
}
