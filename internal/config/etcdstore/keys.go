package etcdstore

import (
	"fmt"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// keys are the names of all keys below a prefix. Names of objects may contain dots and dashes, never a slash.
type keys struct{ prefix string }

// id holds the random identity of the store, which never changes.
func (k keys) id() string { return k.prefix + "store" }

// generation counts the changes. Its modification revision is the revision of the configuration.
func (k keys) generation() string { return k.prefix + "generation" }

func (k keys) objects() string { return k.prefix + "objects/" }

func (k keys) object(key config.Key) string { return k.objects() + key.Kind + "/" + key.Name }

// objectOf returns the object of a key. Another key below objects becomes a name without kind.
func (k keys) objectOf(key string) config.Key {
	rest := strings.TrimPrefix(key, k.objects())
	kind, name, ok := strings.Cut(rest, "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return config.Key{Name: rest}
	}
	return config.Key{Kind: kind, Name: name}
}

// dispatchers is the prefix of the reports of dispatchers.
func (k keys) dispatchers() string { return k.prefix + "dispatchers/" }

func (k keys) dispatcher(id string) string { return k.dispatchers() + id }

// history is the prefix of the changes, in their order.
func (k keys) history() string { return k.prefix + "history/" }

func (k keys) change(n int64) string { return fmt.Sprintf("%s%019d", k.history(), n) }
