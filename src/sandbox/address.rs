//! Which addresses are on the public internet. Everything that is not known to be
//! is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `address` is a global unicast address that no translation turns into
/// one that is not.
pub(crate) fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_global_v4(v4),
        IpAddr::V6(v6) => is_global_v6(v6),
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, ..)                  // this network, private, loopback
            | (100, 64..=127, _)            // carrier-grade NAT
            | (169, 254, _)                 // link-local
            | (172, 16..=31, _)             // private
            | (192, 0, 0 | 2)               // protocol assignments, documentation
            | (192, 88, 99)                 // 6to4 relays
            | (192, 168, _)                 // private
            | (198, 18..=19, _)             // benchmarks
            | (198, 51, 100)                // documentation
            | (203, 0, 113)                 // documentation
            | (224..=255, ..) // multicast, reserved, broadcast
    )
}

fn is_global_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_global_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // NAT64 reaches the IPv4 address that it ends with.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4 reaches the IPv4 address that follows its prefix.
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments, Teredo, ORCHID and benchmarks among them.
        [0x2001, 0..=0x01ff, ..] => false,
        // Documentation.
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        // Global unicast is 2000::/3. Outside of it are loopback, mapped IPv4, unique
        // local, link-local, site-local and multicast addresses, and what nobody uses.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(addresses: &[&str], global: bool) {
        for text in addresses {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(is_global(address), global, "{text}");
        }
    }

    #[test]
    fn public_addresses_are_global() {
        all(
            &[
                "1.1.1.1",
                "8.8.8.8",
                "172.15.0.1",
                "172.32.0.1",
                "100.63.0.1",
                "192.0.1.1",
                "223.255.255.255",
                "2606:4700::1111",
                "2a00:1450::1",
                "64:ff9b::808:808",
                "2002:808:808::1",
            ],
            true,
        );
    }

    #[test]
    fn everything_else_is_refused() {
        all(
            &[
                "0.0.0.0",
                "10.1.2.3",
                "100.64.0.1",
                "127.0.0.1",
                "127.9.9.9",
                "169.254.169.254",
                "172.16.0.1",
                "172.31.255.255",
                "192.0.0.1",
                "192.0.2.1",
                "192.168.1.1",
                "198.18.0.1",
                "198.51.100.7",
                "203.0.113.9",
                "224.0.0.1",
                "240.0.0.1",
                "255.255.255.255",
                "::",
                "::1",
                "::ffff:127.0.0.1",
                "::ffff:8.8.8.8",
                "::127.0.0.1",
                "64:ff9b::7f00:1",
                "64:ff9b::a00:1",
                "64:ff9b:1::1",
                "2002:7f00:1::1",
                "2002:a00:1::1",
                "2001::1",
                "2001:db8::1",
                "3fff::1",
                "fc00::1",
                "fd12::1",
                "fe80::1",
                "fec0::1",
                "ff02::1",
                "100::1",
                "5f00::1",
                "4000::1",
            ],
            false,
        );
    }
}
