//! Reads the body of an answer: decodes, counts, cuts and scrubs it. For tools and feeds alike.
//!
//! Invariants: memory and decoding are bounded, whatever the service sends, so a body that
//! inflates a thousandfold costs no more than its bound; no bytes are returned unscrubbed; a
//! body that breaks off is never taken for a whole one.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use thiserror::Error;
use toolcrib_mediation::{ConnectionFailure, Scrubber, ToolBody};

use crate::outbound::error;
use crate::outbound::transport::Response;

/// Most bytes that are counted to learn the true length of a body. Decoded bytes count, so this
/// also bounds the cost of a compressed body.
const MAX_COUNTED: u64 = 8 * 1024 * 1024;

/// A compressed body may have this many bytes, and [`PACKED_PER_DECODED`] more for each decoded one.
/// Empty members and blocks decode to nothing, and each of 20 bytes costs the decoder's memory.
const PACKED: u64 = 64 * 1024;
const PACKED_PER_DECODED: u64 = 8;
/// Bytes that are decoded between two looks at these bounds.
const PIECE: usize = 16 * 1024;

/// The reason why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    #[error("the answer broke off")]
    BrokenOff(ConnectionFailure),
    #[error(transparent)]
    Encoding(#[from] EncodingError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodingError {
    #[error("the answer's encoding is not supported")]
    Unknown,
    #[error("the answer's encoding is damaged")]
    Damaged,
}

/// Reads the first bytes of the body, at least one more than `max` if there are more, and its
/// whole length if that is at most `MAX_COUNTED`.
pub async fn read(
    mut response: Response,
    max: usize,
    scrubber: &Scrubber,
) -> Result<ToolBody, Unreadable> {
    let room = room(max, scrubber);
    let mut decoder = Decoder::new(response.headers(), room)?;
    let declared = match decoder {
        Decoder::Identity(_) => response.content_length(),
        Decoder::Gzip { .. } | Decoder::Deflate { .. } => None,
    };
    let url = response.url().clone();
    let broken_off = |error| Unreadable::BrokenOff(error::body_failure(&error, &url));
    let mut stopped = false;
    while let Some(chunk) = response.chunk().await.map_err(broken_off)? {
        decoder.push(&chunk)?;
        let kept = decoder.kept();
        if kept.is_full() && (declared.is_some() || kept.is_counted_out()) {
            // Dropping the response closes the connection; the rest is never read.
            stopped = true;
            break;
        }
    }
    let kept = if stopped {
        decoder.into_kept()
    } else {
        decoder.finish()?
    };
    let length = kept.length;
    let whole = !stopped || declared == Some(length);
    let cut = length > kept.bytes.len() as u64 || !whole;
    Ok(ToolBody {
        bytes: scrubbed(kept.bytes, cut, max, scrubber),
        original_bytes: if whole { Some(length) } else { declared },
    })
}

/// [`read`] for a body that is all there.
pub(crate) fn of_bytes(
    encoding: &str,
    body: &[u8],
    max: usize,
    scrubber: &Scrubber,
) -> Option<Vec<u8>> {
    let headers = [(CONTENT_ENCODING, HeaderValue::from_str(encoding).ok()?)];
    let headers = headers.into_iter().collect();
    let mut decoder = Decoder::new(&headers, room(max, scrubber)).ok()?;
    decoder.push(body).ok()?;
    let kept = match decoder.kept().is_counted_out() {
        true => decoder.into_kept(),
        false => decoder.finish().ok()?,
    };
    let cut = kept.length > kept.bytes.len() as u64;
    Some(scrubbed(kept.bytes, cut, max, scrubber))
}

/// The number of bytes to read if the model may see `max` bytes: enough to read a secret whole
/// that straddles the edge. [`scrubbed`] cuts off the end, which may hold half a secret.
pub fn room(max: usize, scrubber: &Scrubber) -> usize {
    max.saturating_add(1).saturating_add(2 * scrubber.longest())
}

/// Scrubs the body. A cut body loses the end that may hold half a secret, and stays longer than
/// the limit, so that it is still marked as truncated if scrubbing shortened it.
pub fn scrubbed(bytes: Vec<u8>, cut: bool, max: usize, scrubber: &Scrubber) -> Vec<u8> {
    let mut bytes = scrubber.scrub(bytes);
    if cut {
        bytes.truncate(bytes.len().saturating_sub(scrubber.longest()));
        let least = max.saturating_add(1);
        if bytes.len() < least {
            bytes.resize(least, b' ');
        }
    }
    bytes
}

/// The first bytes of a body, and the length of all of it.
struct BoundedBytes {
    bytes: Vec<u8>,
    room: usize,
    length: u64,
    /// Bytes that were decoded, in their compressed form.
    packed: u64,
}

impl BoundedBytes {
    fn push(&mut self, decoded: &[u8]) {
        self.length += decoded.len() as u64;
        let room = self.room - self.bytes.len();
        self.bytes
            .extend_from_slice(&decoded[..decoded.len().min(room)]);
    }

