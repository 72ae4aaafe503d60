//! Ports for the programs that tests and benches start.
//!
//! A port that the kernel chose (`bind` with port 0) belongs to nobody once its listener is closed:
//! until the program under test binds it, the kernel may give it to any other connection of the
//! machine. The ports from here are below the range from which the kernel chooses, and each process
//! has a block of them to itself: it listens on the block's first port until it ends.
//!
//! Not here: programs that bind port 0 themselves and report what they got; they need no help.
//! Invariant: two processes of one network namespace never get the same port from here.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// The first port. All are below 30000, where Kubernetes' node ports begin, and 32768, where the
/// ports begin that Linux chooses.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 50;
/// Ports of one block, the first included, which is not given. A process that asked for all others gets
/// them again, if nobody listens there.
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

/// Consecutive ports, and the listener on the first, which keeps other processes from the block.
#[derive(Debug)]
struct Block {
    first: u16,
    /// The port to try next, counted from the first.
    next: u16,
    _claim: TcpListener,
}

impl Block {
    /// Claims the first block that no process has.
    fn claim() -> Result<Self> {
        for number in 0..BLOCKS {
            let first = FIRST + number * BLOCK;
            match TcpListener::bind((Ipv4Addr::LOCALHOST, first)) {
                Ok(claim) => {
                    return Ok(Self {
                        first,
                        next: 1,
                        _claim: claim,
                    });
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::other(format!(
            "{BLOCKS} processes have the ports for tests: wait until one ends"
        )))
    }

    /// The next port where nobody listens.
    fn free_at(&mut self, address: IpAddr) -> Result<SocketAddr> {
        for _ in 1..BLOCK {
            let candidate = SocketAddr::new(address, self.first + self.next);
            self.next = self.next % (BLOCK - 1) + 1;
            match TcpListener::bind(candidate) {
                Ok(_) => return Ok(candidate),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::AddrInUse,
            format!("each port of {address} from {} on is in use", self.first),
        ))
    }
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
        let taken = SocketAddr::from((Ipv4Addr::LOCALHOST, block.first + 1));
        let _listener = TcpListener::bind(taken).unwrap();
        let free = block.free_at(taken.ip()).unwrap();
        assert!(free.port() > taken.port(), "{free}");
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
    fn a_block_gives_its_ports_again_and_never_its_first() {
        let mut block = Block::claim().unwrap();
        // One more than there are.
        for _ in 0..BLOCK {
            let given = block.free_at(Ipv4Addr::LOCALHOST.into()).unwrap().port();
            assert!((1..BLOCK).contains(&(given - block.first)), "{given}");
        }
    }

    #[test]
    fn an_address_of_another_machine_is_an_error() {
        let foreign = Ipv4Addr::new(192, 0, 2, 1).into();
        assert!(free_at(foreign).is_err());
    }
}
