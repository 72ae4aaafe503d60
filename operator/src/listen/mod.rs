//! Bounds the connections of the operator's listeners: link, claw-api, webhook and status.
//!
//! A new connection is a stranger. A route that has authenticated the sender calls
//! [`Visitor::known`]; until then the connection counts against a small share, for its address
//! and for all strangers, and lives for seconds. If a share is full, a new connection is accepted
//! and the oldest silent one is closed, as long as one is silent. The API server and mediators
//! authenticate within milliseconds, so silent connections cannot keep them out. Not here:
//! authentication (the routes), the bounds of bodies, and the accept loop (`toolcrib_serve`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::{Extension, Router};
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use toolcrib_serve::{Door, Guest, Http, Transport, part_of};
use tower::Layer as _;

/// Bounds of a listener's connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections of authenticated senders.
    pub known: usize,
    /// Most connections of authenticated senders from one address.
    pub known_of_one_address: usize,
    /// Most connections of strangers, TLS handshakes included.
    pub strangers: usize,
    /// Most connections of strangers from one address.
    pub strangers_of_one_address: usize,
    /// Longest time until a connection must be authenticated.
    pub introduction: Duration,
    /// Longest time for the head of a request, and so the longest idle time of a connection.
    pub idle: Duration,
    /// Most bytes of a request's head, and the size of a connection's buffers.
    pub head: usize,
    /// A connection is closed after the first answer past this time plus up to half of it. `None`:
    /// only the client closes connections.
    pub lifetime: Option<Duration>,
}

/// Bounds of a status listener. The kubelet and scrapers send no credential: they stay strangers,
/// and are answered within milliseconds.
pub(crate) const STATUS: Bounds = Bounds {
    known: 0,
    known_of_one_address: 0,
    strangers: 64,
    strangers_of_one_address: 16,
    introduction: Duration::from_secs(20),
    idle: Duration::from_secs(10),
    head: 16 * 1024,
    lifetime: None,
};

/// Serves until `closing`, then waits up to `drain` for running requests. Dropping the future
/// closes every connection at once.
pub(crate) async fn serve(
    listener: TcpListener,
    transport: impl Transport + 'static,
    routes: Router,
    bounds: Bounds,
    closing: impl Future<Output = ()>,
    drain: Duration,
) {
    let http = || Http {
        idle: bounds.idle,
        head: bounds.head,
        buffer: Some(bounds.head),
        // Jitter: clients that connected together do not reconnect together.
        lifetime: bounds
            .lifetime
            .map(|lifetime| lifetime + part_of(lifetime / 2)),
    };
    let door = VisitorsDoor(Arc::new(Visitors::new(bounds)));
    let routes = |guest: &VisitorGuest| Extension(guest.visitor.clone()).layer(routes.clone());
    toolcrib_serve::serve(
        listener,
        transport,
        door,
        http,
        routes,
        closing,
        Some(drain),
    )
    .await;
}

/// Admits each new connection, and evicts a silent stranger if a share is full.
struct VisitorsDoor(Arc<Visitors>);

struct VisitorGuest {
    visitor: Visitor,
    evicted: oneshot::Receiver<()>,
    introduction: Duration,
}

impl Door for VisitorsDoor {
    type Guest = VisitorGuest;

    fn enter(&self, peer: IpAddr) -> Option<VisitorGuest> {
        let (visitor, evicted) = self.0.enter(peer)?;
        Some(VisitorGuest {
            visitor,
            evicted,
            introduction: self.0.bounds.introduction,
        })
    }
}

impl Guest for VisitorGuest {
    async fn expelled(&mut self) {
        tokio::select! {
            // Authentication drops the sending end, so a known sender is never evicted.
            Ok(()) = &mut self.evicted => {}
            () = overstay(&self.visitor, self.introduction) => {}
        }
    }
}

/// Resolves if the sender is not authenticated within `introduction`.
async fn overstay(visitor: &Visitor, introduction: Duration) {
    tokio::time::sleep(introduction).await;
    if visitor.is_known() {
        std::future::pending().await
    }
}

/// The connections of one listener.
#[derive(Debug)]
struct Visitors {
    bounds: Bounds,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    strangers: Share,
    known: Share,
    /// Connections without a credential so far, oldest first. Sending closes the connection.
    silent: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    silent_of: HashMap<IpAddr, BTreeSet<u64>>,
}

/// Number of connections, in total and by address.
#[derive(Debug, Default)]
struct Share {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

impl Share {
    fn of(&self, address: &IpAddr) -> usize {
        self.of.get(address).copied().unwrap_or_default()
    }