    fn is_full(&self) -> bool {
        self.bytes.len() == self.room
    }

    fn is_counted_out(&self) -> bool {
        self.length > MAX_COUNTED
    }
}

/// Used by the gzip decoder; an error stops it in the middle of a chunk.
impl Write for BoundedBytes {
    fn write(&mut self, decoded: &[u8]) -> io::Result<usize> {
        if self.is_full() && self.is_counted_out() {
            return Err(io::Error::other("long enough"));
        }
        self.push(decoded);
        Ok(decoded.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The decoder of a body. The mediator asks for `identity`; some services compress anyway.
enum Decoder {
    Identity(BoundedBytes),
    Gzip {
        inner: MultiGzDecoder<BoundedBytes>,
        began: bool,
    },
    Deflate {
        /// Made when the first byte tells zlib from raw deflate; `deflate` names both.
        inner: Option<Decompress>,
        kept: BoundedBytes,
        ended: bool,
    },
}

impl Decoder {
    fn new(headers: &HeaderMap, room: usize) -> Result<Self, EncodingError> {
        let kept = BoundedBytes {
            bytes: Vec::new(),
            room,
            length: 0,
            packed: 0,
        };
        let mut codings = headers.get_all(CONTENT_ENCODING).iter();
        let coding = match (codings.next(), codings.next()) {
            (None, _) => "identity".to_string(),
            (Some(coding), None) => coding
                .to_str()
                .map_err(|_| EncodingError::Unknown)?
                .trim()
                .to_ascii_lowercase(),
            (Some(_), Some(_)) => return Err(EncodingError::Unknown),
        };
        match coding.as_str() {
            "" | "identity" => Ok(Self::Identity(kept)),
            "gzip" | "x-gzip" => Ok(Self::Gzip {
                inner: MultiGzDecoder::new(kept),
                began: false,
            }),
            "deflate" => Ok(Self::Deflate {
                inner: None,
                kept,
                ended: false,
            }),
            _ => Err(EncodingError::Unknown),
        }
    }

    fn kept(&self) -> &BoundedBytes {
        match self {
            Decoder::Identity(kept) | Decoder::Deflate { kept, .. } => kept,
            Decoder::Gzip { inner, .. } => inner.get_ref(),
        }
    }

    fn kept_mut(&mut self) -> &mut BoundedBytes {
        match self {
            Decoder::Identity(kept) | Decoder::Deflate { kept, .. } => kept,
            Decoder::Gzip { inner, .. } => inner.get_mut(),
        }
    }

    fn push(&mut self, chunk: &[u8]) -> Result<(), EncodingError> {
        for piece in chunk.chunks(PIECE) {
            self.decode(piece)?;
            let kept = self.kept_mut();
            kept.packed += piece.len() as u64;
            if kept.packed > PACKED.saturating_add(kept.length.saturating_mul(PACKED_PER_DECODED)) {
                return Err(EncodingError::Damaged);
            }
            if kept.is_full() && kept.is_counted_out() {
                break;
            }
        }
        Ok(())
    }

    fn decode(&mut self, chunk: &[u8]) -> Result<(), EncodingError> {
        match self {
            Decoder::Identity(kept) => kept.push(chunk),
            Decoder::Gzip { inner, began } => {
                *began |= !chunk.is_empty();
                let written = inner.write_all(chunk).and_then(|()| inner.flush());
                let kept = inner.get_ref();
                if written.is_err() && !(kept.is_full() && kept.is_counted_out()) {
                    return Err(EncodingError::Damaged);
                }
            }
            Decoder::Deflate { inner, kept, ended } => {
                let Some(first) = chunk.first() else {
                    return Ok(());
                };
                let zlib = first & 0x0f == 8;
                let inner = inner.get_or_insert_with(|| Decompress::new(zlib));
                *ended |= inflate(inner, chunk, kept)?;
            }
        }
        Ok(())
    }

    /// Checks that the decoded body is complete, and returns it.
    fn finish(mut self) -> Result<BoundedBytes, EncodingError> {
        let whole = match &mut self {
            Decoder::Identity(_) => true,
            // An empty body, such as that of a 204, has nothing to decode.
            Decoder::Gzip { inner, began } => !*began || inner.try_finish().is_ok(),
            Decoder::Deflate { inner, ended, .. } => inner.is_none() || *ended,
        };
        if whole {
            Ok(self.into_kept())
        } else {
            Err(EncodingError::Damaged)
        }
    }

    fn into_kept(self) -> BoundedBytes {
        match self {
            Decoder::Identity(kept) | Decoder::Deflate { kept, .. } => kept,
            Decoder::Gzip { mut inner, .. } => std::mem::replace(
                inner.get_mut(),
                BoundedBytes {
                    bytes: Vec::new(),
                    room: 0,
                    length: 0,
                    packed: 0,
                },
            ),
        }
    }
}

/// Decodes a chunk; true if the end of the compressed stream was reached.
fn inflate(
    inner: &mut Decompress,
    chunk: &[u8],
    kept: &mut BoundedBytes,
) -> Result<bool, EncodingError> {
    let mut rest = chunk;
    let mut buffer = [0; 8 * 1024];
    loop {
        let before = (inner.total_in(), inner.total_out());
        let status = inner
            .decompress(rest, &mut buffer, FlushDecompress::None)
            .map_err(|_| EncodingError::Damaged)?;
        let consumed = usize::try_from(inner.total_in() - before.0).unwrap_or(rest.len());
        let decoded = usize::try_from(inner.total_out() - before.1).unwrap_or(0);
        rest = &rest[consumed.min(rest.len())..];
        kept.push(&buffer[..decoded.min(buffer.len())]);
        match status {
            Status::StreamEnd => return Ok(true),
            Status::Ok | Status::BufError => {}
        }
        let stuck = consumed == 0 && decoded == 0;
        if stuck || (kept.is_full() && kept.is_counted_out()) {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn decoder(coding: &str, room: usize) -> Result<Decoder, EncodingError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
        Decoder::new(&headers, room)
    }

    /// Kept text and whole length, for any chunking.
    fn check(coding: &str, encoded: &[u8], expected: Result<(&str, u64), EncodingError>) {
        for size in [1, 7, encoded.len().max(1)] {
            let decoded = decoder(coding, 10).and_then(|mut decoder| {
                encoded
                    .chunks(size)
                    .try_for_each(|chunk| decoder.push(chunk))?;
                decoder.finish()
            });
            let seen = decoded.map(|kept| (String::from_utf8(kept.bytes).unwrap(), kept.length));
            let expected = expected.map(|(text, length)| (text.to_string(), length));
            assert_eq!(seen, expected, "{coding}, {size} bytes at a time");
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn each_coding_is_read_and_cut_the_same() {
        let text = b"the otter is in the pond";
        let expected = Ok(("the otter ", 24));
        check("identity", text, expected);
        check("gzip", &gzip(text), expected);
        check("X-GZip", &gzip(text), expected);
        check(
            "gzip",
            &[gzip(b"the otter "), gzip(&text[10..])].concat(),
            expected,
        );
        check("deflate", &zlib(text), expected);
        check("deflate", &raw_deflate(text), expected);
        for coding in ["gzip", "deflate", "identity"] {
            check(coding, b"", Ok(("", 0)));
        }
    }

    #[test]
    fn a_damaged_or_cut_off_body_is_never_taken_for_a_whole_one() {
        let text = b"the otter is in the pond";
        for (coding, encoded) in [("gzip", gzip(text)), ("deflate", zlib(text))] {
            check(
                coding,
                &encoded[..encoded.len() / 2],
                Err(EncodingError::Damaged),
            );
            let mut flipped = encoded.clone();
            let last = flipped.len() - 2;
            flipped[last] ^= 0x55;
            check(coding, &flipped, Err(EncodingError::Damaged));
            check(coding, b"\x1f not encoded", Err(EncodingError::Damaged));
        }
        for coding in ["br", "zstd", "gzip, gzip", "compress", "gzip;q=1"] {
            check(coding, text, Err(EncodingError::Unknown));
        }
    }

    #[test]
    fn a_bomb_costs_its_bound_and_no_more() {
        let zeros = vec![0; 64 * 1024 * 1024];
        for (coding, bomb) in [("gzip", gzip(&zeros)), ("deflate", zlib(&zeros))] {
            let mut decoder = decoder(coding, 400).unwrap();
            assert!(bomb.len() < 128 * 1024);
            decoder.push(&bomb).unwrap();
            let kept = decoder.into_kept();
            assert_eq!(kept.bytes.len(), 400);
            // One output buffer beyond the bound at most.
            assert!(kept.is_counted_out() && kept.length <= MAX_COUNTED + 64 * 1024);
        }
    }

    #[test]
    fn a_body_that_decodes_to_almost_nothing_is_refused_early() {
        let empty = gzip(b"");
        let decoder = || decoder("gzip", 400).unwrap();
        assert_eq!(decoder().push(&empty.repeat(1000)), Ok(()));
        let mut refused = decoder();
        let flood = empty.repeat(1_000_000 / empty.len());
        assert_eq!(refused.push(&flood), Err(EncodingError::Damaged));
        assert!(refused.kept().packed <= PACKED + PIECE as u64);
        // What no compressor makes smaller.
        let stored = [
            &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..],
            &[0, 1, 0, 0xfe, 0xff, b'a'].repeat(20_000),
        ]
        .concat();
        assert_eq!(decoder().push(&stored), Ok(()));
    }

    #[test]
    fn a_cut_body_never_ends_in_half_a_secret_and_stays_too_long() {
        let scrubber = Scrubber::new(["sekrit-token"]);
        let longest = scrubber.longest();
        let mut body = b"sekrit-token ".repeat(8);
        body.truncate(21 + 2 * longest);
        let clean = scrubbed(body, true, 20, &scrubber);
        assert!(clean.len() > 20);
        let text = String::from_utf8_lossy(&clean);
        assert!(!text.contains("sekr"), "{text}");
    }
}
