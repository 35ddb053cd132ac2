package etcdstore

import (
	"fmt"
	"strings"

	"github.com/portcullis-mesh/portcullis/config"
)

// keys are the names of everything below a prefix. Names of objects may hold dots and dashes, never a slash.
type keys struct{ prefix string }

// id holds what the store is: made once, never changed.
func (k keys) id() string { return k.prefix + "store" }

// generation counts the changes. Its modification revision is the revision of the configuration.
func (k keys) generation() string { return k.prefix + "generation" }

// objects is in front of all objects.
func (k keys) objects() string { return k.prefix + "objects/" }

func (k keys) object(key config.Key) string { return k.objects() + key.Kind + "/" + key.Name }

// objectOf is the object that a key is of. What is no object's key becomes a name without kind.
func (k keys) objectOf(key string) config.Key {
	rest := strings.TrimPrefix(key, k.objects())
	kind, name, ok := strings.Cut(rest, "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return config.Key{Name: rest}
	}
	return config.Key{Kind: kind, Name: name}
}

// dispatchers is in front of what the dispatchers say of themselves.
func (k keys) dispatchers() string { return k.prefix + "dispatchers/" }

func (k keys) dispatcher(id string) string { return k.dispatchers() + id }

// history is in front of the changes, in the order in which they were made.
func (k keys) history() string { return k.prefix + "history/" }

func (k keys) change(n int64) string { return fmt.Sprintf("%s%019d", k.history(), n) }
