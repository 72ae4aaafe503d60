use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolcrib_serve::Plain;

use super::*;

const BOUNDS: Bounds = Bounds {
    known: 4,
    known_of_one_address: 3,
    strangers: 5,
    strangers_of_one_address: 3,
    introduction: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    head: 16 * 1024,
    lifetime: None,
};

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

type Admission = (Visitor, oneshot::Receiver<()>);

fn enter(visitors: &Arc<Visitors>, last: u8) -> Option<Admission> {
    visitors.enter(address(last))
}

fn is_closed((_, closed): &mut Admission) -> bool {
    closed.try_recv().is_ok()
}

fn assert_empty(visitors: &Visitors) {
    let table = visitors.table();
    assert_eq!((table.strangers.all, table.known.all), (0, 0));
    assert!(table.strangers.of.is_empty() && table.known.of.is_empty());
    assert!(table.silent.is_empty() && table.silent_of.is_empty());
}

/// Opens more silent connections than the bound, from the probe's own address.
#[tokio::test]
async fn a_status_listener_answers_a_probe_beside_silent_connections() {
    let listener = toolcrib_serve::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/healthz", axum::routing::get(|| async { "ok" }));
    let closing = std::future::pending();
    let serving = serve(listener, Plain, routes, STATUS, closing, Duration::ZERO);
    let serving = tokio::spawn(serving);
    let mut silent = Vec::new();
    for _ in 0..2 * STATUS.strangers {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut probe = TcpStream::connect(address).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: otter\r\nConnection: close\r\n\r\n";
    probe.write_all(request).await.unwrap();
    let mut answer = String::new();
    probe.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    // Every connection above the bound of one address, which includes the probe, was closed.
    let kept = STATUS.strangers_of_one_address - 1;
    for mut closed in silent.drain(..2 * STATUS.strangers - kept) {
        let read = closed.read(&mut [0]).await;
        assert!(read.is_err() || read.is_ok_and(|read| read == 0));
    }
    serving.abort();
}

#[test]
fn a_new_connection_evicts_the_oldest_silent_one_of_its_address() {
    let visitors = Arc::new(Visitors::new(BOUNDS));
    let mut other = enter(&visitors, 9).unwrap();
    let mut crowd: Vec<Admission> = (0..3).map(|_| enter(&visitors, 1).unwrap()).collect();
    let mut newcomer = enter(&visitors, 1).unwrap();
    let closed: Vec<bool> = crowd.iter_mut().map(is_closed).collect();
    assert_eq!(closed, [true, false, false]);
    assert!(!is_closed(&mut newcomer) && !is_closed(&mut other));
    assert_eq!(visitors.table().strangers.of(&address(1)), 3);
    drop((crowd, newcomer, other));
    assert_empty(&visitors);
}

#[test]
fn connections_of_many_addresses_evict_the_oldest_silent_ones() {
    let visitors = Arc::new(Visitors::new(BOUNDS));
    let mut crowd: Vec<Admission> = (0..20)
        .map(|last| enter(&visitors, last).unwrap())
        .collect();
    let closed: Vec<bool> = crowd.iter_mut().map(is_closed).collect();
    let expected: Vec<bool> = (0..20).map(|last| last < 15).collect();
    assert_eq!(closed, expected);
    assert_eq!(visitors.table().strangers.all, 5);
    drop(crowd);
    assert_empty(&visitors);
}

#[test]
fn a_connection_is_not_evicted_while_its_credential_is_checked() {
    let visitors = Arc::new(Visitors::new(BOUNDS));
    let mut crowd: Vec<Admission> = (0..3).map(|_| enter(&visitors, 1).unwrap()).collect();
    for (visitor, _) in &crowd {
        visitor.checking();
    }
    // No connection of this address is silent.
    assert!(enter(&visitors, 1).is_none());
    assert!(crowd.iter_mut().all(|entered| !is_closed(entered)));
    assert!(enter(&visitors, 2).is_some());
    drop(crowd);
    assert_empty(&visitors);
}

#[test]
fn known_senders_leave_the_strangers_share_and_have_their_own_bounds() {
    let visitors = Arc::new(Visitors::new(BOUNDS));
    let mut known = Vec::new();
    for last in [1, 1, 1, 2] {
        let (visitor, closed) = enter(&visitors, last).unwrap();
        assert!(visitor.known() && visitor.known());
        known.push((visitor, closed));
    }
    assert_eq!(visitors.table().strangers.all, 0);
    // The bounds of the address and of the listener are reached.
    assert!(!enter(&visitors, 1).unwrap().0.known());
    assert!(!enter(&visitors, 3).unwrap().0.known());
    known.pop();
    assert!(!enter(&visitors, 1).unwrap().0.known());
    assert!(enter(&visitors, 3).unwrap().0.known());
    drop(known);
    assert_empty(&visitors);
}

#[test]
fn an_evicted_connection_leaves_its_share_and_cannot_become_known() {
    let visitors = Arc::new(Visitors::new(BOUNDS));
    let crowd: Vec<Admission> = (0..4).map(|_| enter(&visitors, 1).unwrap()).collect();
    let (first, _) = &crowd[0];
    first.checking();
    assert!(!first.known());
    assert_eq!(visitors.table().strangers.of(&address(1)), 3);
    drop(crowd);
    assert_empty(&visitors);
}
