//! Regular expressions in schemas: accepts only those that match in time linear in the text.
//!
//! A pattern is translated from ECMA's notation, as in the validator, and parsed. Its states are
//! counted before an engine is built, because a short pattern can have very many: `\p{L}{60}` has
//! nine bytes and about fifty thousand states.

use jsonschema_regex::to_rust_regex;
use regex_syntax::ast::ErrorKind;
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Repetition};
use regex_syntax::utf8::Utf8Sequences;

/// Limits the bytes of one pattern.
pub const MAX_BYTES: usize = 1024;
/// Limits the different patterns of one schema.
pub const MAX_PATTERNS: usize = 64;
/// Limits the states of all patterns of one schema, with repetitions written out.
pub const MAX_STATES: u64 = 16 * 1024;
/// Limits the escapes of letters (`\d`, `\w`, `\cA`) in one pattern: the translation from ECMA's
/// notation restarts after each of them.
pub const MAX_ESCAPES: usize = 64;
/// Limits the nesting of groups in one pattern.
const MAX_NESTING: u32 = 48;

/// Limits the bytes of the engine of one pattern. No pattern within `MAX_STATES` needs as much.
pub(crate) const ENGINE_BYTES: usize = 4 * 1024 * 1024;
/// Limits the bytes of states that the engine caches while it matches one pattern.
pub(crate) const ENGINE_CACHE_BYTES: usize = 64 * 1024;

/// The cost of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// States that the engine keeps: the cost of building.
    pub states: u64,
    /// States that can be alive at one byte of a text: the cost of matching.
    pub alive: u64,
}

/// The reason for which a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("has {0} bytes, {MAX_BYTES} are allowed: shorten the pattern")]
    TooLong(usize),
    #[error(
        "has more than {MAX_ESCAPES} escapes such as `\\d` and `\\w`: repeat them with `{{n}}`, or \
         write the characters in brackets"
    )]
    TooManyEscapes,
    #[error(
        "uses a lookahead, lookbehind or backreference, which cannot be matched in bounded time: \
         rewrite the pattern without it, or remove it and let the service check the value"
    )]
    Backtracking,
    #[error(
        "has {0} states once its repetitions are written out, {MAX_STATES} are allowed for all \
         patterns of a schema: repeat less, and bound lengths by `maxLength`"
    )]
    TooManyStates(u64),
    #[error("is not a regular expression of JSON Schema: {0}; correct it")]
    Invalid(String),
}

/// Counts the states of a pattern without building an engine for it.
pub fn cost(pattern: &str) -> Result<Cost, PatternError> {
    if pattern.len() > MAX_BYTES {
        return Err(PatternError::TooLong(pattern.len()));
    }
    if escapes(pattern) > MAX_ESCAPES {
        return Err(PatternError::TooManyEscapes);
    }
    let translated = to_rust_regex(pattern)
        .map_err(|()| PatternError::Invalid("its syntax is not known".to_owned()))?;
    let parsed = regex_syntax::ParserBuilder::new()
        .nest_limit(MAX_NESTING)
        .build()
        .parse(&translated)
        .map_err(|error| refusal(&error))?;
    let piece = measure(&parsed, Offsets::Any);
    if piece.states > MAX_STATES {
        return Err(PatternError::TooManyStates(piece.states));
    }
    let starts = if is_anchored(&parsed) {
        Offsets::Some(1)
    } else {
        Offsets::Any
    };
    Ok(Cost {
        states: piece.states,
        alive: measure(&parsed, starts).alive.min(piece.states),
    })
}

/// Counts backslashes before the letters that the translation replaces.
fn escapes(pattern: &str) -> usize {
    let mut characters = pattern.chars();
    let mut count = 0;
    while let Some(character) = characters.next() {
        if character == '\\'
            && characters
                .next()
                .is_some_and(|next| "dDwWsSc".contains(next))
        {
            count += 1;
        }
    }
    count
}

fn refusal(error: &regex_syntax::Error) -> PatternError {
    match error {
        regex_syntax::Error::Parse(error) => {
            let backtracks = matches!(
                error.kind(),
                ErrorKind::UnsupportedLookAround | ErrorKind::UnsupportedBackreference
            );
            if backtracks {
                PatternError::Backtracking
            } else {
                PatternError::Invalid(error.kind().to_string())
            }
        }
        regex_syntax::Error::Translate(error) => PatternError::Invalid(error.kind().to_string()),
        _ => PatternError::Invalid("its syntax is not known".to_owned()),
    }
}

/// Returns true if every match begins at the beginning of the text.
fn is_anchored(pattern: &Hir) -> bool {
    pattern
        .properties()
        .look_set_prefix()
        .contains(regex_syntax::hir::Look::Start)
}