    fn add(&mut self, address: IpAddr) {
        self.all += 1;
        *self.of.entry(address).or_insert(0) += 1;
    }

    fn remove(&mut self, address: &IpAddr) {
        self.all = self.all.saturating_sub(1);
        if let Some(count) = self.of.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(address);
            }
        }
    }
}

impl Table {
    /// Removes a silent connection that sent a credential or closed.
    fn heard(&mut self, id: u64) -> Option<(IpAddr, oneshot::Sender<()>)> {
        let (address, close) = self.silent.remove(&id)?;
        if let Some(ids) = self.silent_of.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.silent_of.remove(&address);
            }
        }
        Some((address, close))
    }

    /// Closes the silent connection with this id, and frees its share at once.
    fn evict(&mut self, id: u64) {
        if let Some((address, close)) = self.heard(id) {
            self.strangers.remove(&address);
            // The connection may have ended by itself.
            let _ended = close.send(());
        }
    }
}

impl Visitors {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            table: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Admits a connection. `None` if the share is full and no connection in it is silent.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<(Visitor, oneshot::Receiver<()>)> {
        let mut table = self.table();
        if table.strangers.of(&address) >= self.bounds.strangers_of_one_address {
            let oldest = *table.silent_of.get(&address)?.first()?;
            table.evict(oldest);
        }
        if table.strangers.all >= self.bounds.strangers {
            let oldest = *table.silent.first_key_value()?.0;
            table.evict(oldest);
        }
        let id = table.next;
        table.next += 1;
        table.strangers.add(address);
        let (close, closed) = oneshot::channel();
        table.silent.insert(id, (address, close));
        table.silent_of.entry(address).or_default().insert(id);
        drop(table);
        let visitor = Visitor(Arc::new(VisitorSlot {
            visitors: Arc::clone(self),
            id,
            address,
            state: Mutex::new(Introduction::Silent),
        }));
        Some((visitor, closed))
    }
}

/// Progress of a connection's authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Introduction {
    /// No credential yet.
    Silent,
    /// The credential is being checked.
    Checked,
    /// The sender is authenticated.
    Known,
    /// Closed while silent, for a new connection.
    Evicted,
}

/// The sender of a connection, in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Visitor(Arc<VisitorSlot>);

#[derive(Debug)]
struct VisitorSlot {
    visitors: Arc<Visitors>,
    id: u64,
    address: IpAddr,
    state: Mutex<Introduction>,
}

impl Visitor {
    /// The sender of a request; `None` if the request did not come through a listener.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    fn state(&self) -> MutexGuard<'_, Introduction> {
        self.0.state.lock()
    }

    fn is_known(&self) -> bool {
        *self.state() == Introduction::Known
    }

    /// Notes that the sender sent a credential: the connection is not evicted while the credential
    /// is checked.
    pub(crate) fn checking(&self) {
        let mut state = self.state();
        if *state == Introduction::Silent {
            // This drops the sending end, so the connection cannot be evicted any more.
            *state = match self.0.visitors.table().heard(self.0.id) {
                Some(_) => Introduction::Checked,
                None => Introduction::Evicted,
            };
        }
    }

    /// Notes that the sender is authenticated. Returns false if known senders have reached their
    /// bound, or if the connection was evicted.
    pub(crate) fn known(&self) -> bool {
        self.checking();
        let mut state = self.state();
        match *state {
            Introduction::Known => return true,
            Introduction::Evicted => return false,
            Introduction::Silent | Introduction::Checked => {}
        }
        let bounds = &self.0.visitors.bounds;
        let mut table = self.0.visitors.table();
        if table.known.all >= bounds.known
            || table.known.of(&self.0.address) >= bounds.known_of_one_address
        {
            return false;
        }
        table.strangers.remove(&self.0.address);
        table.known.add(self.0.address);
        *state = Introduction::Known;
        true
    }
}

impl Drop for VisitorSlot {
    fn drop(&mut self) {
        let state = *self.state.get_mut();
        let mut table = self.visitors.table();
        match state {
            // An evicted connection has left its share already.
            Introduction::Silent => {
                if table.heard(self.id).is_some() {
                    table.strangers.remove(&self.address);
                }
            }
            Introduction::Checked => table.strangers.remove(&self.address),
            Introduction::Known => table.known.remove(&self.address),
            Introduction::Evicted => {}
        }
    }
}

#[cfg(test)]
mod tests;
