package custom

import (
	"fmt"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

const (
	// MaxDefaultBytes bounds the defaults that are filled into one object, as memory in bytes. A default in a list, or of additional
	// properties, is there once for each item, and defaults lie in defaults: without a bound they grow with each level.
	MaxDefaultBytes = 8 << 20
	// maxDefaultSteps bounds the looks at properties of a schema for one object.
	maxDefaultSteps = 2_000_000
	// carryFactor is how many times the defaults are there: as values, as two texts and their trees, and as a patch.
	carryFactor = 8
)

// measurement finds the values that defaulting.Default would add to an object, without adding them.
type measurement struct {
	done  func() error
	bytes int64
	steps int
}

func (m *measurement) step() error {
	if m.steps++; m.steps > maxDefaultSteps {
		return fmt.Errorf("they take more than %d looks at the schema: the object has too many items for a schema of so many properties", maxDefaultSteps)
	}
	if m.steps%(1<<16) == 0 {
		return m.done()
	}
	return nil
}

// fill counts a default of a name, and the defaults in it.
func (m *measurement) fill(name string, s *structural.Structural) error {
	if err := m.add(int64(len(name)), s.Default.Object); err != nil {
		return err
	}
	return m.walk(s.Default.Object, s)
}

func (m *measurement) add(name int64, value any) error {
	if m.bytes += name + sizeOf(value); m.bytes > MaxDefaultBytes {
		return fmt.Errorf("they add more than %d bytes to the object: make the defaults smaller, or the object", MaxDefaultBytes)
	}
	return m.step()
}

// walk goes the way of defaulting.Default.
func (m *measurement) walk(x any, s *structural.Structural) error {
	if s == nil {
		return nil
	}
	switch x := x.(type) {
	case map[string]any:
		return m.walkMap(x, s)
	case []any:
		for _, item := range x {
			if err := m.walkMember("", item, s.Items); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *measurement) walkMap(x map[string]any, s *structural.Structural) error {
	for name := range s.Properties {
		property := s.Properties[name]
		err := m.step()
		if _, found := x[name]; err == nil && !found && property.Default.Object != nil {
			err = m.fill(name, &property)
		}
		if err != nil {
			return err
		}
	}
	for name, value := range x {
		member := (*structural.Structural)(nil)
		if property, found := s.Properties[name]; found {
			member = &property
		} else if s.AdditionalProperties != nil {
			member = s.AdditionalProperties.Structural
		}
		if err := m.walkMember(name, value, member); err != nil {
			return err
		}
	}
	return nil
}

// walkMember walks a value that is there. A null that the schema does not allow gets the default.
func (m *measurement) walkMember(name string, value any, s *structural.Structural) error {
	if err := m.step(); err != nil {
		return err
	}
	if value == nil && s != nil && !s.Nullable && s.Default.Object != nil {
		return m.fill(name, s)
	}
	return m.walk(value, s)
}
