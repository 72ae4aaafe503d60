//! Ports for the programs that tests and benches start.
//!
//! A port that the kernel chose (`bind` with port 0) belongs to nobody once its listener is closed:
//! until the program under test binds it, the kernel may give it to any other connection of the
//! machine. The ports from here are below the range from which the kernel chooses, and each process
//! has a block of them to itself, held by a file lock until the process ends.
//!
//! Not here: programs that bind port 0 themselves and report what they got; they need no help.
//! Invariant: two processes of one user never get the same port.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The first port. All are below 30000, where Kubernetes' node ports begin, and 32768, where the
/// ports begin that Linux chooses.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 50;
/// Ports of one block. A process that asked for all of them gets the first again, if nobody listens there.
const BLOCK: u16 = 200;

/// The block of this process.
static OWN: Mutex<Option<Block>> = Mutex::new(None);

/// An address of loopback where nobody listens.
pub fn free() -> Result<SocketAddr> {
    free_at(Ipv4Addr::LOCALHOST.into())
}

/// A port of `address` where nobody listens. Fails if `address` is not one of this machine.
pub fn free_at(address: IpAddr) -> Result<SocketAddr> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let block = match own.take() {
        Some(block) => block,
        None => Block::claim()?,
    };
    own.insert(block).free_at(address)
}

/// Consecutive ports, and the lock that keeps other processes from them.
#[derive(Debug)]
struct Block {
    first: u16,
    /// How many ports were given, modulo [`BLOCK`].
    given: u16,
    _lock: File,
}

impl Block {
    /// Locks the first block that no process has.
    fn claim() -> Result<Self> {
        let directory = directory();
        std::fs::create_dir_all(&directory)?;
        for number in 0..BLOCKS {
            let file = File::create(directory.join(number.to_string()))?;
            match file.try_lock() {
                Ok(()) => {
                    return Ok(Self {
                        first: FIRST + number * BLOCK,
                        given: 0,
                        _lock: file,
                    });
                }
                Err(std::fs::TryLockError::WouldBlock) => {}
                Err(std::fs::TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(Error::other(format!(
            "{BLOCKS} processes have the ports for tests: wait until one ends"
        )))
    }

    /// The next port where nobody listens.
    fn free_at(&mut self, address: IpAddr) -> Result<SocketAddr> {
        for _ in 0..BLOCK {
            let candidate = SocketAddr::new(address, self.first + self.given);
            self.given = (self.given + 1) % BLOCK;
            match TcpListener::bind(candidate) {
                Ok(_) => return Ok(candidate),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::AddrInUse,
            format!("somebody listens on each of {BLOCK} ports of {address}"),
        ))
    }
}

/// The folder of the locks, one file per block.
fn directory() -> PathBuf {
    std::env::home_dir()
        .unwrap_or_else(std::env::temp_dir)
        .join(".cache/toolcrib/ports")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_and_can_be_bound() {
        let (first, second) = (free().unwrap(), free().unwrap());
        assert_ne!(first, second);
        let _listeners = [first, second].map(|address| TcpListener::bind(address).unwrap());
    }

    #[test]
    fn a_port_with_a_listener_is_passed_over() {
        let mut block = Block::claim().unwrap();
        let taken = SocketAddr::from((Ipv4Addr::LOCALHOST, block.first));
        let _listener = TcpListener::bind(taken).unwrap();
        let free = block.free_at(taken.ip()).unwrap();
        assert_eq!(free.port(), taken.port() + 1);
    }

    #[test]
    fn two_holders_have_different_blocks() {
        let (one, other) = (Block::claim().unwrap(), Block::claim().unwrap());
        assert_ne!(one.first, other.first);
        let freed = one.first;
        drop(one);
        let next = Block::claim().unwrap();
        assert!(next.first <= freed, "a block is free again: {next:?}");
    }

    #[test]
    fn an_address_of_another_machine_is_an_error() {
        let foreign = Ipv4Addr::new(192, 0, 2, 1).into();
        assert!(free_at(foreign).is_err());
    }
}
