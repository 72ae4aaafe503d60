//! `${VAR}` with Compose's syntax, and the `.env` file with the values.
//!
//! Values of variables may be secrets. A [`Template`] is filled in only for a Secret, or where its
//! caller states that the result is public (an image's name).

use std::collections::BTreeMap;
use std::fmt;

use toolcrib_manifest::SecretText;

/// A text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable {
        name: String,
        /// The text of `${VAR:-text}`.
        default: Option<String>,
    },
}

/// Values by name. They are treated as secrets.
pub type Values = BTreeMap<String, SecretText>;

impl Template {
    /// Parses a text. `Err`: the fault in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            plain += before;
            if let Some(after) = after.strip_prefix('$') {
                plain.push('$');
                rest = after;
                continue;
            }
            let variable = if let Some(inner) = after.strip_prefix('{') {
                let (inner, tail) = inner.split_once('}').ok_or("has a '${' without its '}'")?;
                rest = tail;
                braced(inner)?
            } else {
                let length = name_length(after);
                if length == 0 {
                    // A lone dollar stands for itself.
                    plain.push('$');
                    rest = after;
                    continue;
                }
                let (name, tail) = after.split_at(length);
                rest = tail;
                Part::Variable {
                    name: name.to_owned(),
                    default: None,
                }
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(variable);
        }
        plain += rest;
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    pub fn variable(name: &str) -> Self {
        Self(vec![Part::Variable {
            name: name.to_owned(),
            default: None,
        }])
    }

    /// Returns the text with defaults if every variable has one: such a text is not a secret.
    pub fn literal(&self, values: &Values) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(more) => text += more,
                Part::Variable { name, default } if !values.contains_key(name) => {
                    text += default.as_ref()?;
                }
                Part::Variable { .. } => return None,
            }
        }
        Some(text)
    }

    /// Fills in the variables; `Err` names the variable without a value.
    pub fn filled(&self, values: &Values) -> Result<SecretText, String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(more) => text += more,
                Part::Variable { name, default } => match (values.get(name), default) {
                    (Some(value), _) => text += value.expose(),
                    (None, Some(default)) => text += default,
                    (None, None) => return Err(name.clone()),
                },
            }
        }
        Ok(SecretText::new(text))
    }

    /// Returns the variables without a value or default.
    pub fn missing<'a>(&'a self, values: &'a Values) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter_map(|part| match part {
            Part::Variable {
                name,
                default: None,
            } if !values.contains_key(name) => Some(name.as_str()),
            Part::Text(_) | Part::Variable { .. } => None,
        })
    }
}

/// Prints the form for `envsubst`: variables stay, defaults are removed.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                Part::Text(text) => f.write_str(text)?,
                Part::Variable { name, .. } => write!(f, "${{{name}}}")?,
            }
        }
        Ok(())
    }
}

/// Parses the text between the braces.
fn braced(inner: &str) -> Result<Part, String> {
    let (name, operation) = inner.split_at(name_length(inner));
    if name.is_empty() {
        return Err(format!("has \"${{{inner}}}\", which names no variable"));
    }
    let default = match operation {
        "" => None,
        operation if operation.starts_with(":?") || operation.starts_with('?') => None,
        operation => {
            let default = operation
                .strip_prefix(":-")
                .or_else(|| operation.strip_prefix('-'))
                .filter(|default| !default.contains('$'))
                .ok_or_else(|| {
                    format!(
                        "has \"${{{inner}}}\": only ${{VAR}}, ${{VAR:-text}} and ${{VAR:?text}} are read"
                    )
                })?;
            Some(default.to_owned())
        }
    };
    Ok(Part::Variable {
        name: name.to_owned(),
        default,
    })
}

fn name_length(text: &str) -> usize {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !text.starts_with(first) {
        return 0;
    }
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len())
}

/// Parses a `.env` file: a line is `NAME=value`, with optional `export` and quotes. `Err` names
/// the line and never its content.
pub fn dotenv(text: &str) -> Result<Values, String> {
    let mut values = Values::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line
            .split_once('=')
            .filter(|(name, _)| {
                let name = name.trim_end();
                !name.is_empty() && name_length(name) == name.len()
            })
            .ok_or_else(|| format!("line {}: wanted NAME=value", index + 1))?;
        values.insert(name.trim_end().to_owned(), SecretText::new(unquoted(value)));
    }
    Ok(values)
}

fn unquoted(value: &str) -> String {
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = value
            .strip_prefix(quote)
            .and_then(|inner| inner.split_once(quote))
        {
            return inner.0.to_owned();
        }
    }
    // A comment ends an unquoted value.
    value
        .split_once(" #")
        .map_or(value, |(value, _)| value.trim_end())
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        dotenv("# pond\nFISH=trout\nexport DEPTH = \"3 m\"\nNOTE=a#b # c\n").unwrap()
    }

    #[test]
    fn variables_are_filled_in_or_kept() {
        let values = values();
        let read = |text: &str| {
            let template = Template::parse(text).unwrap();
            let filled = template
                .filled(&values)
                .map(|text| text.expose().to_owned());
            (template.to_string(), filled)
        };
        assert_eq!(
            read("a $FISH b"),
            ("a ${FISH} b".into(), Ok("a trout b".into()))
        );
        assert_eq!(read("${DEPTH}${NOTE}").1, Ok("3 ma#b".into()));
        assert_eq!(read("${BAIT:-worm}"), ("${BAIT}".into(), Ok("worm".into())));
        assert_eq!(read("${BAIT:?say it}").1, Err("BAIT".into()));
        assert_eq!(read("5$ and $$FISH").1, Ok("5$ and $FISH".into()));
        for wrong in ["${FISH", "${}", "${FISH:+x}", "${FISH:-$BAIT}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_texts_without_variable_values_are_literal() {
        let values = values();
        let literal = |text: &str| Template::parse(text).unwrap().literal(&values);
        assert_eq!(literal("plain"), Some("plain".into()));
        assert_eq!(literal("${BAIT:-worm}"), Some("worm".into()));
        assert_eq!(literal("${FISH:-worm}"), None);
        assert_eq!(literal("${BAIT}"), None);
    }

    #[test]
    fn a_faulty_line_is_reported_without_its_content() {
        assert_eq!(
            dotenv("FISH=1\nsecret words\n").unwrap_err(),
            "line 2: wanted NAME=value"
        );
    }
}
