package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxCapabilities bounds ClusterSpec.Capabilities: enough that several rotations may overlap. Each capability that a caller shows is
// compared with all of them.
const MaxCapabilities = 4

// Capability names a secret in the path by which API servers without a client certificate send reviews of the cluster. The document
// holds the hash of the secret alone, so that its readers cannot use it.
type Capability struct {
	// Name identifies the capability in its cluster, in metrics and messages. A DNS subdomain.
	Name string `json:"name"`
	// SHA256 is the SHA-256 of the secret, in 64 lower-case hexadecimal digits, as `portcullis cluster capability new` prints it.
	SHA256 string `json:"sha256"`
	// NotAfter is the last moment at which the capability is accepted, as RFC 3339 writes it ("2027-01-31T00:00:00Z"). Empty means
	// that it does not expire.
	NotAfter string `json:"notAfter,omitempty"`
}

// Bounds of ClusterSpec.RotateCapability. Three times the least is how long a cluster goes on whose entries nothing can write. With the
// most, a capability that was disclosed is good for 360 days at most.
const (
	MinCapabilityPeriod = time.Hour
	MaxCapabilityPeriod = 90 * 24 * time.Hour
)

const (
	// MaxCapabilityName bounds Capability.Name, which is a label of metrics.
	MaxCapabilityName = 63
	// sumUsage describes the hash of a capability.
	sumUsage = "the SHA-256 of the capability in 64 lower-case hexadecimal digits (`portcullis cluster capability new` prints it)"
)

// Sum is SHA256 as bytes. The capability must be valid.
func (c *Capability) Sum() (sum [sha256.Size]byte) {
	_, _ = hex.Decode(sum[:], []byte(c.SHA256))
	return sum
}

// Expires is NotAfter as a time; the zero time means never. The capability must be valid.
func (c *Capability) Expires() time.Time {
	at, _ := time.Parse(time.RFC3339, c.NotAfter)
	return at
}

// validateCapabilities checks the capabilities of a cluster.
func validateCapabilities(capabilities []Capability, path *field.Path) field.ErrorList {
	if len(capabilities) > MaxCapabilities {
		return field.ErrorList{field.TooMany(path, len(capabilities), MaxCapabilities)}
	}
	var errs field.ErrorList
	names, sums := map[string]bool{}, map[string]bool{}
	for i := range capabilities {
		c, at := &capabilities[i], path.Index(i)
		errs = append(errs, c.validate(at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		if c.SHA256 != "" && sums[c.SHA256] {
			errs = append(errs, field.Duplicate(at.Child("sha256"), field.OmitValueType{}))
		}
		names[c.Name], sums[c.SHA256] = true, true
	}
	return errs
}

func (c *Capability) validate(path *field.Path) field.ErrorList {
	errs := validateName(c.Name, path.Child("name"))
	if len(c.Name) > MaxCapabilityName {
		errs = append(errs, field.TooLong(path.Child("name"), c.Name, MaxCapabilityName))
	}
	if c.SHA256 == "" {
		errs = append(errs, field.Required(path.Child("sha256"), sumUsage))
	} else if !isSum(c.SHA256) { // the value is perhaps the secret: it is not repeated
		errs = append(errs, field.Invalid(path.Child("sha256"), field.OmitValueType{}, "must be "+sumUsage+
			"; if the capability itself stands here, make another one: all readers of this document know it"))
	}
	if c.NotAfter != "" && !isTime(c.NotAfter) {
		errs = append(errs, field.Invalid(path.Child("notAfter"), c.NotAfter, `must be a time as in "2027-01-31T00:00:00Z", or absent`))
	}
	return errs
}

// isSum reports whether a text is a SHA-256 as documents write it.
func isSum(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == sha256.Size && text == hex.EncodeToString(sum)
}

// RotatesCapability is RotateCapability as a duration; 0 means that the mesh makes no capability. The cluster must be valid.
func (s *ClusterSpec) RotatesCapability() time.Duration { return duration(s.RotateCapability) }

func (s *ClusterSpec) validateRotation(path *field.Path) field.ErrorList {
	at := path.Child("rotateCapability")
	if s.RotateCapability != "" && s.Bridge != nil {
		return field.ErrorList{field.Forbidden(at, "the API servers of the cluster show capabilities to its bridges (portcullis bridge --capability-file)")}
	}
	errs := validateDuration(s.RotateCapability, MinCapabilityPeriod, MaxCapabilityPeriod, at)
	if len(errs) == 0 && duration(s.RotateCapability)%time.Second != 0 {
		errs = field.ErrorList{field.Invalid(at, s.RotateCapability, "must be whole seconds")}
	}
	return errs
}
