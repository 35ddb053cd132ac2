package measure

import (
	"os"
	"runtime"
	"testing"
)

func TestTheTimeOfAProcessIsItsOwn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the time of another process is known on Linux only")
	}
	before := Own()
	got, err := Process(os.Getpid())
	if err != nil || got < before {
		t.Errorf("got %s, %v, and this process has used %s at least", got, err, before)
	}
	if _, err := Process(1 << 27); err == nil {
		t.Error("a process that is none has used processors")
	}
}
