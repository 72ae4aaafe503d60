//! Stdout behind a queue of bounded bytes: a reader that has stopped must not stop the
//! mediator, nor fill its memory.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Lines that wait. Most have a KiB or two: prompts are not in there unasked.
const QUEUE: usize = 512;
/// All of them together; a single longer one still passes an empty queue.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// The end that lines are put in.
#[derive(Debug)]
pub struct Queue {
    lines: SyncSender<Vec<u8>>,
    waiting: Arc<Waiting>,
}

/// The end that writes them.
#[derive(Debug)]
pub struct Drain {
    lines: Receiver<Vec<u8>>,
    waiting: Arc<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: AtomicUsize,
    bytes: AtomicUsize,
    closed: AtomicBool,
}

pub fn queue() -> (Queue, Drain) {
    let (sender, lines) = sync_channel(QUEUE);
    let waiting = Arc::new(Waiting::default());
    let queue = Queue {
        lines: sender,
        waiting: waiting.clone(),
    };
    (queue, Drain { lines, waiting })
}

impl Queue {
    /// Whether the line is going to be written, as far as anybody knows.
    pub fn offer(&self, line: &[u8]) -> bool {
        let bytes = self.waiting.bytes.load(Ordering::Acquire);
        if bytes > 0 && bytes + line.len() > QUEUE_BYTES {
            return false;
        }
        // Before it is sent: the other thread takes away what it has written.
        self.waiting.count(line.len());
        let taken = self.lines.try_send(line.to_vec()).is_ok();
        if !taken {
            self.waiting.forget(line.len());
        }
        taken
    }

    /// Whether a line of the usual size would be taken.
    pub fn has_room(&self) -> bool {
        !self.waiting.closed.load(Ordering::Acquire)
            && self.waiting.lines.load(Ordering::Acquire) < QUEUE
            && self.waiting.bytes.load(Ordering::Acquire) < QUEUE_BYTES / 2
    }
}

impl Waiting {
    fn count(&self, bytes: usize) {
        self.lines.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    fn forget(&self, bytes: usize) {
        self.lines.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drain {
    /// Writes until the queue is dropped or stdout is closed.
    pub fn run(self, mut stdout: impl Write) {
        while let Ok(mut line) = self.lines.recv() {
            let length = line.len();
            line.push(b'\n');
            // One write per line: nothing else that writes there cuts it in two.
            let written = stdout.write_all(&line).and_then(|()| stdout.flush());
            if let Err(error) = written {
                // From now on the queue takes nothing, and side effects are refused.
                self.waiting.closed.store(true, Ordering::Release);
                tracing::error!(error = error.to_string(), "stdout cannot be written");
                return;
            }
            self.waiting.forget(length);
        }
    }
}
