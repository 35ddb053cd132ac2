// Package kubernetes reads the configuration from an API server: [Source] from the ConfigMaps of one namespace that carry a label,
// of whose data each key that ends in .yaml, .yml or .json is a file, and [CustomResources] from the custom resources of
// portcullis.dev/v1. Both list from etcd of the cluster; watches report changes sooner.
package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Label marks a ConfigMap, with the value "true", whose data is configuration.
const Label = "portcullis.dev/configuration"

// SourceName is the name of the source.
const SourceName = "kubernetes"

// Options say where the ConfigMaps are. All fields are required.
type Options struct {
	// Client asks the API server, and Lists reads lists of it: see [Clients]. They may get the namespace, and list and watch ConfigMaps in it:
	// deploy/configmaps-rbac.yaml.
	Client coreclient.CoreV1Interface
	Lists  rest.Interface
	// Namespace is the only namespace that is read: an identity that may write there decides which objects every cluster
	// admits.
	Namespace string
	// Decoder reads the files.
	Decoder *config.Decoder
}

// Source is a config.Source. Its methods may be called concurrently.
type Source struct {
	o      Options
	bounds bounds
	last   atomic.Pointer[places] // of the last listing; nil before the first

	mu      sync.Mutex
	decoded config.DecodeCache[types.UID, string] // by resource version
	objects map[string]size                       // of the ConfigMaps that were decoded, by name
}

// places are the ConfigMaps of a listing that keep their place, by name.
type places struct {
	sizes map[string]size
	files map[string][]string
}

var _ config.Source = (*Source)(nil)

// New returns a source. It asks nothing yet.
func New(o Options) (*Source, error) {
	if o.Client == nil || o.Lists == nil || o.Namespace == "" || o.Decoder == nil {
		return nil, errors.New("config/kubernetes: clients, a namespace and a decoder are required")
	}
	return &Source{o: o, bounds: defaultBounds()}, nil
}

// Name implements config.Source.
func (s *Source) Name() string { return SourceName }

// List implements config.Source. It reads from etcd of the cluster, not from a cache. A namespace that does not exist, or is
// being deleted, is an error like a forbidden one: API servers answer a list of its ConfigMaps with an empty one.
func (s *Source) List(ctx context.Context) (config.Listing, error) {
	namespace, err := s.o.Client.Namespaces().Get(ctx, s.o.Namespace, metav1.GetOptions{})
	if err != nil {
		return config.Listing{}, fmt.Errorf("namespace %s of the configuration: %w", s.o.Namespace, err)
	}
	if namespace.DeletionTimestamp != nil {
		return config.Listing{}, fmt.Errorf("namespace %s of the configuration is being deleted", s.o.Namespace)
	}
	last := s.last.Load()
	first := last == nil
	if first {
		last = &places{}
	}
	all, err := s.configMaps(ctx, last)
	if err != nil {
		return frozen(first, fmt.Errorf("ConfigMaps of namespace %s: %w", s.o.Namespace, err))
	}
	sizes, refused := all.admission.end()
	next := &places{sizes: sizes, files: make(map[string][]string, len(all.parts))}
	for name, m := range all.parts {
		next.files[name] = s.filesOf(&m)
	}
	for _, r := range refused {
		if r.grown {
			next.files[r.name] = last.files[r.name]
		}
	}
	s.last.Store(next)
	return s.listing(slices.Collect(maps.Values(all.parts)), refused, s.problemsOf(refused, next.files)), nil
}

// problemsOf are the problems of ConfigMaps that do not count. The last good objects of the files that they had stay in force.
func (s *Source) problemsOf(refused []refusal, files map[string][]string) config.Problems {
	return problemsOf(refused, s.bounds.kept, path.Join("configmaps", s.o.Namespace), func(name string) []string {
		if had := files[name]; len(had) > 0 {
			return had
		}
		return []string{path.Join("configmaps", s.o.Namespace, name)}
	})
}

// filesOf are the files of a ConfigMap, in order.
func (s *Source) filesOf(m *configMap) (files []string) {
	for _, key := range slices.Sorted(maps.Keys(m.files)) {
		files = append(files, path.Join("configmaps", s.o.Namespace, m.name, key))
	}
	return files
}

// configMap is the part of a ConfigMap that is kept.
type configMap struct {
	name            string
	created         time.Time
	uid             types.UID
	resourceVersion string
	files           map[string]string // by key
	ignored         []string          // keys whose values are not read: the first maxIgnored
	binary          []string          // likewise of binaryData
	more            int               // of both that are not named
}

// maxIgnored bounds the keys of a ConfigMap that are named as not read.
const maxIgnored = 16

// configMaps are all that carry the label, as far as they count.
func (s *Source) configMaps(ctx context.Context, last *places) (shelf[configMap], error) {
	all := shelf[configMap]{admission: admit(s.bounds.kept, last.sizes), parts: map[string]configMap{}}
	r := reading{lists: s.o.Lists, bounds: s.bounds}
	path := "/api/v1/namespaces/" + s.o.Namespace + "/configmaps"
	_, err := r.pages(ctx, path, metav1.ListOptions{LabelSelector: Label + "=true"}, func(raw []byte) error {
		m, err := configMapOf(raw)
		if err != nil {
			return err
		}
		return all.put(part{m.name, m.created, size{1, objectBytes + m.bytes()}}, m)
	})
	return all, err
}

