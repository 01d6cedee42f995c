//! Laws of where an address leads, and of what opens it.

use landstrip::policy::endpoint::{Reach, reach};
use landstrip::policy::{Daemons, Endpoints, Located, Network, Origin, Use};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::arbitrary::cases;

/// Addresses near the borders come up as often as any.
fn addresses() -> impl Strategy<Value = IpAddr> {
    let four = prop_oneof![
        any::<u32>(),
        Just(0x7f00_0001),
        any::<u32>().prop_map(|low| 0x7f00_0000 | low & 0x00ff_ffff),
        Just(0),
        Just(0x7eff_ffff),
        Just(0x8000_0000),
    ];
    let six = prop_oneof![
        any::<u128>(),
        Just(1),
        four.clone().prop_map(|low| 0xffff_0000_0000 | u128::from(low)),
        four.clone().prop_map(u128::from),
        (0..64_u32, four.clone())
            .prop_map(|(bit, low)| (0xffff_0000_0000 | u128::from(low)) ^ 1 << (bit + 32)),
    ];
    prop_oneof![
        four.prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        six.prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

fn network(open: bool, local: bool, port: Option<u16>) -> Endpoints {
    let at = Origin::default;
    let network = Network {
        allow_network: open,
        allow_local_binding: Some(Located::new(local, at())),
        http_proxy_port: port.map(|port| Located::new(port, at())),
        ..Network::default()
    };
    Endpoints::new(&network, Daemons::default())
}

proptest! {
    #![proptest_config(cases(256))]

    /// By bits: 127 in front, in four bytes or behind `::ffff:`; or the last bit alone.
    #[test]
    fn loopback_is_known_by_its_bits(address in addresses()) {
        let four = |bits: u32| match bits {
            0 => Reach::Unspecified,
            _ if bits >> 24 == 127 => Reach::Loopback,
            _ => Reach::Outside,
        };
        let expected = match address {
            IpAddr::V4(address) => four(address.to_bits()),
            IpAddr::V6(address) => match address.to_bits() {
                0 => Reach::Unspecified,
                1 => Reach::Loopback,
                bits if bits >> 32 == 0xffff => four(bits as u32),
                _ => Reach::Outside,
            },
        };
        prop_assert_eq!(reach(address), expected);
    }

    #[test]
    fn a_port_opens_less_than_loopback_and_loopback_less_than_all(
        address in addresses(), port in 0..4_u16, proxy in 1..4_u16,
    ) {
        for using in [Use::Connect, Use::Bind] {
            let is_open = |endpoints: Endpoints| endpoints.internet(using, address, port).is_open();
            let [none, ports, local, all] = [
                network(false, false, None),
                network(false, false, Some(proxy)),
                network(false, true, None),
                network(true, false, None),
            ].map(is_open);
            prop_assert!(all && !none);
            prop_assert!(local || !ports);
            prop_assert_eq!(local, reach(address) != Reach::Outside);
            // 127.0.0.1, ::1 and the addresses that stand for all.
            let bits = match address {
                IpAddr::V4(address) => u128::from(address.to_bits()),
                IpAddr::V6(address) => match address.to_bits() {
                    bits if bits >> 32 == 0xffff => bits & 0xffff_ffff,
                    1 => 0x7f00_0001,
                    bits => bits,
                },
            };
            let on_host = local && [0, 0x7f00_0001].contains(&bits);
            prop_assert_eq!(ports, on_host && using == Use::Connect && port == proxy);
        }
    }
}
