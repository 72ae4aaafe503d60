//! A queue of bounded bytes before stdout: a stopped reader must neither stop the mediator nor
//! fill its memory.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Most waiting lines. Usual ones have one or two KiB, since prompts are not in them by default.
const QUEUE: usize = 512;
/// Most bytes of all waiting lines; a single longer line still passes an empty queue.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// Most lines of one write.
const BATCH: usize = 64;
/// Time that the first line of a write waits for others: waking the thread for each line would
/// cost a tenth of the line's request.
const GATHER: Duration = Duration::from_millis(5);

/// The sending end of the queue.
#[derive(Debug)]
pub struct Queue {
    lines: SyncSender<Vec<u8>>,
    waiting: Arc<QueueState>,
}

/// The writing end of the queue.
#[derive(Debug)]
pub struct Drain {
    lines: Receiver<Vec<u8>>,
    waiting: Arc<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: AtomicUsize,
    bytes: AtomicUsize,
    closed: AtomicBool,
}

pub fn queue() -> (Queue, Drain) {
    let (sender, lines) = sync_channel(QUEUE);
    let waiting = Arc::new(QueueState::default());
    let queue = Queue {
        lines: sender,
        waiting: waiting.clone(),
    };
    (queue, Drain { lines, waiting })
}

impl Queue {
    /// Queues a line, given in pieces. False if the queue is full or stdout is closed.
    pub fn offer(&self, line: &[&[u8]]) -> bool {
        let length = line.iter().map(|piece| piece.len()).sum();
        let bytes = self.waiting.bytes.load(Ordering::Acquire);
        if bytes > 0 && bytes + length > QUEUE_BYTES {
            return false;
        }
        // Counted before it is sent: the other thread subtracts the lines that it has written.
        self.waiting.count(length);
        let taken = self.lines.try_send(line.concat()).is_ok();
        if !taken {
            self.waiting.forget(1, length);
        }
        taken
    }

    /// True if the queue has room for a line of the usual size.
    pub fn has_room(&self) -> bool {
        !self.waiting.closed.load(Ordering::Acquire)
            && self.waiting.lines.load(Ordering::Acquire) < QUEUE
            && self.waiting.bytes.load(Ordering::Acquire) < QUEUE_BYTES / 2
    }
}

impl QueueState {
    fn count(&self, bytes: usize) {
        self.lines.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    fn forget(&self, lines: usize, bytes: usize) {
        self.lines.fetch_sub(lines, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drain {
    /// Writes until the queue is dropped or stdout is closed.
    pub fn run(self, mut stdout: impl Write) {
        let (mut batch, mut full) = (Vec::new(), false);
        while let Ok(first) = self.lines.recv() {
            if !full {
                std::thread::sleep(GATHER);
            }
            let (mut lines, mut length) = (0, 0);
            for line in std::iter::once(first).chain(self.lines.try_iter().take(BATCH - 1)) {
                lines += 1;
                length += line.len();
                batch.extend_from_slice(&line);
                batch.push(b'\n');
            }
            full = lines == BATCH;
            // Whole lines only, so that another writer to stdout cannot split one.
            let written = stdout.write_all(&batch).and_then(|()| stdout.flush());
            if let Err(error) = written {
                // From now on the queue refuses lines, and so calls with side effects are refused.
                self.waiting.closed.store(true, Ordering::Release);
                tracing::error!(error = error.to_string(), "writing to stdout failed");
                return;
            }
            self.waiting.forget(lines, length);
            batch.clear();
            batch.shrink_to(BATCH * 1024);
        }
    }
}
