package identity

import (
	"slices"
	"strings"
)

// Grant selects peers: by their names, and by the authorities that may vouch for them. The zero Grant includes no peer. It is not
// changed once it is shared.
type Grant struct {
	// Names are identities, as [Of] returns them.
	Names []string
	// Authorities may vouch for the names, as [CheckAuthority] takes them. Empty means every authority that the listener
	// trusts.
	Authorities []string
}

// Includes reports whether the grant is for a peer: the grant has the peer's name, and Authorities vouch for the peer.
func (g Grant) Includes(p Peer) bool {
	return p.name != "" && slices.Contains(g.Names, p.name) && p.VouchedBy(g.Authorities)
}

// VouchedBy reports whether an authority in the list vouches for the peer. With an empty list any authority may.
func (p Peer) VouchedBy(authorities []string) bool {
	if len(authorities) == 0 {
		return true
	}
	for authority := range strings.SplitSeq(p.authorities, " ") {
		if authority != "" && slices.Contains(authorities, authority) {
			return true
		}
	}
	return false
}
