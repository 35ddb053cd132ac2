package keep

import "os"

// Before has f called before each change of a file. An error of f ends the write there, as a crash does. Nothing is flushed to the disk.
func (d *Dir) Before(f func(file string) error) {
	d.write = func(file string, data []byte, mode os.FileMode) error {
		if err := f(file); err != nil {
			return err
		}
		return os.WriteFile(file, data, mode)
	}
	d.remove = func(file string) error {
		if err := f(file); err != nil {
			return err
		}
		return os.Remove(file)
	}
}