/// The number of offsets in a text at which a part of a pattern can begin or end.
#[derive(Clone, Copy, Debug)]
enum Offsets {
    Some(u64),
    Any,
}

impl Offsets {
    /// Returns the number of states that are alive if there are `width` for each offset; at most
    /// `states`.
    fn alive(self, width: u64, states: u64) -> u64 {
        match self {
            Offsets::Some(offsets) => offsets.saturating_mul(width).min(states),
            Offsets::Any => states,
        }
    }

    /// Returns the offsets at which a part of this length can end if it begins at these offsets.
    fn after(self, length: Length) -> Offsets {
        match (self, length.most) {
            (Offsets::Some(offsets), Some(most)) => {
                Offsets::Some(offsets.saturating_mul((most - length.least).saturating_add(1)))
            }
            (Offsets::Some(_) | Offsets::Any, _) => Offsets::Any,
        }
    }
}

/// The number of characters that a part of a pattern takes; `most: None` is unbounded.
#[derive(Clone, Copy, Debug)]
struct Length {
    least: u64,
    most: Option<u64>,
}

impl Length {
    const NONE: Length = Length {
        least: 0,
        most: Some(0),
    };

    fn then(self, next: Length) -> Length {
        Length {
            least: self.least.saturating_add(next.least),
            most: self.most.zip(next.most).map(|(a, b)| a.saturating_add(b)),
        }
    }

    fn or(self, other: Length) -> Length {
        Length {
            least: self.least.min(other.least),
            most: self.most.zip(other.most).map(|(a, b)| a.max(b)),
        }
    }

    fn is_fixed(self) -> bool {
        self.most == Some(self.least)
    }
}

/// The measurements of a part of a pattern.
#[derive(Clone, Copy, Debug)]
struct Piece {
    states: u64,
    alive: u64,
    length: Length,
}

/// The most bytes of a character in UTF-8. Each byte has a state of its own.
const BYTES_OF_A_CHARACTER: u64 = 4;

/// Measures a part of a pattern that begins at `starts`. Recurses at most `MAX_NESTING` deep, which
/// the parser enforces.
fn measure(part: &Hir, starts: Offsets) -> Piece {
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => leaf(1, Length::NONE, starts),
        HirKind::Literal(literal) => {
            let characters = String::from_utf8_lossy(&literal.0).chars().count() as u64;
            let length = Length {
                least: characters,
                most: Some(characters),
            };
            leaf(literal.0.len() as u64, length, starts)
        }
        HirKind::Class(class) => {
            let states = match class {
                Class::Bytes(bytes) => bytes.ranges().len() as u64,
                Class::Unicode(characters) => sequences(characters),
            };
            let length = Length {
                least: 1,
                most: Some(1),
            };
            leaf(states, length, starts)
        }
        HirKind::Capture(group) => {
            let inner = measure(&group.sub, starts);
            Piece {
                states: inner.states.saturating_add(2),
                alive: inner.alive.saturating_add(2),
                ..inner
            }
        }
        HirKind::Repetition(repetition) => repeated(repetition, starts),
        HirKind::Concat(parts) => {
            let mut starts = starts;
            let mut whole = Piece {
                states: 1,
                alive: 1,
                length: Length::NONE,
            };
            for part in parts {
                let piece = measure(part, starts);
                starts = starts.after(piece.length);
                whole = Piece {
                    states: whole.states.saturating_add(piece.states),
                    alive: whole.alive.saturating_add(piece.alive),
                    length: whole.length.then(piece.length),
                };
            }
            whole
        }
        HirKind::Alternation(parts) => {
            let mut pieces = parts.iter().map(|part| measure(part, starts));
            let first = pieces.next().unwrap_or(leaf(1, Length::NONE, starts));
            pieces.fold(first, |whole, piece| Piece {
                states: whole.states.saturating_add(piece.states),
                alive: whole.alive.saturating_add(piece.alive),
                length: whole.length.or(piece.length),
            })
        }
    }
}

fn leaf(states: u64, length: Length, starts: Offsets) -> Piece {
    let states = states.max(1);
    Piece {
        states,
        alive: starts.alive(BYTES_OF_A_CHARACTER, states),
        length,
    }
}

fn repeated(repetition: &Repetition, starts: Offsets) -> Piece {
    let once = measure(&repetition.sub, Offsets::Some(1));
    let least = u64::from(repetition.min);
    let copies = match repetition.max {
        Some(most) => u64::from(most),
        None => least.saturating_add(1),
    }
    .max(1);
    let states = copies.saturating_mul(once.states.saturating_add(1));
    let alive = if once.length.is_fixed() {
        // A match that starts at one offset is in one copy at a time: the active states are those
        // of one copy and its exit.
        starts.alive(once.alive.saturating_add(1), states)
    } else {
        states
    };
    let length = Length {
        least: once.length.least.saturating_mul(least),
        most: match (repetition.max, once.length.most) {
            (Some(most), Some(length)) => Some(u64::from(most).saturating_mul(length)),
            (None, Some(0)) => Some(0),
            (Some(_) | None, _) => None,
        },
    };
    Piece {
        states,
        alive,
        length,
    }
}

