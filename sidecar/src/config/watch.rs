//! Looks at the directory when it changes and at least once a second, on a thread of its
//! own: the reads are blocking, and a busy runtime must not delay a revocation.
//!
//! Notifications only make it faster (gVisor and Kata miss them); the guarantees rest on the look
//! every second.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::current::CurrentConfig;
use super::directory::{self, Stamp};
use super::load_state::{LoadState, Observation};
use super::version::Version;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Stack size; parsing four files of at most a few MiB needs no more.
const STACK: usize = 512 * 1024;

enum Wake {
    Look,
    Stop,
}

/// Ends the thread when dropped.
#[derive(Debug)]
pub struct Watch {
    wake: SyncSender<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `loaded` is called after each load of the files.
    pub fn start(
        dir: PathBuf,
        current: Arc<CurrentConfig>,
        loaded: impl Fn(&Version) + Send + 'static,
    ) -> std::io::Result<Watch> {
        // One pending wake is enough, since each look reads all files.
        let (wake, woken) = sync_channel(1);
        let notifier = wake.clone();
        let thread = std::thread::Builder::new()
            .name("config".to_string())
            .stack_size(STACK)
            .spawn(move || {
                ConfigWatcher::new(dir, current, Box::new(loaded), notifier).run(&woken)
            })?;
        Ok(Watch {
            wake,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Err: the thread has ended already.
        if self.wake.send(Wake::Stop).is_err() {
            tracing::debug!("config thread had already ended");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("config thread panicked");
        }
    }
}

struct ConfigWatcher {
    dir: PathBuf,
    current: Arc<CurrentConfig>,
    loaded: Box<dyn Fn(&Version) + Send>,
    notifier: SyncSender<Wake>,
    watcher: Option<RecommendedWatcher>,
    seen: Option<Stamp>,
    settled: bool,
}

impl ConfigWatcher {
    fn new(
        dir: PathBuf,
        current: Arc<CurrentConfig>,
        loaded: Box<dyn Fn(&Version) + Send>,
        notifier: SyncSender<Wake>,
    ) -> Self {
        Self {
            dir,
            current,
            loaded,
            notifier,
            watcher: None,
            seen: None,
            settled: false,
        }
    }

    fn run(mut self, woken: &Receiver<Wake>) {
        loop {
            self.subscribe();
            self.check_files();
            match woken.recv_timeout(LOOK_EVERY) {
                Ok(Wake::Look) => self.settled = false,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Subscribes to notifications. Repeated until it succeeds, since the directory may be created
    /// later.
    fn subscribe(&mut self) {
        if self.watcher.is_some() {
            return;
        }
        let notifier = self.notifier.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Our own reads are access events, so reacting to them would never end.
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            // Full: a look is due anyway.
            notifier.try_send(Wake::Look).ok();
        });
        self.watcher = watcher.ok().and_then(|mut watcher| {
            watcher
                .watch(&self.dir, RecursiveMode::NonRecursive)
                .ok()
                .map(|()| watcher)
        });
    }

    fn check_files(&mut self) {
        let stamp = directory::stamp(&self.dir);
        if self.settled && self.seen.as_ref() == Some(&stamp) {
            return;
        }
        let seen = directory::observe(&self.dir);
        // Files that are not loaded are read again each second.
        self.settled = matches!(seen, Observation::Loaded(_));
        self.seen = Some(stamp);
        let before = self.current.now().load_state.error();
        let unchanged = match (&seen, &self.current.now().load_state) {
            (
                Observation::Loaded(new),
                LoadState::InForce {
                    version,
                    error: None,
                },
            ) => new.fingerprint == version.fingerprint,
            (Observation::Absent, LoadState::Withdrawn { .. } | LoadState::Waiting) => true,
            (
                Observation::Broken {
                    error: new,
                    contact: says,
                },
                LoadState::Broken { error, contact },
            ) => new == error && (says.is_none() || says == contact),
            (Observation::Broken { error: new, .. }, LoadState::InForce { error, .. }) => {
                Some(new) == error.as_ref()
            }
            _ => false,
        };
        if unchanged {
            return;
        }
        self.current
            .observe(seen, jiff::Timestamp::now().to_string());
        if let LoadState::InForce {
            version,
            error: None,
        } = &self.current.now().load_state
        {
            (self.loaded)(version);
        }
        self.report(before);
    }

    fn report(&self, before: Option<String>) {
        let now = self.current.now();
        let error = now.load_state.error();
        if error.is_some() && error == before {
            return;
        }
        match &now.load_state {
            LoadState::InForce {
                version,
                error: None,
            } => tracing::info!(
                tools = version.catalog.tools().len(),
                withheld = version.withheld().len(),
                agent = version.agent.agent,
                "config loaded"
            ),
            LoadState::InForce { error: Some(_), .. } => {
                tracing::error!(error, "config reload failed, previous version kept");
            }
            LoadState::Broken { .. } => {
                tracing::error!(error, "config not loaded, requests refused");
            }
            LoadState::Withdrawn { .. } => {
                tracing::error!(error, "config files deleted, requests refused");
            }
            LoadState::Waiting => tracing::error!(error, "config files not found"),
        }
    }
}
