package citest

import (
	"net"
	"testing"
)

func TestAFreePortIsNotOneThatOthersGet(t *testing.T) {
	for range 20 {
		address, err := FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		mine, err := net.Listen("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		any, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if given := any.Addr().(*net.TCPAddr).Port; given <= lastPort {
			t.Errorf("the system gives port %d, which is among the free ones", given)
		}
		_, _ = mine.Close(), any.Close()
	}
}
