//! Compares the search with its definition, and bounds its steps.

use proptest::collection::vec;
use proptest::prelude::*;

use super::needles::Steps;
use super::*;

const MIB: usize = 1024 * 1024;

/// Finds all places by the definition: each start, each needle, each reading.
fn reference(needles: &[Vec<u8>], text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let ends = needles.iter().filter_map(|it| last_end(text, at, it));
        match ends.max() {
            Some(end) => {
                found.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

fn last_end(text: &[u8], at: usize, needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(at);
    }
    let read = readings(&text[at..], needle).into_iter();
    read.filter_map(|(length, said)| last_end(text, at + length, &needle[said..]))
        .max()
}

/// All ways to read a prefix of a needle: bytes of the text, bytes of the needle.
fn readings(text: &[u8], needle: &[u8]) -> Vec<(usize, usize)> {
    let run = |bytes: &[u8]| bytes.iter().take_while(|byte| **byte == b'\\').count();
    let mut readings = Vec::new();
    match text.first() {
        None => {}
        Some(b'\\') => {
            let backslashes = run(text);
            readings.extend((1..=run(needle).min(backslashes)).map(|said| (backslashes, said)));
            let letters: String = text[backslashes..]
                .iter()
                .take(80)
                .map(|it| char::from(*it))
                .collect();
            for (length, said) in after_backslash(&letters) {
                readings.extend(says(&said, needle).map(|count| (backslashes + length, count)));
            }
        }
        Some(byte) => {
            readings.extend(says(&[*byte], needle).map(|count| (1, count)));
            let rest: String = text.iter().take(80).map(|it| char::from(*it)).collect();
            for (length, said) in encoded(&rest) {
                readings.extend(says(&said, needle).map(|count| (length, count)));
            }
        }
    }
    readings
}

fn says(said: &[u8], needle: &[u8]) -> Option<usize> {
    needle.starts_with(said).then_some(said.len())
}

fn number(digits: &str, length: usize, radix: u32) -> Option<u32> {
    let digits = digits.get(..length)?;
    let all = digits.chars().all(|it| it.is_digit(radix));
    all.then(|| u32::from_str_radix(digits, radix).ok())
        .flatten()
}

fn utf8(code: u32) -> Option<Vec<u8>> {
    Some(char::from_u32(code)?.to_string().into_bytes())
}

fn after_backslash(letters: &str) -> Vec<(usize, Vec<u8>)> {
    let Some(letter) = letters.chars().next() else {
        return Vec::new();
    };
    match letter {
        'n' => vec![(1, b"\n".to_vec())],
        'r' => vec![(1, b"\r".to_vec())],
        't' => vec![(1, b"\t".to_vec())],
        '"' | '/' | '\'' => vec![(1, vec![letter as u8])],
        'x' => {
            let byte = number(&letters[1..], 2, 16).and_then(|it| u8::try_from(it).ok());
            byte.map(|byte| (3, vec![byte])).into_iter().collect()
        }
        'u' => {
            let Some(code) = number(&letters[1..], 4, 16) else {
                return Vec::new();
            };
            let rest = &letters[5..];
            if let Some(pair) = pair(code, rest) {
                return vec![pair];
            }
            let mut read: Vec<_> = utf8(code).map(|said| (5, said)).into_iter().collect();
            if code == 0x26 {
                let entity = encoded(&format!("&{rest}"));
                read.extend(entity.into_iter().map(|(length, said)| (length + 4, said)));
            }
            read
        }
        _ => Vec::new(),
    }
}

fn pair(high: u32, rest: &str) -> Option<(usize, Vec<u8>)> {
    let low = rest.trim_start_matches('\\');
    let backslashes = rest.len() - low.len();
    let low = number(low.strip_prefix('u')?, 4, 16)?;
    let units = [u16::try_from(high).ok()?, u16::try_from(low).ok()?];
    let text = String::from_utf16(&units).ok()?;
    let is_pair = backslashes > 0 && text.chars().count() == 1;
    is_pair.then(|| (5 + backslashes + 5, text.into_bytes()))
}

fn encoded(text: &str) -> Vec<(usize, Vec<u8>)> {
    let mut read = Vec::new();
    if text.starts_with('+') {
        read.push((1, b" ".to_vec()));
    }
    if let Some(mut rest) = text.strip_prefix('%') {
        while let Some(code) = number(rest, 2, 16) {
            rest = &rest[2..];
            read.push((text.len() - rest.len(), vec![code as u8]));
            if code != 0x25 {
                break;
            }
        }
    }
    if let Some(mut rest) = text.strip_prefix('&') {
        while let Some(next) = rest.strip_prefix("amp;") {
            rest = next;
            read.push((text.len() - rest.len(), b"&".to_vec()));
        }
        for (name, said) in [("quot;", "\""), ("apos;", "'"), ("lt;", "<"), ("gt;", ">")] {
            if rest.starts_with(name) {
                let length = text.len() - rest.len() + name.len();
                read.push((length, said.as_bytes().to_vec()));
            }
        }
        let digits = rest.strip_prefix('#').and_then(|rest| {
            let (digits, radix) = match rest.strip_prefix(['x', 'X']) {
                Some(digits) => (digits, 16),
                None => (rest, 10),
            };
            let length = digits.find(';').filter(|length| (1..=8).contains(length))?;
            let said = utf8(number(digits, length, radix)?)?;
            Some((text.len() - digits.len() + length + 1, said))
        });
        read.extend(digits);
    }
    read
}

/// Pieces of texts and secrets: escapes, their halves, and the characters that they stand for.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "4",
        "1",
        "A",
        "2",
        "5",
        "%",
        "%41",
        "%25",
        "25",
        "%2541",
        "\\",
        "\\\\",
        "n",
        "\\n",
        "u",
        "0",
        "\\u0041",
        "u0041",
        "\\\\u005c",
        "\\x41",
        "x41",
        "+",
        " ",
        "&",
        "&amp;",
        "amp;",
        "#65;",
        "&#65;",
        "&#x41;",
        "\\u0026",
        "\\\"",
        "\"",
        "/",
        "\\/",
        "&quot;",
        "é",
        "\\u00e9",
        "😀",
        "\\ud83d\\ude00",
        "\\ud83d",
        "%C3%A9",
    ])
}

