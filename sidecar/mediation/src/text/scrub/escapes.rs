//! Reads the escapes with which encoders write a byte.
//!
//! Percent-encoding and HTML entities, each also repeated, and the escapes of JSON, C and similar
//! languages, behind any number of backslashes. Every function looks at a bounded number of bytes.

/// Limits how often the result of an encoder is encoded again.
const LEVELS: usize = 32;
/// Limits the backslashes between the halves of a surrogate pair: JSON within JSON doubles them.
const PAIR_BACKSLASHES: usize = 64;
/// Limits the digits of a numeric entity, leading zeros included.
const ENTITY_DIGITS: usize = 8;

/// Called with the bytes that an escape stands for, and the end of the escape.
pub(super) type Each<'f> = &'f mut dyn FnMut(&[u8], usize);

/// Returns true if an escape can begin with this byte.
pub(super) fn begins_escape(byte: u8) -> bool {
    matches!(byte, b'%' | b'+' | b'&' | b'\\')
}

/// Reads, in every way, an escape at `at` that does not begin with a backslash.
pub(super) fn each_reading(text: &[u8], at: usize, each: Each<'_>) {
    match text[at] {
        b'%' => percent(text, at + 1, each),
        b'&' => entity(text, at + 1, each),
        b'+' => each(b" ", at + 1),
        _ => {}
    }
}

/// `%XX`, `%25XX`, `%2525XX`, …
fn percent(text: &[u8], mut at: usize, each: Each<'_>) {
    for _ in 0..LEVELS {
        let Some(byte) = hex(text, at, 2).and_then(|code| u8::try_from(code).ok()) else {
            return;
        };
        at += 2;
        each(&[byte], at);
        if byte != b'%' {
            return;
        }
    }
}

/// Reads `&#47;`, `&#x2F;`, `&quot;`, `&amp;`, `&amp;#47;`, …; `at` is after the ampersand.
fn entity(text: &[u8], mut at: usize, each: Each<'_>) {
    const NAMED: [(&[u8], u8); 4] = [
        (b"quot;", b'"'),
        (b"apos;", b'\''),
        (b"lt;", b'<'),
        (b"gt;", b'>'),
    ];
    for _ in 0..LEVELS {
        let rest = &text[at..];
        if rest.first() == Some(&b'#') {
            numeric(text, at + 1, each);
            return;
        }
        if let Some((name, byte)) = NAMED.iter().find(|(name, _)| rest.starts_with(name)) {
            each(&[*byte], at + name.len());
            return;
        }
        if !rest.starts_with(b"amp;") {
            return;
        }
        at += b"amp;".len();
        each(b"&", at);
    }
}

/// Reads the digits of an entity and its end.
fn numeric(text: &[u8], mut at: usize, each: Each<'_>) {
    let radix = match text.get(at) {
        Some(b'x' | b'X') => {
            at += 1;
            16
        }
        _ => 10,
    };
    let mut code = 0u32;
    for digits in 0..=ENTITY_DIGITS {
        let Some(&byte) = text.get(at + digits) else {
            return;
        };
        match char::from(byte).to_digit(radix) {
            Some(digit) => code = code.saturating_mul(radix).saturating_add(digit),
            None if byte == b';' && digits > 0 => {
                return character(code, at + digits + 1, each);
            }
            None => return,
        }
    }
}

/// Reads, in every way, the character after a backslash; `at` is after the last backslash.
pub(super) fn backslash_readings(text: &[u8], at: usize, each: Each<'_>) {
    match text.get(at) {
        Some(b'n') => each(b"\n", at + 1),
        Some(b'r') => each(b"\r", at + 1),
        Some(b't') => each(b"\t", at + 1),
        Some(&letter @ (b'"' | b'/' | b'\'')) => each(&[letter], at + 1),
        Some(b'x') => {
            if let Some(byte) = hex(text, at + 1, 2).and_then(|code| u8::try_from(code).ok()) {
                each(&[byte], at + 3);
            }
        }
        Some(b'u') => unicode(text, at + 1, each),
        _ => {}
    }
}

/// Reads `XXXX`, and for a character above U+FFFF the other half of its surrogate pair.
fn unicode(text: &[u8], at: usize, each: Each<'_>) {
    let Some(code) = hex(text, at, 4) else {
        return;
    };
    let end = at + 4;
    if (0xd800..0xdc00).contains(&code) {
        let backslashes = text[end..]
            .iter()
            .take(PAIR_BACKSLASHES)
            .take_while(|byte| **byte == b'\\')
            .count();
        let low = end + backslashes + 1;
        let is_pair = backslashes > 0 && text.get(low - 1) == Some(&b'u');
        if let Some(second @ 0xdc00..0xe000) = hex(text, low, 4).filter(|_| is_pair) {
            let code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
            character(code, low + 4, each);
        }
        return;
    }
    character(code, end, each);
    // JSON encoders write HTML like this: `\u0026#x2F;`.
    if code == u32::from(b'&') {
        entity(text, end, each);
    }
}

fn character(code: u32, end: usize, each: Each<'_>) {
    if let Some(character) = char::from_u32(code) {
        each(character.encode_utf8(&mut [0; 4]).as_bytes(), end);
    }
}

/// Reads the number in the next `digits` hexadecimal digits.
fn hex(text: &[u8], at: usize, digits: usize) -> Option<u32> {
    text.get(at..at + digits)?.iter().try_fold(0, |code, byte| {
        Some(code << 4 | char::from(*byte).to_digit(16)?)
    })
}
