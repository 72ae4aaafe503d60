//! The words of an expression.

use super::{ExpressionFault, ExpressionFaultKind};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Digits that fit into 64 bits.
    Int(i64),
    /// The digits of the lowest integer, which are valid only after a minus.
    Lowest,
    Double(f64),
    Text(String),
    Name(String),
    Sign(&'static str),
    End,
}

/// A sign comes before its own prefixes.
const SIGNS: [&str; 23] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "?", ":", "(", ")", "[", "]", "{", "}", ",",
    ".", "+", "-", "*", "/",
];

pub(super) fn invalid(at: usize, message: impl Into<String>) -> ExpressionFault {
    ExpressionFault {
        kind: ExpressionFaultKind::Invalid,
        at,
        message: message.into(),
    }
}

/// Splits a text into tokens, each with the number of its first character.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ExpressionFault> {
    let mut reader = Reader { rest: text, at: 1 };
    let mut tokens = Vec::new();
    loop {
        reader.skip_space();
        let at = reader.at;
        let Some(first) = reader.rest.chars().next() else {
            tokens.push((at, Token::End));
            return Ok(tokens);
        };
        let token = match first {
            '0'..='9' => reader.number()?,
            '"' | '\'' => reader.text(first, false)?,
            'r' | 'R' if reader.rest[1..].starts_with(['"', '\'']) => {
                reader.take(1);
                let quote = reader.rest.chars().next().unwrap_or('"');
                reader.text(quote, true)?
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = reader.rest.find(|c| !is_part(c));
                Token::Name(reader.take(end.unwrap_or(reader.rest.len())).to_owned())
            }
            '%' => {
                reader.take(1);
                Token::Sign("%")
            }
            _ => {
                let sign = SIGNS.iter().find(|sign| reader.rest.starts_with(**sign));
                let Some(sign) = sign else {
                    return Err(invalid(
                        at,
                        format!("{first:?} has no meaning here: remove it"),
                    ));
                };
                reader.take(sign.len());
                Token::Sign(sign)
            }
        };
        tokens.push((at, token));
    }
}

struct Reader<'t> {
    rest: &'t str,
    /// The number of the next character.
    at: usize,
}

impl<'t> Reader<'t> {
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.at += taken.chars().count();
        taken
    }

    fn skip_space(&mut self) {
        loop {
            let space = self.rest.len() - self.rest.trim_ascii_start().len();
            self.take(space);
            if !self.rest.starts_with("//") {
                return;
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(end);
        }
    }

    fn number(&mut self) -> Result<Token, ExpressionFault> {
        let at = self.at;
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let mut end = digits(self.rest);
        let mut is_double = false;
        if let Some(fraction) = self.rest[end..].strip_prefix('.') {
            let count = digits(fraction);
            if count > 0 {
                is_double = true;
                end += 1 + count;
            }
        }
        if let Some(exponent) = self.rest[end..].strip_prefix(['e', 'E']) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let count = digits(unsigned);
            if count > 0 {
                is_double = true;
                end += 1 + (exponent.len() - unsigned.len()) + count;
            }
        }
        let text = self.take(end);
        if self
            .rest
            .starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        {
            return Err(invalid(
                at,
                "a number has digits only: write it in decimal, without letters",
            ));
        }
        let too_large = || {
            invalid(
                at,
                "this number does not fit into 64 bits: write a smaller one",
            )
        };
        if is_double {
            let value: f64 = text.parse().map_err(|_| too_large())?;
            return match value.is_finite() {
                true => Ok(Token::Double(value)),
                false => Err(too_large()),
            };
        }
        match text.parse::<i64>() {
            Ok(value) => Ok(Token::Int(value)),
            Err(_) if text == "9223372036854775808" => Ok(Token::Lowest),
            Err(_) => Err(too_large()),
        }
    }

    /// Reads a text; the next character is its quote.
    fn text(&mut self, quote: char, is_raw: bool) -> Result<Token, ExpressionFault> {
        let at = self.at;
        let open = || {
            invalid(
                at,
                "this text has no end: close its quotes on the same line",
            )
        };
        if self.rest[1..].starts_with(quote) && self.rest[2..].starts_with(quote) {
            return Err(invalid(
                at,
                "texts in triple quotes are not known: write one quote",
            ));
        }
        self.take(1);
        let mut text = String::new();
        loop {
            let next = self.rest.chars().next().ok_or_else(open)?;
            self.take(next.len_utf8());
            match next {
                '\n' | '\r' => return Err(open()),
                '\\' if !is_raw => text.push(self.escaped()?),
                next if next == quote => return Ok(Token::Text(text)),
                next => text.push(next),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, ExpressionFault> {
        let at = self.at;
        let unknown = || {
            invalid(
                at,
                "this escape is not known: write \\\\, \\\", \\', \\n, \\r, \\t or \\u and four digits, or put r before the quote",
            )
        };
        let kind = self.rest.chars().next().ok_or_else(unknown)?;
        self.take(kind.len_utf8());
        match kind {
            '\\' | '"' | '\'' | '`' | '?' => Ok(kind),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'u' => {
                let digits = self.rest.get(..4).ok_or_else(unknown)?;
                if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(unknown());
                }
                let code = u32::from_str_radix(digits, 16).map_err(|_| unknown())?;
                self.take(4);
                char::from_u32(code).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}