/// The pieces without ambiguous escapes and without those that the former search did not read.
fn plain_piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a", "4", "1", "A", "2", "5", "%41", "%2541", "n", "\\n", "\\\\n", "u", "0", "\\u0041",
        "u0041", "\\\"", "\"", "/", "\\/", "\\\\/", "é", "\\u00e9", "%C3%A9", "\n",
    ])
}

fn secret() -> impl Strategy<Value = String> {
    vec(piece(), 2..8).prop_map(|pieces| pieces.concat())
}

/// Encodes a character in one of several ways.
fn encode(it: char, way: usize) -> String {
    let bytes = |prefix: &str| {
        let mut buffer = [0; 4];
        let bytes = it.encode_utf8(&mut buffer).bytes();
        bytes
            .map(|byte| format!("{prefix}{byte:02X}"))
            .collect::<String>()
    };
    let code = it as u32;
    match (way, it) {
        (0, _) => it.to_string(),
        (1, _) => bytes("%"),
        (2, _) => bytes("%2525"),
        (3, _) => bytes("\\x"),
        (4, _) => {
            let mut units = [0; 2];
            let units = it.encode_utf16(&mut units).iter();
            units.map(|unit| format!("\\u{unit:04x}")).collect()
        }
        (5, _) => format!("&#{code};"),
        (6, _) => format!("&amp;#x{code:x};"),
        (7, '&') => "&amp;amp;".to_string(),
        (7, '"') => "&quot;".to_string(),
        (7, '+') => "%2b".to_string(),
        (8, ' ') => "+".to_string(),
        (8, _) => format!("\\\\u0026#{code};"),
        (_, _) => it.to_string(),
    }
}

/// The former search: each needle by itself, longest first, with one reading each.
mod former {
    use super::Range;

