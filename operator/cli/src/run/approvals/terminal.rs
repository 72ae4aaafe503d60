//! One question and one answer on the controlling terminal.
//!
//! Invariants: standard input and output are neither read nor written, since they are the program's.
//! Keys that were typed before a question do not answer it.

use std::fmt;
use std::fs::File;
use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{LocalModes, QueueSelector, tcflush, tcgetattr, tcgetpgrp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
// They read and write any file that does not block.
use tokio::net::unix::pipe::{Receiver, Sender};

/// Linux gives out lines of at most so many bytes.
const LONGEST_LINE: usize = 4096;

/// A terminal on which a person can be asked.
pub struct Terminal(File);

/// The reason why nobody can be asked. It continues "needs an approval, and".
#[derive(Debug, PartialEq, Eq)]
pub enum Unusable {
    Missing,
    Background,
    SingleKeys,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "`kubectl toolcrib run` has no terminal on which to ask",
            Self::Background => {
                "`kubectl toolcrib run` is in the background of its terminal, so it cannot ask there"
            }
            Self::SingleKeys => {
                "the program reads single keys from the terminal, so nobody can be asked there"
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// The input ended.
    End,
}

impl Terminal {
    pub fn open() -> Result<Self, Unusable> {
        // Not blocking, so that the end of the program ends a question too.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let terminal =
            rustix::fs::open("/dev/tty", flags, Mode::empty()).map_err(|_| Unusable::Missing)?;
        let mode = tcgetattr(&terminal).map_err(|_| Unusable::Missing)?;
        // A read from the background would stop this process.
        if tcgetpgrp(&terminal) != Ok(rustix::process::getpgrp()) {
            return Err(Unusable::Background);
        }
        match mode.local_modes.contains(LocalModes::ICANON) {
            true => Ok(Self(terminal.into())),
            false => Err(Unusable::SingleKeys),
        }
    }

    /// Prints the text, reads one line, and prints what was understood. Must be called within a runtime.
    pub async fn ask(self, text: &str) -> io::Result<Answer> {
        tcflush(&self.0, QueueSelector::IFlush)?;
        let keys = Receiver::from_file_unchecked(self.0.try_clone()?)?;
        let mut screen = Screen {
            terminal: Sender::from_file_unchecked(self.0)?,
            is_answered: false,
        };
        screen.terminal.write_all(text.as_bytes()).await?;
        let Some(line) = line(keys).await? else {
            return Ok(Answer::End);
        };
        screen.is_answered = true;
        let is_yes = ["y", "yes"]
            .iter()
            .any(|yes| line.trim().eq_ignore_ascii_case(yes));
        let (answer, understood) = match is_yes {
            true => (Answer::Yes, "approved\n"),
            false => (Answer::No, "denied\n"),
        };
        screen.terminal.write_all(understood.as_bytes()).await?;
        Ok(answer)
    }
}

/// The terminal with a question. Dropping it without an answer ends the line of the question.
struct Screen {
    terminal: Sender,
    is_answered: bool,
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !self.is_answered {
            // Err: the terminal is gone, or takes nothing now.
            self.terminal.try_write(b"\n").ok();
        }
    }
}

/// Reads a line; `None` at the end of the input.
async fn line(mut keys: Receiver) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < LONGEST_LINE {
        let read = match keys.read_buf(&mut line).await {
            // The terminal was closed, or another process group reads from it now.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => 0,
            read => read?,
        };
        if read == 0 {
            return Ok(None);
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}
