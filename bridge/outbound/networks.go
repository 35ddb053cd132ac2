package outbound

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Loopback are the networks of the machine itself, for [Options.Networks].
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// networkError refuses an address: the author of a clientConfig must not reach services that the network offers to this process alone.
type networkError struct {
	address netip.Addr
	is      string
}

// Error has the remedy of the operator.
func (e *networkError) Error() string {
	return fmt.Sprintf("%s is %s, where webhooks are not called: an operator may allow it with --webhook-network %s", e.address, e.is, e.address)
}

// metadataServices returns the addresses outside of the link-local networks where clouds give credentials of a machine to its processes.
func metadataServices() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"),   // Amazon EC2
		netip.MustParseAddr("fd20:ce::254"),    // Google Compute Engine
		netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
		netip.MustParseAddr("168.63.129.16"),   // Microsoft Azure
		netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	}
}

// translated returns the IPv4 address that a gateway calls for an IPv6 address, if there is one: NAT64 (RFC 6052, RFC 8215) and 6to4 (RFC 3056).
func translated(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	for _, nat64 := range []string{"64:ff9b::/96", "64:ff9b:1::/48"} {
		if netip.MustParsePrefix(nat64).Contains(a) {
			return netip.AddrFrom4([4]byte(b[12:])), true
		}
	}
	return netip.AddrFrom4([4]byte(b[2:6])), netip.MustParsePrefix("2002::/16").Contains(a)
}

// checkAddress returns a *networkError for an address that no webhook may have, unless the operator has named its network. Private networks
// are not refused: webhooks are there.
func (c *Client) checkAddress(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if slices.ContainsFunc(c.options.Networks, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	if v4, ok := translated(a); ok {
		return c.checkAddress(v4)
	}
	thisNetwork := netip.PrefixFrom(netip.IPv4Unspecified(), 8) // 0.0.0.0/8, of which Linux takes 0.0.0.0 as itself
	switch {
	case a.IsLoopback():
		return &networkError{a, "a loopback address"}
	case a.IsLinkLocalUnicast():
		return &networkError{a, "a link-local address"}
	case a.IsUnspecified(), thisNetwork.Contains(a):
		return &networkError{a, "no address of a server"}
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return &networkError{a, "a multicast address"}
	case slices.Contains(metadataServices(), a):
		return &networkError{a, "an address of a cloud's metadata service"}
	}
	own, err := c.options.own()
	if err != nil {
		return fmt.Errorf("the addresses of this machine, which webhooks may not have: %w", err)
	}
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err == nil && p.Addr().Unmap().WithZone("") == a {
			return &networkError{a, "an address of this process"}
		}
	}
	if c.options.Refused != nil && slices.ContainsFunc(c.options.Refused(), func(p netip.Prefix) bool { return p.Contains(a) }) {
		return &networkError{a, "an address of the mesh, or of --webhook-refuse"}
	}
	return nil
}

// checkDial is the Control of a net.Dialer: it sees each address after DNS, before a packet is sent.
func (c *Client) checkDial(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return c.checkAddress(to.Addr())
}

// checkHost refuses a host that is an address. A name is checked when it is dialled.
func (c *Client) checkHost(host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		return c.checkAddress(a)
	}
	return nil
}
