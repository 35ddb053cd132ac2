package citest

import (
	"net"
	"testing"
)

func TestAFreePortIsNotOneThatOthersGet(t *testing.T) {
	var listening net.ListenConfig
	for range 20 {
		address, err := FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		mine, err := listening.Listen(t.Context(), "tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		given, err := listening.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if port := given.Addr().(*net.TCPAddr).Port; port <= lastPort {
			t.Errorf("the system gives port %d, which is among the free ones", port)
		}
		_, _ = mine.Close(), given.Close()
	}
}