    pub fn found(needles: &[Vec<u8>], text: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let mut ends = needles.iter().filter_map(|it| matched(&text[at..], it));
            match ends.next() {
                Some(length) => {
                    found.push(at..at + length);
                    at += length;
                }
                None => at += 1,
            }
        }
        found
    }

    fn matched(text: &[u8], needle: &[u8]) -> Option<usize> {
        let (mut at, mut wanted) = (0, 0);
        while wanted < needle.len() {
            let (consumed, said) = unit(&text[at..], &needle[wanted..])?;
            at += consumed;
            wanted += said;
        }
        Some(at)
    }

    fn unit(text: &[u8], needle: &[u8]) -> Option<(usize, usize)> {
        let byte = *needle.first()?;
        match *text.first()? {
            b'%' => {
                if let Some(length) = percent(text, byte) {
                    return Some((length, 1));
                }
            }
            b'\\' => return escape(text, needle),
            b'+' if byte == b' ' => return Some((1, 1)),
            _ => {}
        }
        (text[0] == byte).then_some((1, 1))
    }

    fn percent(text: &[u8], byte: u8) -> Option<usize> {
        let mut at = 1;
        loop {
            let digits = std::str::from_utf8(text.get(at..at + 2)?).ok()?;
            if u8::from_str_radix(digits, 16).ok()? == byte {
                return Some(at + 2);
            }
            if digits != "25" {
                return None;
            }
            at += 2;
        }
    }

    fn escape(text: &[u8], needle: &[u8]) -> Option<(usize, usize)> {
        let run = |bytes: &[u8]| bytes.iter().take_while(|byte| **byte == b'\\').count();
        let (said, wanted) = (run(text), run(needle));
        if wanted > 0 {
            return (said >= wanted).then_some((said, wanted));
        }
        let byte = needle[0];
        let letter = *text.get(said)?;
        if letter == b'u' {
            let digits = std::str::from_utf8(text.get(said + 1..said + 5)?).ok()?;
            let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
            let mut buffer = [0; 4];
            let utf8 = c.encode_utf8(&mut buffer).as_bytes();
            return needle.starts_with(utf8).then_some((said + 5, utf8.len()));
        }
        let plain = match letter {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'"' | b'/' | b'\'' => letter,
            _ => return None,
        };
        (plain == byte).then_some((said + 1, 1))
    }
}

fn needles(secrets: &[String]) -> Vec<Vec<u8>> {
    let long = secrets.iter().map(|it| it.as_bytes().to_vec());
    let mut needles: Vec<_> = long.filter(|it| it.len() >= SHORTEST).collect();
    needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
    needles
}

fn found(needles: &[Vec<u8>], text: &[u8]) -> Vec<Range<usize>> {
    Needles::new(needles.to_vec()).found(text, &mut Steps::for_text(text))
}

