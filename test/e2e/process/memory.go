package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryGroup is a control group of the kernel with a bound of memory. The kernel kills a process in it that needs more.
type MemoryGroup struct {
	dir string
}

// NewMemoryGroup makes a group of at most so many bytes, in version 1 or 2 of control groups. The error wraps [errors.ErrUnsupported] where
// the process may make none. The caller calls Remove when the processes in it have ended.
func NewMemoryGroup(bytes int64) (*MemoryGroup, error) {
	err := errors.ErrUnsupported
	for _, version := range []struct {
		root, limit, swap string
		mostSwap          int64
	}{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes}, {"/sys/fs/cgroup", "memory.max", "memory.swap.max", 0},
	} {
		dir, failed := os.MkdirTemp(version.root, "portcullis-")
		if failed != nil {
			continue
		}
		g := &MemoryGroup{dir: dir}
		if failed := g.limit(version.limit, bytes); failed == nil {
			_ = g.limit(version.swap, version.mostSwap) // a kernel without swap has no such file
			return g, nil
		}
		err = errors.Join(err, g.Remove())
	}
	return nil, fmt.Errorf("no control group of memory can be made: %w", err)
}

// limit writes the bound. The kernel has made the file, unless the directory is none of its control groups: then it is not created.
func (g *MemoryGroup) limit(file string, bytes int64) error {
	f, err := os.OpenFile(filepath.Join(g.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(bytes, 10))
	return errors.Join(err, f.Close())
}

// Command is a command that runs a program in the group. A nil group runs it as it is.
func (g *MemoryGroup) Command(path string, args []string) (string, []string) {
	if g == nil {
		return path, args
	}
	return "/bin/sh", append([]string{"-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"), path}, args...)
}

// Remove removes the group.
func (g *MemoryGroup) Remove() error { return os.Remove(g.dir) }

// PeakMemory is the largest resident memory of the process since its start, or since ForgetPeakMemory, in bytes.
func (p *Process) PeakMemory() (int64, error) { return p.memory("VmHWM:") }

// Memory is the resident memory of the process, in bytes.
func (p *Process) Memory() (int64, error) { return p.memory("VmRSS:") }

// memory is a line of the process's status.
func (p *Process) memory(field string) (int64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), field); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc has no %s of %s", field, p.name)
}

// ForgetPeakMemory begins the peak anew.
func (p *Process) ForgetPeakMemory() error {
	const peak = "5" // see proc_pid_clear_refs(5)
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte(peak), 0)
}