/// Counts the UTF-8 byte sequences of a character class.
fn sequences(class: &ClassUnicode) -> u64 {
    class
        .ranges()
        .iter()
        .map(|range| Utf8Sequences::new(range.start(), range.end()).count() as u64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_people_write_are_cheap() {
        for pattern in [
            "^[a-zA-Z0-9_-]{1,64}$",
            "^[a-z]{1,1000}$",
            "^.{1,1000}$",
            r"^[\s\S]{1,256}$",
            "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            r"^arn:aws:[a-z]+:[a-z0-9-]*:\d{12}:[\w+=/,.@-]{1,512}$",
            r"^[^\s@]+@[^\s@]+\.[^\s@]+$",
            r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$",
            r"^\p{L}+$",
            "^(get|put|post)$",
            "x",
            "",
        ] {
            let cost = cost(pattern).expect(pattern);
            assert!(
                cost.states <= 12_000 && cost.alive <= 3_200,
                "{pattern}: {cost:?}"
            );
        }
        // However long the text, one character at a time is alive.
        assert!(cost("^.{1,1000}$").unwrap().alive < 20);
        assert!(cost("^[a-z]{1,1000}$").unwrap().alive < 20);
    }

    #[test]
    fn repetitions_are_counted_before_anything_is_built() {
        let states = |pattern: &str| cost(pattern).map(|cost| cost.states);
        assert_eq!(states("^[a-z]{800}$"), Ok(1603));
        for pattern in [
            r"\p{L}{60}k",
            r"^\p{L}{1,64}$",
            "(a{1,200}){1,200}",
            "((((a{10}){10}){10}){10}){10}",
            ".{1,60000}",
            "(?:a?){900000}",
        ] {
            assert!(
                matches!(
                    states(pattern),
                    Err(PatternError::TooManyStates(_) | PatternError::Invalid(_))
                ),
                "{pattern}: {:?}",
                states(pattern)
            );
        }
    }

    #[test]
    fn unanchored_patterns_keep_their_states_alive() {
        for pattern in [
            "[ab]*a[ab]{400}",
            "^[ab]*a[ab]{400}$",
            ".{900}x",
            "(a|ab){300}",
        ] {
            let cost = cost(pattern).expect(pattern);
            assert!(cost.alive >= 300, "{pattern}: {cost:?}");
        }
    }

    #[test]
    fn patterns_that_need_backtracking_are_refused() {
        for pattern in [
            "^(?=b)b+$",
            "(?!x)",
            "(?<=a)b",
            "(?<!a)b",
            r"(a)\1",
            "^((?=b)b+)+$",
        ] {
            assert_eq!(cost(pattern), Err(PatternError::Backtracking), "{pattern}");
        }
    }

    #[test]
    fn escapes_that_are_translated_one_by_one_are_bounded() {
        for escape in [r"\d", r"[\w-]", r"\cA", r"\\\S"] {
            let pattern = escape.repeat(MAX_ESCAPES + 1);
            assert_eq!(
                cost(&pattern),
                Err(PatternError::TooManyEscapes),
                "{pattern}"
            );
            assert!(cost(&escape.repeat(MAX_ESCAPES)).is_ok(), "{escape}");
        }
        // An escaped backslash begins no escape.
        assert!(cost(&r"\\d".repeat(MAX_ESCAPES + 1)).is_ok());
        // Within the bound the translation allocates little.
        let used = allocation_counter::measure(|| drop(cost(&r"\d".repeat(MAX_ESCAPES))));
        assert!(used.bytes_total < 8 * 1024 * 1024, "{used:?}");
        let used = allocation_counter::measure(|| drop(cost(&r"\d".repeat(500))));
        assert!(used.bytes_total < 4096, "{used:?}");
    }

    #[test]
    fn an_invalid_pattern_is_refused() {
        let long = "a".repeat(MAX_BYTES + 1);
        assert_eq!(cost(&long), Err(PatternError::TooLong(long.len())));
        let deep = format!("{}a{}", "(".repeat(200), ")".repeat(200));
        for pattern in ["(", "[a", "*", &deep, r"\p{Nothing}", "a{2,1}"] {
            assert!(
                matches!(cost(pattern), Err(PatternError::Invalid(_))),
                "{pattern}"
            );
        }
    }
}