/// Text that contains pieces of the secrets, whole secrets, and other text.
fn text_of(secrets: &[String], cuts: &[(usize, usize, usize)], between: &[&str]) -> String {
    let mut text = String::new();
    for (at, between) in between.iter().enumerate() {
        text.push_str(between);
        if let Some((which, begin, end)) = cuts.get(at) {
            let letters: Vec<char> = secrets[which % secrets.len()].chars().collect();
            let begin = begin % letters.len();
            let end = begin + end % (letters.len() - begin + 1);
            text.extend(&letters[begin..end]);
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn the_search_finds_the_same_places_as_its_definition(
        secrets in vec(secret(), 1..4),
        cuts in vec((any::<usize>(), any::<usize>(), any::<usize>()), 0..4),
        between in vec(piece(), 0..12),
    ) {
        let text = text_of(&secrets, &cuts, &between);
        let needles = needles(&secrets);
        prop_assert_eq!(found(&needles, text.as_bytes()), reference(&needles, text.as_bytes()), "{}", text);
    }

    /// Each character is encoded in a different way.
    #[test]
    fn a_secret_is_found_in_every_encoding_of_its_characters(
        secret in secret(), ways in vec(0_usize..9, 48),
        before in vec(piece(), 0..4), after in vec(piece(), 0..4),
    ) {
        let written: String = secret.chars().zip(ways.iter().cycle()).map(|(it, way)| encode(it, *way)).collect();
        let text = [before.concat(), written, after.concat()].concat();
        let needles = needles(&[secret]);
        let found = found(&needles, text.as_bytes());
        prop_assert_eq!(&found, &reference(&needles, text.as_bytes()), "{}", text);
        // Neighbouring backslashes are read as one run.
        let is_alone = !text.contains('\\');
        prop_assert!(!is_alone || needles.is_empty() || !found.is_empty(), "{}", text);
    }

    #[test]
    fn the_search_agrees_with_the_former_search(
        secret in "[a4A1/\"é\n]{6,9}", other in "[n u025a]{6,8}",
        before in vec(plain_piece(), 0..10), after in vec(plain_piece(), 0..10), whole in any::<bool>(),
    ) {
        let other = other.replace(' ', "A");
        let written = serde_json::to_string(&secret).unwrap();
        let secrets = [secret, other];
        let middle = if whole { written.trim_matches('"') } else { "" };
        let text = [before.concat(), middle.to_string(), after.concat()].concat();
        let needles = needles(&secrets);
        prop_assert_eq!(found(&needles, text.as_bytes()), former::found(&needles, text.as_bytes()), "{}", text);
    }
}

fn ordinary() -> Scrubber {
    // Every byte of an escape occurs in one of them, so no escape is skipped.
    Scrubber::new([
        "sk-proj-4fT9uQ25xb0ZcAAmnrtVYw8K1e6u",
        "pa%25ss\\u00w0rd+\"/n\\\\ &amp;x",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0",
    ])
}

/// Names and texts with which a service could keep the mediator busy.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let pieces: [&'static str; 22] = [
        "\\",
        "%",
        "+",
        "\\u",
        "%25",
        "\\\\u005c",
        "&",
        "&amp;",
        "&#",
        "&#x2F;",
        "\\x",
        "\\\"",
        "p",
        "pa%25",
        "pa%2525",
        "\\u0026amp;",
        "\\ud83d",
        "%25\\",
        "+%\\u&",
        "s\\\\k",
        "eyJh",
        "73656",
    ];
    let mut texts: Vec<_> = pieces
        .iter()
        .map(|piece| (*piece, piece.as_bytes().repeat(MIB / piece.len())))
        .collect();
    // Runs that never end.
    let run = |name, before: &str, piece: &str, after: &str| {
        let text = format!("{before}{}{after}", piece.repeat(MIB / piece.len()));
        (name, text.into_bytes())
    };
    texts.extend([
        run("%2525…", "pa%", "25", "zz"),
        run("\\\\\\…u005c", "pa%25ss", "\\", "u005c"),
        run("&amp;amp;…", " &", "amp;", "x"),
        run("&#000…", " &#", "0", "47;"),
    ]);
    texts
}

#[test]
fn hostile_text_takes_a_bounded_number_of_steps_per_byte() {
    let scrubber = ordinary();
    for (name, text) in hostile() {
        let mut steps = Steps::for_text(&text);
        let found = scrubber.needles.found(&text, &mut steps);
        assert!(found.is_empty(), "{name}: {found:?}");
        assert!(steps.taken <= 2 * MIB, "{name}: {} steps", steps.taken);
    }
}

/// With a repetitive secret, nearly every place of such a text begins a match. The steps run out,
/// and the rest is treated as a secret.
#[test]
fn an_exhausted_search_redacts_the_rest_of_the_text() {
    let secret = format!("{}b", "a".repeat(4000));
    let scrubber = Scrubber::new([secret.as_str()]);
    for escape in ["%61", "\\u0061"] {
        let text = format!("{escape}{}{}", "a".repeat(MIB), &secret[1..]);
        let mut steps = Steps::for_text(text.as_bytes());
        let found = scrubber.needles.found(text.as_bytes(), &mut steps);
        assert!(steps.taken <= 9 * text.len(), "{} steps", steps.taken);
        assert!(
            found[0].start < MIB / 2 && found[0].end == text.len(),
            "{found:?}"
        );
    }
    let plain = format!("{}{secret}", "a".repeat(MIB));
    let found = scrubber.found(plain.as_bytes());
    let [only] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(only.start > MIB - 3 * secret.len() && only.end == plain.len());
}