// configMapOf reads a ConfigMap, and leaves out the values that are no documents.
func configMapOf(raw []byte) (configMap, error) {
	var read corev1.ConfigMap
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &read); err != nil {
		return configMap{}, err
	}
	m := configMap{name: read.Name, created: read.CreationTimestamp.Time, uid: read.UID, resourceVersion: read.ResourceVersion, files: map[string]string{}}
	for key, text := range read.Data {
		switch path.Ext(key) {
		case ".yaml", ".yml", ".json", config.RegoExt:
			m.files[key] = text
		default:
			m.ignored = append(m.ignored, key)
		}
	}
	m.binary = slices.Collect(maps.Keys(read.BinaryData))
	for _, keys := range []*[]string{&m.ignored, &m.binary} {
		slices.Sort(*keys)
		n := min(len(*keys), maxIgnored)
		m.more += len(*keys) - n
		*keys = slices.Clone((*keys)[:n])
	}
	return m, nil
}

// bytes is the memory of the parts that are kept, in bytes.
func (m *configMap) bytes() (n int64) {
	for key, text := range m.files {
		n += int64(len(key) + len(text))
	}
	for _, key := range slices.Concat(m.ignored, m.binary) {
		n += int64(len(key))
	}
	return n
}

// listing names the ConfigMaps, and leaves the decoding of changed ones to the listing.
func (s *Source) listing(all []configMap, refused []refusal, problems config.Problems) config.Listing {
	slices.SortFunc(all, func(a, b configMap) int { return strings.Compare(a.name, b.name) })
	digest := sha256.New()
	for i := range all {
		fmt.Fprintf(digest, "%s %s %s\n", all[i].name, all[i].uid, all[i].resourceVersion)
	}
	digestOf(digest, refused)
	return config.Listing{
		Revision: hex.EncodeToString(digest.Sum(nil)[:16]),
		Decode: func() ([]config.Object, config.Problems) {
			objects, wrong := s.decode(all)
			return objects, slices.Concat(wrong, problems)
		},
	}
}

// decode decodes ConfigMaps.
func (s *Source) decode(all []configMap) ([]config.Object, config.Problems) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]config.Part[types.UID, string], 0, len(all))
	for i := range all {
		m := &all[i]
		parts = append(parts, config.Part[types.UID, string]{
			Key: m.uid, Version: m.resourceVersion,
			Decode: func(b *config.Budget) ([]config.Object, config.Problems) { return s.decodeFiles(m, b) },
		})
	}
	objects, problems := s.decoded.Decode(parts)
	counts := make(map[string]int, len(all))
	for i := range objects {
		counts[nameOf(&objects[i])]++
	}
	admission, files, gone := admit(size{s.bounds.kept.objects, 0}, s.objects), map[string][]string{}, map[string]bool{}
	for i := range all {
		m := &all[i]
		files[m.name] = s.filesOf(m)
		for _, name := range admission.offer(part{m.name, m.created, size{objects: counts[m.name]}}) {
			gone[name] = true
		}
	}
	next, refused := admission.end()
	s.objects = next
	objects = slices.DeleteFunc(objects, func(o config.Object) bool { return gone[nameOf(&o)] })
	return objects, append(problems, s.problemsOf(refused, files)...)
}

// nameOf is the name of the ConfigMap that an object stands in.
func nameOf(o *config.Object) string { return path.Base(path.Dir(o.File)) }

// decodeFiles reads a ConfigMap. Its files are known by its name and their keys.
func (s *Source) decodeFiles(m *configMap, budget *config.Budget) (objects []config.Object, problems config.Problems) {
	at := path.Join("configmaps", s.o.Namespace, m.name)
	for _, key := range slices.Sorted(maps.Keys(m.files)) {
		found, wrong := s.o.Decoder.DecodeWithin(budget, path.Join(at, key), []byte(m.files[key]))
		objects, problems = append(objects, found...), append(problems, wrong...)
	}
	for _, key := range m.ignored {
		problems = append(problems, ignored(path.Join(at, key), "a key that ends in .yaml, .yml or .json is read, and no other"))
	}
	for _, key := range m.binary {
		problems = append(problems, ignored(path.Join(at, key), "binaryData is not read: use data"))
	}
	if m.more > 0 {
		problems = append(problems, ignored(at, fmt.Sprintf("%d more keys are not read", m.more)))
	}
	return objects, problems
}

func ignored(file, why string) config.Problem {
	return config.Problem{Severity: match.SeverityWarning, Code: config.CodeSource, File: file, Message: why}
}

// Watch implements config.Source. API servers end a watch every few minutes.
func (s *Source) Watch(ctx context.Context, notify func()) error {
	err := watchAll(ctx, notify, func(ctx context.Context) (watch.Interface, error) {
		return s.o.Client.ConfigMaps(s.o.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: Label + "=true"})
	})
	if err != nil {
		return fmt.Errorf("watching the ConfigMaps of namespace %s: %w", s.o.Namespace, err)
	}
	return nil
}
