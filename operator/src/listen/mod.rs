//! Who may connect to the operator's listeners: link, claw-api, webhook and status.
//!
//! A connection begins as a stranger's. A route that has found out who sends calls
//! [`Visitor::known`]; until then the connection counts against a small share, for its address
//! and for all strangers, and lives for seconds. A full share never keeps a newcomer out while a
//! stranger in it is silent: every connection is accepted, and the silent one that has been there
//! longest is closed. A sender that shows who it is within milliseconds, as the API server and
//! mediators do, is therefore not kept out by connections that say nothing. Not here: what
//! makes a sender known (the routes), how much of a body is read, and the accept loop
//! (`toolcrib_serve`).

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

/// What connections may take of this process.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections of known senders.
    pub known: usize,
    /// Those of one address.
    pub known_of_one_address: usize,
    /// Connections of strangers, TLS handshakes included.
    pub strangers: usize,
    /// Those of one address.
    pub strangers_of_one_address: usize,
    /// How long a connection may stay a stranger's.
    pub introduction: Duration,
    /// How long a request's head may take, and so how long a connection may be idle.
    pub idle: Duration,
    /// The longest head of a request, in bytes, and the size of a connection's buffers.
    pub head: usize,
    /// The connection is closed after its answer then, between this and half as much more.
    /// `None`: only the other end closes it.
    pub lifetime: Option<Duration>,
}

/// Bounds of a status listener. The kubelet and a scraper show no credential: they stay strangers,
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

/// Serves until `closing`, then lets running requests end for up to `drain`. Dropped, it ends
/// every connection at once.
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
        // Clients of one moment do not come back in one moment.
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

/// The listener's door: a newcomer takes the place of a silent stranger.
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
            // A sender that becomes known drops the other end: it is evicted no more.
            Ok(()) = &mut self.evicted => {}
            () = overstay(&self.visitor, self.introduction) => {}
        }
    }
}

/// Ends when the connection is still a stranger's after that time.
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
    /// Strangers that have said nothing yet, oldest first; sending closes the connection.
    silent: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    silent_of: HashMap<IpAddr, BTreeSet<u64>>,
}

/// Connections in all, and of each address.
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
    /// The stranger has said something, or is gone.
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

    /// Closes the silent connection with this number, which leaves its share at once.
    fn evict(&mut self, id: u64) {
        if let Some((address, close)) = self.heard(id) {
            self.strangers.remove(&address);
            // A connection that has just ended by itself needs no closing.
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

    /// `None`: the share is full of strangers whose introduction is being checked.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Introduction {
    Silent,
    /// Its credential is being checked.
    Checked,
    Known,
    /// Closed for a newcomer, before it said anything.
    Evicted,
}

/// Who is at the other end of a connection, as far as is known. In the extensions of each of
/// its requests.
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
    /// Of a request that came by one of these listeners.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    fn state(&self) -> MutexGuard<'_, Introduction> {
        self.0.state.lock()
    }

    fn is_known(&self) -> bool {
        *self.state() == Introduction::Known
    }

    /// The sender has shown a credential: it is not closed for a newcomer while it waits for
    /// the result.
    pub(crate) fn checking(&self) {
        let mut state = self.state();
        if *state == Introduction::Silent {
            // With the sender dropped nothing can close it any more.
            *state = match self.0.visitors.table().heard(self.0.id) {
                Some(_) => Introduction::Checked,
                None => Introduction::Evicted,
            };
        }
    }

    /// The sender is who may ask here. False: known senders have all connections they may have.
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
            // An evicted one has left its share already.
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
